"""Cancelling a job: before it has a record, while it waits, and while it runs, where completion wins.

Every write is conditional on the record as it was read, so a race with a worker has one winner, and a refused write
means: look again. `cancel` in a record is the instant of the request, epoch milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from loomjobs.core import defaults
from loomjobs.core.decision import Failure
from loomjobs.core.record import CANCELLED, INPROGRESS, QUEUED, WAITING, Record, entry, extended
from loomjobs.core.unrun import flip, insert, renew, stale
from loomjobs.core.write import Absent, AllOf, Is, Item, Write

ROUNDS: Final = 6
"""Looks at a record that changes between look and write, before the caller is told to try again."""


@dataclass(frozen=True, slots=True)
class End:
    """It will not run, once this write is applied."""

    write: Write


@dataclass(frozen=True, slots=True)
class Ask:
    """It runs: the write leaves word for the run, which may look at `ctx.cancelled`, and may still complete."""

    write: Write


@dataclass(frozen=True, slots=True)
class Asked:
    """It runs, and word was left for it before."""


@dataclass(frozen=True, slots=True)
class Already:
    """It was cancelled before."""


@dataclass(frozen=True, slots=True)
class TooLate:
    """It has ended, or is of a state that only a newer release knows; `status` is the record's."""

    status: str


Step: TypeAlias = End | Ask | Asked | Already | TooLate


def next_step(id: str, old: Record | None, *, now: int, expires: int) -> Step:
    """What cancelling means for the record as it was read (None: there is none). `now` in epoch milliseconds,
    `expires` the record's new TTL in epoch seconds."""
    sets: dict[str, Any] = {"status": CANCELLED, "cancel": now, "ended": now, "expiration": expires}
    if old is None:
        return End(insert(id, sets))
    if stale(old, now):
        return End(renew(old, sets))
    if old.status in (WAITING, QUEUED):
        return End(flip(old, sets))
    if old.status == INPROGRESS:
        return Asked() if old.cancelled else Ask(_ask(old, now))
    return Already() if old.status == CANCELLED else TooLate(old.status)


def unless_cancelled(write: Write) -> Write:
    """A write that puts a run back to WAITING, made to be refused where somebody asked to cancel meanwhile."""
    return replace(write, condition=AllOf(write.condition, Absent("cancel")))


def asked(record: Record, item: Item | None) -> bool:
    """Why `unless_cancelled` was refused: the run is still ours, and is to end as cancelled."""
    if item is None or item.get("owner") != record.owner:
        return False
    return item.get("status") == INPROGRESS and "cancel" in item


def cancelled_write(record: Record, failure: Failure | None = None, *, now: int, expires: int) -> Write:
    """INPROGRESS → CANCELLED by the owner of the claim: a run that was asked to stop, and failed (`failure`, which is
    charged) or deferred."""
    sets: dict[str, Any] = {"status": CANCELLED, "susp": 0, "ended": now, "expiration": expires}
    if failure is not None:
        count = record.attempts + 1
        line = entry(failure, now=now, count=count, version=record.version)
        sets |= {"n": count, "hist": extended(record.history, line)}
    condition = AllOf(Is("owner", "=", record.owner), Is("status", "=", INPROGRESS))
    absent = {} if record.cancelled else {"cancel": now}
    return Write(id=record.id, condition=condition, sets=sets, absent_sets=absent, wants_item=False)


def abandon_write(old: Record, *, now: int, expires: int) -> Write:
    """INPROGRESS and lapsed → CANCELLED: its worker crashed after somebody asked to cancel, so nobody takes over."""
    lapsed = Is("in_progress_expiration", "<=", now - defaults.CLOCK_SKEW * 1000)
    sets = {"status": CANCELLED, "susp": 0, "ended": now, "expiration": expires}
    condition = AllOf(old.unchanged(), lapsed, Is("cancel", ">", 0))
    return Write(id=old.id, condition=condition, sets=sets, wants_item=False)


def _ask(old: Record, now: int) -> Write:
    condition = AllOf(old.unchanged(), Absent("cancel"))
    return Write(id=old.id, condition=condition, sets={"cancel": now}, wants_item=False)
