"""Ending a record that nobody runs, as CANCELLED or EXPIRED: what the two have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from loomjobs.core import defaults
from loomjobs.core.record import CANCELLED, COMPLETED, EXPIRED, INPROGRESS, Record
from loomjobs.core.write import Absent, AllOf, Is, Write

OF_A_FORMER_LIFE: Final = tuple("ph nb slot dead_at why ck ckv data cont err hist cancel done total".split())
"""Attributes that a record which starts anew must not keep."""

Cause: TypeAlias = Literal["duplicate", "cancelled", "expired"]


def cause(record: Record) -> Cause:
    """Why a delivery for a record that ended without a death is acknowledged. Completion wins over a cancel."""
    if record.status == CANCELLED:
        return "cancelled"
    if record.status == EXPIRED:
        return "expired"
    return "cancelled" if record.cancelled and record.status != COMPLETED else "duplicate"


def stale(record: Record, now: int) -> bool:
    """Its TTL is over and DynamoDB has not removed it yet: it counts as absent. `now` in epoch milliseconds."""
    running = record.status == INPROGRESS and record.lease + defaults.CLOCK_SKEW * 1000 > now
    return record.expires * 1000 <= now and not running


def insert(id: str, sets: Mapping[str, Any]) -> Write:
    """A record that begins with its end."""
    first = {"epoch": 1, "n": 0, "susp": 0, "free": 0}
    return Write(id=id, condition=Absent("id"), sets=first | dict(sets), wants_item=False)


def renew(old: Record, sets: Mapping[str, Any]) -> Write:
    """The same over a stale record, of which nothing is kept."""
    first = {"epoch": old.epoch + 1, "n": 0, "susp": 0, "free": 0}
    removes = tuple(name for name in OF_A_FORMER_LIFE if name not in sets)
    condition = AllOf(old.unchanged(), Is("expiration", "=", old.expires))
    return Write(id=old.id, condition=condition, sets=first | dict(sets), removes=removes, wants_item=False)


def flip(old: Record, sets: Mapping[str, Any]) -> Write:
    """End a record that waits. Its history stays."""
    return Write(id=old.id, condition=old.unchanged(), sets=sets, removes=("nb", "slot"), wants_item=False)
