"""A message again, later than SQS can, and outside the chain that Lambda's loop guard counts (a function that sends to
its own queue is stopped at about 16 hops)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from loomjobs.aws import clients
from loomjobs.aws.one_off import OneOffSchedules
from loomjobs.aws.places import given
from loomjobs.core import names
from loomjobs.core.delivery import Delivery
from loomjobs.core.renewal import renewed_body

_SOONEST = timedelta(seconds=60)
"""A schedule for a time that is over when it is stored would never fire."""


class ScheduledRenewals:
    """Implements the runtime's Renewals with EventBridge Scheduler, for standard queues."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._schedules = OneOffSchedules(lambda key: given(environment, key), lambda: clients.scheduler())

    def renew(self, delivery: Delivery, seconds: float, /) -> None:
        """Returns when the schedule is stored. Its name is the message's, so a repeat after a crash makes no second
        one."""
        self._schedules.create(
            _name(delivery),
            at=datetime.now(UTC) + max(_SOONEST, timedelta(seconds=seconds)),
            queue_arn=given(self._environment, names.SOURCE_ARN),
            body=renewed_body(delivery),
        )


def _name(delivery: Delivery) -> str:
    return "renew-" + hashlib.sha256(f"{delivery.queue}#{delivery.message_id}".encode()).hexdigest()[:40]
