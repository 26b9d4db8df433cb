"""A delivery that does not run now: what it is instead, and when its message comes back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

from loomjobs.core.budget import Spent, Stay, Waiting
from loomjobs.core.cancel import abandon_write
from loomjobs.core.claim import Buried, Claim, Conflict, Ended, Lapsed, Resume, Wait
from loomjobs.core.decision import (
    Acknowledge,
    DeadLetter,
    DeferFor,
    Failure,
    Renewed,
    RetryIn,
)
from loomjobs.core.expiry import Bury, Expire, expire_write, judge_late
from loomjobs.core.record import DYING, EXPIRED, Record
from loomjobs.core.unrun import cause
from loomjobs.core.work import Work
from loomjobs.core.write import Write
from loomjobs.runtime import burial
from loomjobs.runtime.ledger import Held, Refused, millis
from loomjobs.runtime.ports import (
    Run,
)
from loomjobs.runtime.worker import Worker

_RENEW_AGAIN = 3_600.0
"""Seconds after which a renewal that failed is tried again."""
_ROUNDS = 4
"""Looks at a record that changes between look and write."""


def stand_back(worker: Worker, work: Work, refused: Refused, run: Run) -> Run:
    """The record is not ours to run: what the delivery is then."""
    record = refused.record
    match refused.verdict:
        case Wait(free_at, why):
            wait = max(0.0, (free_at - millis(worker.clock())) / 1000) + worker.roll()
            return defer(worker, work, run, wait, why)
        case Conflict():
            text = f"key {work.key!r} has run with another payload; give different work another key"
            dead = DeadLetter("key-conflict", Failure("KeyConflict", text, "key-conflict"))
            return burial.bury_conflict(worker, work, replace(run, decision=dead))
        case Resume() if record is not None:
            return burial.hand_off(worker, work, record, run, burial.last_failure(record))
        case Buried() if record is not None:
            return replace(run, decision=Acknowledge("dead-before", _iso(record.dead_at)))
        case Ended() if record is not None:
            return replace(run, decision=Acknowledge(cause(record), _iso(record.ended)))
        case _:
            return defer(worker, work, run, 1.0 + worker.roll(), "contended")


def defer(worker: Worker, work: Work, run: Run, seconds: float, why: str) -> Run:
    """Not now, and nothing is claimed: wait as the message's budget allows, or give up on it."""
    return wait(worker, work, replace(run, decision=DeferFor(seconds, why)), worker.spend(seconds, run))


def without_store(worker: Worker, work: Work, run: Run, seconds: float) -> Run:
    """The store does not answer: wait within the budget, and at its end go to the dead-letter queue without a record,
    before SQS itself takes a message that never ran."""
    waiting = worker.spend(seconds, run)
    run = replace(run, decision=DeferFor(seconds, "store-unavailable"))
    if isinstance(waiting, Spent):
        return burial.park(worker, replace(run, decision=DeadLetter(waiting.reason)), identity=work.id)
    return wait(worker, work, run, waiting)


def expire(worker: Worker, work: Work, run: Run) -> Run:
    """Its deadline is over: end it without a run, or as a dead letter where it failed before."""
    claim = worker.claim(work, until=worker.clock(), wave=1)
    write = expire_write(claim)
    old: Record | None = None
    for _ in range(_ROUNDS):
        written = worker.ledger.store.write(write)
        if written.applied:
            return _expired(worker, work, run, claim, write, old)
        if written.item is None:
            write = expire_write(claim)
            continue
        old = Record.of(written.item)
        match judge_late(old, claim):
            case Expire(again) | Bury(again):
                write = again
            case Lapsed():
                return abandon(worker, work, run, old)
            case verdict:
                return stand_back(worker, work, Refused(verdict, old), run)
    return defer(worker, work, run, 1.0 + worker.roll(), "contended")


def abandon(worker: Worker, work: Work, run: Run, old: Record) -> Run:
    """Its worker crashed after somebody asked to cancel it: nobody takes over."""
    if worker.ledger.write(abandon_write(old, now=worker.ledger.now(), expires=worker.ledger.expires())):
        return replace(run, decision=Acknowledge("cancelled"))
    return defer(worker, work, run, 1.0 + worker.roll(), "contended")


def take_slot(worker: Worker, work: Work, run: Run, *, at: int, why: str) -> Run:
    """Wait for a slot of a rate that is reserved from now on: the record keeps it for the delivery that uses it."""
    refused = worker.ledger.slot(worker.claim(work, until=worker.clock(), wave=1), at=at)
    if refused is not None:
        return stand_back(worker, work, refused, run)
    return defer(worker, work, run, max(0.0, (at - worker.ledger.now()) / 1000), why)


def wait(worker: Worker, work: Work, run: Run, waiting: Waiting) -> Run:
    """Carry out a wait, as the message's budget has it."""
    decision = run.decision
    assert isinstance(decision, (RetryIn, DeferFor))
    if isinstance(waiting, Spent):
        return _give_up(worker, work, run, waiting.reason)
    if isinstance(waiting, Stay):
        return replace(run, decision=replace(decision, delay=waiting.seconds))
    why = decision.why if isinstance(decision, DeferFor) else "retry"
    try:
        worker.renewals.renew(run.delivery, waiting.seconds)
    except Exception as error:  # noqa: BLE001 whatever it was, the message is still in its queue
        run = replace(run, detail=f"not renewed: {type(error).__name__}: {error}")
        if run.delivery.receives >= worker.budget.receives:
            return _give_up(worker, work, run, "receive-budget")  # the next receive would be SQS's own dead letter
        return replace(run, decision=replace(decision, delay=min(waiting.seconds, _RENEW_AGAIN)))
    return replace(run, decision=Renewed(waiting.seconds, why))


def _give_up(worker: Worker, work: Work, run: Run, reason: Literal["receive-budget", "retention"]) -> Run:
    """It may wait no more. Where another run has the record, that run will end it."""
    claimed = worker.ledger.claim(worker.claim(work, until=worker.clock(), wave=1), early=True)
    if isinstance(claimed, Held):
        last = run.failure or burial.last_failure(claimed.record)
        return burial.die(worker, work, claimed.record, run, reason, last, charge=False)
    return run


def _expired(worker: Worker, work: Work, run: Run, claim: Claim, write: Write, old: Record | None) -> Run:
    if write.sets["status"] == EXPIRED or old is None:
        return replace(run, decision=Acknowledge("expired"))
    attempts = int(write.sets.get("n", old.attempts))
    dying = replace(old, owner=claim.owner, status=DYING, attempts=attempts, why="deadline")
    return burial.hand_off(worker, work, dying, run, burial.last_failure(old))


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
