"""Ending a run: the writes that only the owner of the claim can make. Absolute values, so each can be replayed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loomjobs.core.decision import Failure, Reason
from loomjobs.core.record import COMPLETED, DEAD, DYING, INPROGRESS, WAITING, Record, entry, extended
from loomjobs.core.write import Absent, AllOf, Is, Item, Write


def complete_write(record: Record, *, now: int, expires: int, result: str | None) -> Write:
    """INPROGRESS → COMPLETED. `result` is JSON text, stored where it is small enough."""
    sets: dict[str, Any] = {"status": COMPLETED, "susp": 0, "ended": now, "expiration": expires}
    if result is not None:
        sets["data"] = result
    return _fenced(record, INPROGRESS, sets)


def fail_write(record: Record, failure: Failure, *, now: int, not_before: int, expires: int) -> Write:
    """INPROGRESS → WAITING with the attempt charged."""
    count = record.attempts + 1
    sets = {
        "status": WAITING,
        "n": count,
        "nb": not_before,
        "susp": 0,
        "hist": extended(record.history, entry(failure, now=now, count=count, version=record.version)),
        "expiration": expires,
    }
    return _fenced(record, INPROGRESS, sets)


def defer_write(record: Record, *, not_before: int, expires: int, why: str = "", now: int = 0) -> Write:
    """INPROGRESS → WAITING, nothing charged; how often, and why and when last, is kept."""
    sets: dict[str, Any] = {"status": WAITING, "nb": not_before, "susp": 0, "expiration": expires}
    sets |= {"dfr": record.deferred + 1, "dfr_why": why[:100], "dfr_at": now}
    return _fenced(record, INPROGRESS, sets)


def continue_write(record: Record, *, not_before: int, expires: int) -> Write:
    """INPROGRESS → WAITING to go on from the checkpoint: nothing charged, one more hop counted."""
    sets = {"status": WAITING, "nb": not_before, "susp": 0, "cont": record.continued + 1, "expiration": expires}
    return _fenced(record, INPROGRESS, sets)


def checkpoint_write(record: Record, state: str, *, version: int, expires: int) -> Write:
    """Keep a job's progress while it runs; JSON text, with the version of the payload's shape that made it."""
    return _fenced(record, INPROGRESS, {"status": INPROGRESS, "ck": state, "ckv": version, "expiration": expires})


def progress_write(record: Record, done: int, total: int, *, expires: int) -> Write:
    """How far a run has come, for those who look."""
    return _fenced(record, INPROGRESS, {"status": INPROGRESS, "done": done, "total": total, "expiration": expires})


def renew_write(record: Record, *, lease: int) -> Write:
    """Extend the lease of a run that is alive. Refused with our own owner: somebody asked to cancel it."""
    condition = AllOf(Is("owner", "=", record.owner), Is("status", "=", INPROGRESS), Absent("cancel"))
    return Write(id=record.id, condition=condition, sets={"in_progress_expiration": lease}, wants_item=False)


def die_write(
    record: Record, reason: Reason, failure: Failure | None, *, now: int, expires: int, attempts: int | None = None
) -> Write:
    """INPROGRESS → DYING: from here the job never runs again under this message. `attempts` are those charged by now:
    one more than before, unless it dies without having run."""
    count = record.attempts + 1 if attempts is None else attempts
    sets: dict[str, Any] = {"status": DYING, "n": count, "why": reason, "susp": 0, "expiration": expires}
    if failure is not None:
        sets["hist"] = extended(record.history, entry(failure, now=now, count=count, version=record.version))
    return _fenced(record, INPROGRESS, sets)


def bury_write(record: Record, *, now: int, expires: int) -> Write:
    """DYING → DEAD, after the dead-letter queue accepted the message."""
    return _fenced(record, DYING, {"status": DEAD, "dead_at": now, "ended": now, "expiration": expires})


def landed(record: Record, write: Write, item: Item | None) -> bool:
    """A refused write that had been applied before: its answer was lost, the item already says it."""
    return item is not None and item.get("owner") == record.owner and item.get("status") == write.sets["status"]


def _fenced(record: Record, status: str, sets: Mapping[str, Any]) -> Write:
    condition = AllOf(Is("owner", "=", record.owner), Is("status", "=", status))
    return Write(id=record.id, condition=condition, sets=sets, wants_item=False)
