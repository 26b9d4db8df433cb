"""A lock on a value of the payload (`exclusive=`): a lease in an item of its own, which only its owner can release.

Times are epoch milliseconds. A lease outlives its run, and is taken over only after a skew margin.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from loomjobs.core import defaults
from loomjobs.core.record import record_id
from loomjobs.core.write import Absent, AnyOf, Is, Item, Write

LEASE_MARGIN: Final = 30
"""Seconds that a lease is longer than the job's timeout."""
LONGEST_WAIT: Final = 60.0
_SHORTEST_WAIT: Final = 2.0


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody else holds it. `wait` in seconds."""

    wait: float


def lock_id(job: str, value: str) -> str:
    return record_id(f"~lock#{job}", value)


def lease_end(now: int, timeout: timedelta) -> int:
    """When a lease taken now ends: the job's timeout and a margin later."""
    return now + round(timeout.total_seconds() * 1000) + LEASE_MARGIN * 1000


def acquire_write(id: str, owner: str, *, now: int, until: int) -> Write:
    """Take a lock that is free, or whose lease lapsed more than the skew margin ago."""
    lapsed = Is("until", "<=", now - defaults.CLOCK_SKEW * 1000)
    return Write(
        id=id,
        condition=AnyOf(Absent("owner"), Absent("until"), lapsed),
        sets={"owner": owner, "until": until, "expiration": _expires(until)},
        wants_item=False,
    )


def renew_write(id: str, owner: str, *, until: int) -> Write:
    """Keep it until then; refused once somebody else took it over."""
    sets = {"until": until, "expiration": _expires(until)}
    return Write(id=id, condition=Is("owner", "=", owner), sets=sets, wants_item=False)


def release_write(id: str, owner: str, *, now: int) -> Write:
    """Free it. Refused, and rightly so, where it is not ours any more."""
    sets = {"until": now, "expiration": _expires(now)}
    return Write(id=id, condition=Is("owner", "=", owner), sets=sets, removes=("owner",), wants_item=False)


def is_ours(item: Item | None, owner: str) -> bool:
    """Whether what refused a write was our own earlier one, whose answer was lost."""
    return item is not None and item.get("owner") == owner


def busy(item: Item | None, *, now: int, receives: int, roll: float) -> Busy:
    """How long to wait: jitter whose bound doubles with the delivery's receives, never past the end of the lease."""
    bound = min(LONGEST_WAIT, _SHORTEST_WAIT * 2.0 ** min(max(receives, 1), 10))
    until = now if item is None else item.get("until", now)
    left = max(0.0, (until - now) / 1000 + defaults.CLOCK_SKEW)
    return Busy(min(left, 1.0 + (bound - 1.0) * roll))


def _expires(until: int) -> int:
    return until // 1000 + 3_600
