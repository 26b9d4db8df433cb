"""Dead letters: DYING, the message in the dead-letter queue, DEAD, each step resumable by the next delivery."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loomjobs.core.decision import (
    DeadLetter,
    Failure,
    HandBack,
    Reason,
)
from loomjobs.core.delivery import Delivery
from loomjobs.core.halt import halt_write
from loomjobs.core.letter import make_letter
from loomjobs.core.record import Record
from loomjobs.core.work import Unworkable, Work
from loomjobs.runtime.ports import (
    Run,
)
from loomjobs.runtime.worker import Worker


def park(worker: Worker, run: Run, *, identity: str) -> Run:
    assert isinstance(run.decision, DeadLetter)
    at = worker.clock().isoformat(timespec="seconds")
    try:
        worker.letters.park(make_letter(run.delivery, run.decision, identity=identity, job=run.job, at=at, key=run.key))
    except Exception as error:  # noqa: BLE001 whatever it was, the message is still in its queue
        detail = f"{type(error).__name__}: {error}"
        return replace(run, decision=HandBack("dead-letter hand-off failed"), detail=detail)
    return run


def bury_odd(worker: Worker, work: Unworkable, run: Run) -> Run:
    """Dead-letter a message that is no work. On FIFO it halts its group where its job says so."""
    delivery = run.delivery
    job = worker.catalogue.find(work.job) if work.job else None
    if job is not None and job.options.on_dead == "halt":
        _halt(worker, delivery, by=f"{job.name}#message {work.id}")
    return park(worker, run, identity=work.id)


def bury_conflict(worker: Worker, work: Work, run: Run) -> Run:
    """Dead-letter a message whose key belongs to other work; that record is not touched."""
    if work.job.options.on_dead == "halt":
        _halt(worker, run.delivery, by=f"{work.record_id}#message {work.id}")
    return park(worker, run, identity=work.id)


def die(
    worker: Worker,
    work: Work,
    record: Record,
    run: Run,
    reason: Reason,
    failure: Failure | None,
    *,
    charge: bool = True,
) -> Run:
    attempts = record.attempts + charge
    worker.ledger.die(record, reason, failure, attempts=attempts)
    return hand_off(worker, work, replace(record, attempts=attempts, why=reason), run, failure)


def hand_off(worker: Worker, work: Work, record: Record, run: Run, failure: Failure | None) -> Run:
    """DYING → dead-letter queue → DEAD: after a crash in between, the next delivery resumes here."""
    reason: Any = record.why or "permanent"
    if work.job.options.on_dead == "halt":
        _halt(worker, run.delivery, by=record.id)
    dead = DeadLetter(reason, failure, attempts=record.attempts)
    parked = park(worker, replace(run, decision=dead, attempt=record.attempts), identity=work.id)
    if isinstance(parked.decision, DeadLetter):
        worker.ledger.bury(record)
    return parked


def last_failure(record: Record) -> Failure | None:
    if not record.history:
        return None
    last = record.history[-1]
    return Failure(last.get("kind", ""), last.get("message", ""), last.get("fingerprint", ""))


def _halt(worker: Worker, delivery: Delivery, *, by: str) -> None:
    if delivery.kind == "fifo" and delivery.group is not None:
        now, expires = worker.ledger.now(), worker.ledger.expires()
        worker.ledger.write(halt_write(delivery.queue, delivery.group, by=by, now=now, expires=expires))
