"""One-off EventBridge schedules: a message again, later than SQS can, and outside the chain that Lambda's loop guard
counts (a function that sends to its own queue is stopped at about 16 hops)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from loomjobs.aws import clients
from loomjobs.core import names
from loomjobs.core.delivery import Delivery
from loomjobs.core.errors import ConfigurationError
from loomjobs.core.renewal import renewed_body

_SOONEST = timedelta(seconds=60)
"""EventBridge Scheduler fires at a minute's precision; a time in the past would never fire."""


class OneOffSchedules:
    """Implements the runtime's Renewals with EventBridge Scheduler, for standard queues."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def renew(self, delivery: Delivery, seconds: float, /) -> None:
        """Returns when the schedule is stored. Its name is the message's, so a repeat after a crash makes no second
        one: that is a conflict, which means done."""
        scheduler = clients.scheduler()
        at = datetime.now(UTC) + max(_SOONEST, timedelta(seconds=seconds))
        try:
            scheduler.create_schedule(
                Name=_name(delivery),
                GroupName=self._given(names.LATER_GROUP),
                ScheduleExpression=f"at({at:%Y-%m-%dT%H:%M:%S})",
                ScheduleExpressionTimezone="UTC",
                FlexibleTimeWindow={"Mode": "OFF"},
                ActionAfterCompletion="DELETE",
                Target={
                    "Arn": self._given(names.SOURCE_ARN),
                    "RoleArn": self._given(names.LATER_ROLE),
                    "Input": renewed_body(delivery),
                    "RetryPolicy": {"MaximumEventAgeInSeconds": 86_400, "MaximumRetryAttempts": 185},
                },
            )
        except scheduler.exceptions.ConflictException:
            return

    def _given(self, key: str) -> str:
        value = self._environment.get(key, "")
        if not value:
            raise ConfigurationError(f"the environment variable {key} is missing; the stack of this worker sets it")
        return value


def _name(delivery: Delivery) -> str:
    return "renew-" + hashlib.sha256(f"{delivery.queue}#{delivery.message_id}".encode()).hexdigest()[:40]
