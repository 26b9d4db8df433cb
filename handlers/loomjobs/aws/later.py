"""Sending now and later: SQS for what it can hold, a one-off schedule for each message that is due later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, EndpointConnectionError

from loomjobs.aws.one_off import OneOffSchedules
from loomjobs.aws.queues import SqsSender, answered
from loomjobs.core.later import schedule_name
from loomjobs.core.outgoing import Sendable, Sent, is_far
from loomjobs.runtime.ports import Clock

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


class AnytimeSender:
    """Implements the runtime's Sender, and the relay's. `url_of` finds a queue's URL, or raises ConfigurationError."""

    def __init__(
        self, client: SQSClient, url_of: Callable[[str], str], schedules: OneOffSchedules, *, clock: Clock
    ) -> None:
        self._soon = SqsSender(client, url_of)
        self._client = client
        self._url_of = url_of
        self._schedules = schedules
        self._clock = clock

    def send(self, queue: str, messages: Sequence[Sendable], /) -> Sequence[Sent]:
        """The schedules come first: where they are not configured, nothing is sent."""
        later = iter([self._schedule(queue, each) for each in messages if is_far(each)])
        soon = [message for message in messages if not is_far(message)]
        sent = iter(self._soon.send(queue, soon) if soon else ())
        return [next(later) if is_far(each) else next(sent) for each in messages]

    def _schedule(self, queue: str, message: Sendable) -> Sent:
        """Its name makes a repeat harmless, so botocore's own tries are too; after them the outcome is not known.

        EventBridge Scheduler takes a group for FIFO queues only: on a standard one the message comes without fairness.
        """
        fifo = message.dedup is not None
        try:
            self._schedules.create(
                schedule_name(queue, message.id),
                at=self._clock() + timedelta(seconds=message.delay),
                queue_arn=queue_arn(self._url_of(queue), self._client),
                body=message.body,
                group=message.group if fifo else None,
            )
        except ClientError as error:
            return answered(error)
        except (EndpointConnectionError, ConnectTimeoutError) as error:
            return Sent("refused", f"EventBridge Scheduler cannot be reached: {error}")
        except BotoCoreError as error:
            return Sent("unknown", f"{type(error).__name__}: {error}")
        return Sent("accepted")


def queue_arn(url: str, client: SQSClient) -> str:
    """The ARN of a queue in the client's region, from its URL, which ends with the account and the name."""
    account, name = url.rstrip("/").rsplit("/", 2)[-2:]
    return f"arn:{client.meta.partition}:sqs:{client.meta.region_name}:{account}:{name}"
