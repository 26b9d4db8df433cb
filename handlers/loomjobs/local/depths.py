"""How full the queues in memory are, by the virtual clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from loomjobs.core.errors import ConfigurationError
from loomjobs.core.reading import Reading
from loomjobs.local.clock import Clock
from loomjobs.local.queue import MemoryQueue

UNAGED = 3
"""Receives after which a standard queue's age leaves a message out:
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html"""


@dataclass(frozen=True)
class MemoryDepths:
    """Implements the runtime's Depths. Unlike CloudWatch's, its ages are of this moment."""

    queues: Mapping[str, MemoryQueue]
    clock: Clock

    def read(self, queue: str, /, *, age: bool) -> Reading:
        if queue not in self.queues:
            raise ConfigurationError(f"no job is declared on queue {queue!r}")
        now, counted = self.clock(), self.queues[queue]
        there = [each for each in counted.messages if each.sent_at <= now]  # not what a schedule sends later
        hidden = [each for each in there if each.visible_at > now]
        in_flight = sum(each.receives > 0 for each in hidden)
        return Reading(
            visible=len(there) - len(hidden),
            in_flight=in_flight,
            delayed=len(hidden) - in_flight,
            at=now,
            age=_oldest(counted, now) if age else None,
        )


def _oldest(queue: MemoryQueue, now: datetime) -> timedelta | None:
    """Of what has arrived; None of an empty queue."""
    arrived = [each for each in queue.messages if each.receives or each.visible_at <= now]
    aged = [each for each in arrived if queue.fifo or each.receives <= UNAGED]
    return max((now - each.sent_at for each in aged), default=None)
