"""A job's record before its message: it says that the job is queued, so that nobody queues it twice.

ABSENT | ended long enough ago | DEAD  --reserve-->  QUEUED (reserved)  --sent, confirm-->  QUEUED (queued)

Reserve, send, confirm. A producer that dies in between leaves a reservation that lapses: the next one sends too. At
worst there are two messages, and one effect. A worker claims a QUEUED record like an absent one, confirmed or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias

from loomjobs.core import defaults
from loomjobs.core.record import CANCELLED, COMPLETED, DEAD, DYING, EXPIRED, INPROGRESS, QUEUED, WAITING, Record
from loomjobs.core.unrun import OF_A_FORMER_LIFE
from loomjobs.core.write import Absent, AllOf, AnyOf, Condition, Is, Item, Write

RESERVED_FOR: Final = 10_000
"""Milliseconds from a reservation to its message, at the most. Four tries of a send take less; behind a producer that
died, others wait so long."""
_GONE: Final = (defaults.SOURCE_RETENTION + defaults.RECEIVE_MARGIN) * 1000
"""Milliseconds after which no message of a queue is left, and what waits for one waits for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """`token` is the id of the enqueue. Times are epoch milliseconds, `expires` the record's TTL in epoch seconds.

    `due` is when the message may first be received. `window`: for how many milliseconds after its end a job still
    counts; None counts nothing, and only tells that it is queued.
    """

    id: str
    token: str
    payload_hash: str
    now: int
    due: int
    expires: int
    window: int | None

    def sets(self) -> dict[str, Any]:
        return {
            "status": QUEUED,
            "rsv": self.token,
            "rsv_until": self.now + RESERVED_FOR,
            "ph": self.payload_hash,
            "n": 0,
            "susp": 0,
            "free": 0,
            "expiration": self.expires,
        }


@dataclass(frozen=True, slots=True)
class Mine:
    """The reservation had been written: its answer was lost."""


@dataclass(frozen=True, slots=True)
class Free:
    """Nothing of it is queued, runs or counts: this write begins it anew."""

    write: Write


@dataclass(frozen=True, slots=True)
class Taken:
    """It is queued, runs, or ended within the window. `token` names its enqueue, where it was reserved."""

    token: str


@dataclass(frozen=True, slots=True)
class Busy:
    """Another producer is about to send it; its reservation lapses at `until`, epoch milliseconds."""

    until: int


@dataclass(frozen=True, slots=True)
class Aside:
    """Not for us to touch: send it, and let the worker decide."""


Standing: TypeAlias = Mine | Free | Taken | Busy | Aside


def reserve_write(mine: Reservation) -> Write:
    """Of a record that should be absent, as a batch call can carry it."""
    return Write(id=mine.id, condition=Absent("id"), sets=mine.sets() | {"epoch": 0}, wants_item=False)


def judge(old: Record, mine: Reservation) -> Standing:
    """What to do after `old` refused the reservation. Pure, total."""
    if old.status == QUEUED and old.reserved_by == mine.token:
        return Mine()
    if old.expires * 1000 <= mine.now:
        return Free(_anew(old, mine))
    if mine.window is None:
        return Aside()
    if old.status == QUEUED:
        return _queued(old, mine)
    if old.status in (INPROGRESS, WAITING, DYING):
        lost = max(old.sent, old.lease, old.not_before) + _GONE <= mine.now
        return Free(_anew(old, mine)) if lost else Taken(old.reserved_by)
    if old.status == DEAD:
        return Free(_anew(old, mine))
    if old.status in (COMPLETED, EXPIRED, CANCELLED):
        counts = mine.window > 0 and (old.status == CANCELLED or old.ended + mine.window > mine.now)
        return Taken(old.reserved_by) if counts else Free(_anew(old, mine))
    return Aside()


def confirm_write(mine: Reservation) -> Write:
    """Its message is in the queue."""
    return Write(id=mine.id, condition=_still(mine.token), sets={"qat": mine.due}, wants_item=False)


def release_write(mine: Reservation) -> Write:
    """Its message was not taken: the next producer need not wait."""
    return freed_write(mine.id, mine.token)


def freed_write(id: str, token: str) -> Write:
    """There will be no message of the enqueue `token`, which may have been confirmed."""
    sets = {"rsv_until": 0, "qat": 0}
    return Write(id=id, condition=_still(token), sets=sets, removes=("ph",), wants_item=False)


def restore_write(mine: Reservation, former: Item) -> Write:
    """Its message was not taken, and the record had been of an earlier run: it is that again."""
    sets = {name: value for name, value in former.items() if name not in ("id", "epoch")}
    removes = tuple(name for name in ("rsv", "rsv_until", "qat", "ph") if name not in sets)
    return Write(id=mine.id, condition=_still(mine.token), sets=sets, removes=removes, wants_item=False)


def milliseconds(window: timedelta) -> int:
    return int(window.total_seconds() * 1000)


def _queued(old: Record, mine: Reservation) -> Standing:
    if old.queued_at:
        return Taken(old.reserved_by) if old.queued_at + _GONE > mine.now else Free(_anew(old, mine))
    return Busy(old.reserved_until) if old.reserved_until > mine.now else Free(_anew(old, mine))


def _still(token: str) -> Condition:
    return AllOf(Is("rsv", "=", token), Is("status", "=", QUEUED))


def _anew(old: Record, mine: Reservation) -> Write:
    sets = mine.sets() | {"epoch": old.epoch + 1}
    removes = tuple(name for name in (*OF_A_FORMER_LIFE, "mid", "sent", "ended", "qat", "dfr") if name not in sets)
    reserved = Is("rsv", "=", old.reserved_by) if old.reserved_by else Absent("rsv")
    unconfirmed = AnyOf(Absent("qat"), Is("qat", "=", old.queued_at))
    return Write(
        id=mine.id,
        condition=AllOf(old.unchanged(), reserved, unconfirmed),
        sets=sets,
        removes=removes,
        wants_item=False,
    )
