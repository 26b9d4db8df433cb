"""How much a queue holds, as it was counted at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What SQS said of a queue when it was asked `at`, approximately.

    `visible` messages can be received, those `in_flight` are with a worker or wait for their next attempt, and
    `delayed` ones have not arrived yet. `age` is that of the oldest message, None where it was not asked or not known.
    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_GetQueueAttributes.html
    """

    visible: int
    in_flight: int
    delayed: int
    at: datetime
    age: timedelta | None = None

    @property
    def depth(self) -> int:
        """All of them: each is work that is still to be done."""
        return self.visible + self.in_flight + self.delayed

    def __str__(self) -> str:
        oldest = f", the oldest {self.age} old" if self.age is not None else ""
        return f"{self.visible:,} visible, {self.in_flight:,} in flight, {self.delayed:,} delayed{oldest}"
