"""Switches a queue's event source mapping off while all its jobs wait, and on again through one-off schedules."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from loomjobs.aws import clients

FEWEST: Final = 2
"""MaximumConcurrency at first: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html"""
RAMP: Final = timedelta(minutes=3)
"""After this the mapping has its full concurrency back."""
_TARGET: Final = "arn:aws:scheduler:::aws-sdk:lambda:updateEventSourceMapping"


class MappingValve:
    """Implements the runtime's Valve. `parameter` holds the mapping's id, `role` may update it, `most` is its
    MaximumConcurrency."""

    def __init__(self, *, parameter: str, role: str, group: str, most: int) -> None:
        self._parameter = parameter
        self._role = role
        self._group = group
        self._most = most
        self._id = ""

    def shut(self, seconds: float, /) -> None:
        """The schedules that open it come first: what fails on the way leaves a queue that is delivered."""
        mapping = self._mapping()
        opens = datetime.now(UTC) + timedelta(seconds=seconds)
        self._later(mapping, opens, FEWEST)
        if self._most > FEWEST:
            self._later(mapping, opens + RAMP, self._most)
        clients.lambda_().update_event_source_mapping(UUID=mapping, Enabled=False)

    def _later(self, mapping: str, at: datetime, concurrency: int) -> None:
        """Name and instant are rounded to the minute, so that workers that shut it together make one schedule."""
        minute = at.replace(second=0, microsecond=0) + timedelta(minutes=1)
        request: dict[str, Any] = {
            "UUID": mapping,
            "Enabled": True,
            "ScalingConfig": {"MaximumConcurrency": concurrency},
        }
        scheduler = clients.scheduler()
        try:
            scheduler.create_schedule(
                Name=f"open-{hashlib.sha256(mapping.encode()).hexdigest()[:16]}-{minute:%Y%m%d%H%M}-{concurrency}",
                GroupName=self._group,
                ScheduleExpression=f"at({minute:%Y-%m-%dT%H:%M:%S})",
                ScheduleExpressionTimezone="UTC",
                FlexibleTimeWindow={"Mode": "OFF"},
                ActionAfterCompletion="DELETE",
                Target={
                    "Arn": _TARGET,
                    "RoleArn": self._role,
                    "Input": json.dumps(request),
                    "RetryPolicy": {"MaximumEventAgeInSeconds": 86_400, "MaximumRetryAttempts": 185},
                },
            )
        except scheduler.exceptions.ConflictException:
            return

    def _mapping(self) -> str:
        if not self._id:
            self._id = clients.ssm().get_parameter(Name=self._parameter)["Parameter"].get("Value", "")
        return self._id
