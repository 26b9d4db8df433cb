"""The ending of a run, sorted: what it means for the record, the message and the brakes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from loomjobs.core import defaults
from loomjobs.core.breaker import blamed
from loomjobs.core.budget import Spent, Waiting
from loomjobs.core.classify import classify
from loomjobs.core.decision import (
    Acknowledge,
    DeferFor,
    Failure,
    Reason,
    RetryIn,
)
from loomjobs.core.errors import (
    BadPayload,
    CipherUnavailable,
    LostClaim,
    PayloadMissing,
    PayloadTampered,
    PayloadUnavailable,
)
from loomjobs.core.expiry import verdict_on_retry
from loomjobs.core.failure import failure_of, redacted
from loomjobs.core.record import Record
from loomjobs.core.redact import redact, scrub
from loomjobs.core.result import encode_result
from loomjobs.core.signals import Continue, Defer, Signal
from loomjobs.core.work import Work
from loomjobs.runtime import burial
from loomjobs.runtime.admission import Result, services_of
from loomjobs.runtime.effects import Effects
from loomjobs.runtime.ledger import Closing
from loomjobs.runtime.ports import (
    Run,
)
from loomjobs.runtime.runner import Ending, NeverRan, Raised, Returned, Unread
from loomjobs.runtime.worker import Worker


@dataclass(frozen=True, slots=True)
class Open:
    """An ending that is decided and not yet durable."""

    closing: Closing
    run: Run
    waiting: Waiting | None = None


def cancel(worker: Worker, opened: Open) -> Run:
    """A run that would wait was asked to stop: it ends here."""
    decision = opened.run.decision
    failure = decision.failure if isinstance(decision, RetryIn) else None
    worker.ledger.end(worker.ledger.cancelling(opened.closing.record, failure))
    return replace(opened.run, decision=Acknowledge("cancelled"))


def sort(
    worker: Worker, work: Work, effects: Effects, run: Run, ending: Ending, *, probe: str | None = None
) -> Run | Open:
    """What an ending means. A dead letter is handed off here; anything else is still to be made durable.

    `probe` names the service that the run tried out and that failed it.
    """
    record = effects.record
    if effects.lost:
        raise LostClaim(f"{record.id}: its claim could not be kept while it ran")
    if effects.committed:
        raised = ending.error if isinstance(ending, Raised) else None
        detail = f"raised after its commit, which changes nothing: {_told(work, repr(raised))}" if raised else ""
        return replace(run, decision=Acknowledge("succeeded"), detail=detail)
    if effects.cancelled and isinstance(ending, Raised):
        failure = None if isinstance(ending.error, Signal) else _failure(work, ending.error)
        run = replace(run, failure=failure)
        return Open(worker.ledger.cancelling(record, failure), replace(run, decision=Acknowledge("cancelled")))
    match ending:
        case Returned(value):
            result, detail = encode_result(value, work.job)
            done = replace(run, decision=Acknowledge("succeeded"), detail=_told(work, detail))
            return Open(worker.ledger.completing(record, result=result), done)
        case NeverRan(kind):
            text = f"it returned {kind}, so nothing of it ran. Declare it `async def`, or return its result."
            return burial.die(worker, work, record, run, "returned-awaitable", Failure("NeverRan", text, "never-ran"))
        case Unread(error):
            return _unread(worker, work, record, run, error)
        case Raised(Defer() as signal):
            return _put_off(worker, work, record, run, signal.seconds(worker.clock()), _told(work, signal.why))
        case Raised(Continue()):
            return _go_on(worker, work, record, run)
        case Raised(error):
            return _failed(worker, work, record, run, error, probe)


def blame(worker: Worker, work: Work, ending: Ending) -> tuple[Result, str | None]:
    """What the brakes are told of an ending, and which service failed."""
    match ending:
        case Returned():
            return "succeeded", None
        case Raised(Signal()) | Unread():
            return "deferred", None
        case Raised(error):
            sorting = classify(error, work.job.options.retry, now=worker.clock())
            if sorting.kind == "waiting":
                return "deferred", None
            service = blamed(error, sorting, [each.name for each in services_of(work)])
            return ("failed" if service is None else "failed-by-service"), service
        case _:
            return "failed", None


def _unread(worker: Worker, work: Work, record: Record, run: Run, error: Exception) -> Run | Open:
    """Nothing of the job ran: no attempt is charged where its payload is lost, or S3 is. A right that is missing uses
    up attempts, since that does not mend itself."""
    if isinstance(error, (PayloadUnavailable, CipherUnavailable)):
        return _put_off(worker, work, record, run, worker.between(defaults.HAND_BACK), f"payload not read: {error}")
    reason: Reason | None = next((each for kind, each in _UNREADABLE.items() if isinstance(error, kind)), None)
    if reason is None:
        return _failed(worker, work, record, run, error, None)
    failure = _failure(work, error)
    return burial.die(worker, work, record, replace(run, failure=failure), reason, failure, charge=False)


_UNREADABLE: Mapping[type[Exception], Reason] = {
    PayloadMissing: "payload-missing",
    PayloadTampered: "payload-tampered",
    BadPayload: "bad-payload",
}


def _failed(
    worker: Worker, work: Work, record: Record, run: Run, error: BaseException, probe: str | None
) -> Run | Open:
    retry, failure = work.job.options.retry, _failure(work, error)
    sorting = classify(error, retry, now=worker.clock())
    run = replace(run, failure=failure, sorting=sorting.kind)
    if sorting.kind == "permanent":
        return burial.die(worker, work, record, run, "permanent", failure)
    if sorting.kind == "waiting":
        # somebody else's backlog is not this job's failure, and must not make a dead letter of it
        return _put_off(worker, work, record, replace(run, failure=None, sorting=None), sorting.after, str(error))
    if probe is not None:
        # the outage would have met any job: it must not use up this one's attempts
        wait = retry.delay(1, worker.roll(), least=sorting.after)
        return _put_off(worker, work, record, run, wait, f"its run tried out {probe}, which still fails")
    if run.attempt >= retry.attempts:
        return burial.die(worker, work, record, run, "exhausted", failure)
    wait = retry.delay(run.attempt, worker.roll(), least=sorting.after, pace=worker.pace)
    waiting = worker.spend(wait, run)
    if isinstance(waiting, Spent):
        return burial.die(worker, work, record, run, waiting.reason, failure)
    if verdict_on_retry(work.expires, worker.clock(), waiting.seconds) == "bury":
        return burial.die(worker, work, record, run, "deadline", failure)
    closing = worker.ledger.failing(record, failure, not_before=worker.after(waiting.seconds))
    retry_in = replace(run, decision=RetryIn(waiting.seconds, failure, run.attempt))
    return Open(closing, retry_in, waiting)


def _put_off(worker: Worker, work: Work, record: Record, run: Run, seconds: float, why: str) -> Run | Open:
    waiting = worker.spend(seconds, run)
    if isinstance(waiting, Spent):
        return burial.die(worker, work, record, run, waiting.reason, burial.last_failure(record), charge=False)
    closing = worker.ledger.deferring(record, not_before=worker.after(waiting.seconds), why=why)
    return Open(closing, replace(run, decision=DeferFor(waiting.seconds, why)), waiting)


def _go_on(worker: Worker, work: Work, record: Record, run: Run) -> Run | Open:
    waiting = worker.spend(0.0, run)
    if isinstance(waiting, Spent):
        return burial.die(worker, work, record, run, waiting.reason, burial.last_failure(record), charge=False)
    closing = worker.ledger.continuing(record, not_before=worker.after(waiting.seconds))
    goes_on = DeferFor(waiting.seconds, "continues from its checkpoint")
    return Open(closing, replace(run, decision=goes_on), waiting)


def _failure(work: Work, error: BaseException) -> Failure:
    """What is kept of an error, without what may not be shown."""
    return redacted(failure_of(error, secrets=work.secrets), work.envelope.payload, key=work.key)


def _told(work: Work, text: str) -> str:
    """What a text that an author's code had a hand in may tell."""
    if not text:
        return text
    return redact(scrub(text, work.secrets), work.envelope.payload, key=work.key)
