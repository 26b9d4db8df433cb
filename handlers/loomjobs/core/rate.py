"""Limiting a rate by reserving future slots: one item a limiter, whose `next` is the first instant nobody has yet.

Slots lie `per / count` apart and `next` only moves forward, by whole intervals, whatever the workers' clocks say: so no
window of `per` holds more than `count` + 1 slots. A run starts at most SLOT_GRACE (and the clocks' skew) after its
slot, so a window of `per` sees at most the starts of the slots of `per` + SLOT_GRACE + skew.
`next` is in epoch microseconds, since a rate over 100 a second has no whole interval in milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from loomjobs.core.record import record_id
from loomjobs.core.uses import Rate
from loomjobs.core.write import Absent, AllOf, AnyOf, Condition, Is, Item, Write

HORIZON: Final = 900
"""Seconds ahead within which slots are given: an SQS delay's reach, and short enough for a changed rate to act."""
SLOT_GRACE: Final = 10
"""Seconds after its instant in which a slot may be used; later it is lost, and a new one is reserved."""

FULL_WAIT: Final = (HORIZON / 2, float(HORIZON))
"""Bounds in seconds of the wait of a job that got no slot: by then at least half of what is reserved has been used."""

_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Reservation:
    """A write that takes `count` slots, `interval` microseconds apart."""

    write: Write
    count: int
    interval: int

    def slots(self, item: Item) -> Sequence[int]:
        """The instants in epoch ms, in order, of the item that the applied write made."""
        first = item["next"] - self.count * self.interval
        return [-(-(first + place * self.interval) // 1000) for place in range(self.count)]


def service_rate_id(service: str) -> str:
    return f"~rate#service#{service}"


def job_rate_id(job: str, value: str | None) -> str:
    """`value` spells the payload field of the rate's key; None where the rate is the whole job's."""
    return f"~rate#{job}" if value is None else record_id(f"~rate#{job}", value)


def interval_of(rate: Rate) -> int:
    """Microseconds between two slots, rounded up."""
    return max(1, -(-round(rate.per.total_seconds() * _US) // rate.count))


def reserve(id: str, rate: Rate, wanted: int, *, now: int) -> Reservation:
    """The first try, for a limiter that is busy: `wanted` slots, which must all lie within the horizon. `now` in ms."""
    interval = interval_of(rate)
    count = min(wanted, HORIZON * _US // interval + 1)
    latest = (now + HORIZON * 1000) * 1000 - (count - 1) * interval
    return _advance(id, count, interval, now, AllOf(Is("next", ">=", now * 1000), Is("next", "<=", latest)))


def reserve_again(id: str, rate: Rate, wanted: int, refusing: Item | None, *, now: int) -> Reservation | None:
    """The second and last try, knowing what refused the first: start anew from now where the limiter was idle, else
    as many slots as the horizon still holds. None when it holds no more."""
    interval, start = interval_of(rate), now * 1000
    first = start if refusing is None else max(start, refusing.get("next", 0))
    count = min(wanted, (start + HORIZON * _US - first) // interval + 1)
    if first > start + HORIZON * _US:
        return None
    if refusing is not None and refusing.get("next", 0) >= start:
        latest = start + HORIZON * _US - (count - 1) * interval
        return _advance(id, count, interval, now, AllOf(Is("next", ">=", start), Is("next", "<=", latest)))
    sets = {"next": start + count * interval, "expiration": _expires(now, count, interval)}
    idle = AnyOf(Absent("next"), Is("next", "<", start))
    return Reservation(Write(id=id, condition=idle, sets=sets), count, interval)


def is_due(slot: int, now: int) -> bool:
    """Whether a job may run in its slot now. Both in epoch ms."""
    return slot <= now and not is_lost(slot, now)


def is_lost(slot: int, now: int) -> bool:
    """Whether a slot's grace is over, so that a new one must be reserved. Both in epoch ms."""
    return now > slot + SLOT_GRACE * 1000


def _advance(id: str, count: int, interval: int, now: int, condition: Condition) -> Reservation:
    sets: dict[str, Any] = {"expiration": _expires(now, count, interval)}
    return Reservation(Write(id=id, condition=condition, sets=sets, adds={"next": count * interval}), count, interval)


def _expires(now: int, count: int, interval: int) -> int:
    """Once `next` is past, the item says nothing; an hour of margin for clocks."""
    return now // 1000 + HORIZON + count * interval // _US + 3_600
