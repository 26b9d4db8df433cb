"""A halted FIFO group: behind a dead letter of a job with `on_dead="halt"`, nothing of its group runs.

The mark lies beside the execution records. It names the record that died, so that a redrive of that one is let
through, and lifts the mark when it succeeds.
"""

from __future__ import annotations

from loomjobs.core.write import Absent, AnyOf, Is, Item, Write


def halt_id(queue: str, group: str) -> str:
    return f"~halt#{queue}#{group}"


def halt_write(queue: str, group: str, *, by: str, now: int, expires: int) -> Write:
    """Halt the group behind the record `by`; the first death stands. Times in epoch milliseconds, `expires` seconds."""
    condition = AnyOf(Absent("id"), Is("by", "=", by), Is("lifted", "=", 1))
    sets = {"by": by, "at": now, "lifted": 0, "expiration": expires}
    return Write(id=halt_id(queue, group), condition=condition, sets=sets, wants_item=False)


def lift_write(queue: str, group: str, *, by: str | None = None) -> Write:
    """Let the group go on: after the record `by` has succeeded, or by an operator's decision (None)."""
    condition = Is("lifted", "=", 0) if by is None else Is("by", "=", by)
    return Write(id=halt_id(queue, group), condition=condition, sets={"lifted": 1}, wants_item=False)


def is_halted(mark: Item | None, *, record: str, now: int) -> bool:
    """`mark` is the stored item; `record` the one that wants to run; `now` epoch seconds."""
    if mark is None or mark.get("lifted") or mark.get("expiration", 0) <= now:
        return False
    return mark.get("by") != record
