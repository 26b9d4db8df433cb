"""The receive budget: how long a message may still wait, and when waiting on would lose it to SQS's own redrive.

SQS moves a message to the dead-letter queue when it is received more often than maxReceiveCount, and drops it at the
end of its retention, whether or not its job ever ran. So waits lengthen as receives run out, and a message that can
wait no more is renewed or dead-lettered by us, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from loomjobs.core import defaults, limits
from loomjobs.core.delivery import Delivery

LAST_RECEIVES = 2
"""Receives kept back: one for the renewal or hand-off itself, one for a crash on the way there."""


LONGEST_WAIT = 10.0 * 366 * 86_400
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Of a queue: `receives` is its maxReceiveCount, `retention` seconds."""

    receives: int
    retention: int = defaults.SOURCE_RETENTION


@dataclass(frozen=True, slots=True)
class Stay:
    """The message waits in its queue, `seconds` from now."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Renew:
    """A fresh copy is to arrive in `seconds`, and this message goes: its receives, or 12 hours, are used up."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Spent:
    """Neither waiting nor renewing is possible: to the dead-letter queue."""

    reason: Literal["receive-budget", "retention"]


Waiting: TypeAlias = Stay | Renew | Spent


def spend(seconds: float, delivery: Delivery, budget: Budget, *, now: datetime) -> Waiting:
    """What becomes of a message that wants to wait so long; ten years count as for ever."""
    seconds = min(max(seconds, 0.0), LONGEST_WAIT)
    left = budget.receives - delivery.receives
    life = budget.retention - defaults.RECEIVE_MARGIN - (now - delivery.sent_at).total_seconds()
    if life <= 0:
        return Spent("retention")
    if left < LAST_RECEIVES:
        return Spent("receive-budget") if delivery.kind == "fifo" else Renew(max(seconds, 60.0))
    if delivery.kind != "fifo" and seconds > limits.SQS_VISIBILITY_SECONDS - _ROUND_TRIP:
        return Renew(seconds)
    return Stay(min(max(seconds, _floor(left, budget.receives, life)), life))


_ROUND_TRIP = 900
"""Seconds of the 12 hours that the receive and the run before may have used."""


def _floor(left: int, all_: int, life: float) -> float:
    """Nothing while half of the receives is left; then rising to an even spread of the life over what is left."""
    half = all_ / 2
    return 0.0 if left >= half else life / left * (1 - left / half)
