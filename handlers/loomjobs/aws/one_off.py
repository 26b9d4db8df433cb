"""One-off EventBridge schedules: a body is sent to a queue later than SQS can hold it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from loomjobs.aws import clients
from loomjobs.core import names
from loomjobs.core.later import whole_minute

_TRIES = {"MaximumEventAgeInSeconds": 86_400, "MaximumRetryAttempts": 185}
"""The most that EventBridge Scheduler takes; what it cannot send in a day goes to the queue for it."""


class OneOffSchedules:
    """`find` gives the value of a variable in `names.LATER_...`, or raises ConfigurationError; nothing is asked before
    the first schedule."""

    def __init__(self, find: Callable[[str], str], client: Callable[[], Any] = clients.scheduler) -> None:
        self._find = find
        self._client = client

    def create(self, name: str, *, at: datetime, queue_arn: str, body: str, group: str | None = None) -> None:
        """Returns when it is stored, or was before: the name tells. `at` is UTC. Raises botocore's errors."""
        client = self._client()
        try:
            client.create_schedule(
                Name=name,
                GroupName=self._find(names.LATER_GROUP),
                Target=self._target(queue_arn, body, group),
                **firing(at),
            )
        except client.exceptions.ConflictException:
            return

    def _target(self, queue_arn: str, body: str, group: str | None) -> dict[str, Any]:
        target: dict[str, Any] = {
            "Arn": queue_arn,
            "RoleArn": self._find(names.LATER_ROLE),
            "Input": body,
            "RetryPolicy": _TRIES,
            "DeadLetterConfig": {"Arn": self._find(names.LATER_DLQ)},
        }
        return target | ({"SqsParameters": {"MessageGroupId": group}} if group is not None else {})


def firing(at: datetime) -> dict[str, Any]:
    """What a schedule is told about when: in the minute after `at`, UTC, once."""
    return {
        "ScheduleExpression": f"at({whole_minute(at):%Y-%m-%dT%H:%M:%S})",
        "ScheduleExpressionTimezone": "UTC",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE",
    }
