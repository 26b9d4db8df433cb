"""How full a queue is: SQS counts its messages, and only CloudWatch knows the age of the oldest."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from loomjobs.core.reading import Reading
from loomjobs.runtime.ports import Clock

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_COUNTS: Final = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
_WINDOW: Final = timedelta(minutes=5)
"""A value of the metric is there after a minute or two; one that is older than this says nothing about now."""


class SqsDepths:
    """Implements the runtime's Depths. `url_of` finds a queue's URL, or raises ConfigurationError; `cloudwatch` makes
    the client when an age is asked for."""

    def __init__(
        self, client: SQSClient, url_of: Callable[[str], str], *, cloudwatch: Callable[[], Any], clock: Clock
    ) -> None:
        self._client = client
        self._url_of = url_of
        self._cloudwatch = cloudwatch
        self._clock = clock

    def read(self, queue: str, /, *, age: bool) -> Reading:
        at, url = self._clock(), self._url_of(queue)
        found: Any = self._client.get_queue_attributes(QueueUrl=url, AttributeNames=list(_COUNTS))["Attributes"]
        visible, in_flight, delayed = (int(found[name]) for name in _COUNTS)
        oldest = self._age(url.rpartition("/")[2]) if age else None
        return Reading(visible=visible, in_flight=in_flight, delayed=delayed, at=at, age=oldest)

    def _age(self, name: str) -> timedelta | None:
        """None where CloudWatch has no value: it gets none from a queue that was idle for hours, nor in the first
        minutes after. Not GetMetricData, which is not in the free tier.

        https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
        """
        now = self._clock()
        points = self._cloudwatch().get_metric_statistics(
            Namespace="AWS/SQS",
            MetricName="ApproximateAgeOfOldestMessage",
            Dimensions=[{"Name": "QueueName", "Value": name}],
            StartTime=now - _WINDOW,
            EndTime=now,
            Period=60,
            Statistics=["Maximum"],
        )["Datapoints"]
        latest = max(points, key=lambda point: point["Timestamp"], default=None)  # they come in no order
        return None if latest is None else timedelta(seconds=latest["Maximum"])
