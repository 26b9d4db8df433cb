"""One delivery through its steps: understand → claim → run → sort → record. The result is a decision, a value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from loomjobs.core import defaults
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.claim import Buried, Claim, Conflict, Ended, Resume, Wait
from loomjobs.core.classify import classify
from loomjobs.core.decision import (
    Acknowledge,
    DeadLetter,
    Decision,
    DeferFor,
    Failure,
    HandBack,
    Reason,
    RetryIn,
)
from loomjobs.core.delivery import Delivery
from loomjobs.core.errors import LostClaim, StoreUnavailable
from loomjobs.core.failure import failure_of
from loomjobs.core.letter import make_letter
from loomjobs.core.record import Record
from loomjobs.core.result import encode_result
from loomjobs.core.signals import Defer
from loomjobs.core.work import Unworkable, Work, understand
from loomjobs.runtime.context import RunContext, running
from loomjobs.runtime.ledger import Held, Ledger, Refused, millis
from loomjobs.runtime.ports import Addresses, Clock, DeadLetterQueue, Journal, Roll, Run, Token
from loomjobs.runtime.producer import Producer
from loomjobs.runtime.runner import Ending, NeverRan, Raised, Returned, Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """What a worker process holds. `pace` scales retry waits, `release` names its version in records."""

    catalogue: Catalogue
    ledger: Ledger
    letters: DeadLetterQueue
    producer: Producer
    addresses: Addresses
    journal: Journal
    runner: Runner
    clock: Clock
    token: Token
    roll: Roll
    pace: float = 1.0
    release: str = ""

    def process(self, delivery: Delivery, *, until: datetime) -> Decision:
        """Decide on one delivery; `until` is when this process will be stopped. It does not raise, except for what
        ends the process itself."""
        work = understand(delivery, self.catalogue)
        if isinstance(work, Unworkable):
            return self._refuse(delivery, work)
        run = Run(
            delivery=delivery,
            decision=HandBack("not decided"),
            job=work.job.name,
            id=work.id,
            key=work.key,
            trace=work.envelope.trace,
            payload_hash=work.payload_hash,
            latency=max(0.0, (self.clock() - (work.envelope.enqueued_at or delivery.sent_at)).total_seconds()),
        )
        try:
            run = self._claimed(work, run, until)
        except LostClaim as error:
            run = replace(run, decision=HandBack("lost the claim"), detail=str(error))
        except StoreUnavailable as error:
            # nothing runs without a claim; the message comes back when the store may have recovered
            run = replace(
                run,
                decision=DeferFor(self._between(defaults.HAND_BACK), "store-unavailable"),
                detail=str(error),
            )
        self.journal.ended(run)
        return run.decision

    def _refuse(self, delivery: Delivery, work: Unworkable) -> Decision:
        run = Run(delivery=delivery, decision=work.decision, job=work.job, id=work.id)
        if isinstance(work.decision, DeadLetter):
            run = self._park(run, identity=work.id)
        self.journal.ended(run)
        return run.decision

    def _claimed(self, work: Work, run: Run, until: datetime) -> Run:
        claimed = self.ledger.claim(self._claim(work, until), attempts=work.job.options.retry.attempts)
        if isinstance(claimed, Held):
            return self._run(work, claimed.record, run, until)
        return self._stand_back(work, claimed, run)

    def _claim(self, work: Work, until: datetime) -> Claim:
        delivery = work.delivery
        return Claim(
            id=work.record_id,
            owner=self.token(),
            now=millis(self.clock()),
            lease=millis(until) + defaults.LEASE_MARGIN * 1000,
            payload_hash=work.payload_hash,
            message=delivery.message_id,
            sent=millis(delivery.sent_at),
            expires=self.ledger.expires(),
            version=self.release,
            redrives=work.envelope.redrives,
        )

    def _stand_back(self, work: Work, refused: Refused, run: Run) -> Run:
        """The record is not ours to run: what the delivery is then."""
        record = refused.record
        match refused.verdict:
            case Wait(free_at, why):
                wait = max(0.0, (free_at - millis(self.clock())) / 1000)
                return replace(run, decision=DeferFor(wait + self.roll(), why))
            case Conflict():
                text = f"key {work.key!r} has run with another payload; give different work another key"
                dead = DeadLetter("key-conflict", Failure("KeyConflict", text, "key-conflict"))
                return self._park(replace(run, decision=dead), identity=work.id)
            case Resume() if record is not None:
                return self._hand_off(work, record, run, _last_failure(record))
            case Buried() if record is not None:
                return replace(run, decision=Acknowledge("dead-before", _iso(record.dead_at)))
            case Ended() if record is not None:
                ended = Acknowledge("cancelled" if record.cancelled else "duplicate", _iso(record.ended))
                return replace(run, decision=ended)
            case _:
                return replace(run, decision=DeferFor(1.0 + self.roll(), "contended"))

    def _run(self, work: Work, record: Record, run: Run, until: datetime) -> Run:
        run = replace(run, attempt=record.attempts + 1)
        self.journal.started(run)
        started = self.clock()
        ending = self._call(work, run.attempt, min(until, started + work.job.timeout), started)
        run = replace(run, duration=(self.clock() - started).total_seconds())
        try:
            return self._record(work, record, run, ending)
        except StoreUnavailable as error:
            # the effect may be done and is not recorded: not acknowledged, visibility untouched, run again later
            return replace(run, decision=HandBack("effect uncertain"), detail=str(error))

    def _call(self, work: Work, attempt: int, until: datetime, started: datetime) -> Ending:
        context = RunContext(
            work=work,
            attempt=attempt,
            until=until,
            clock=self.clock,
            addresses=self.addresses,
            producer=self.producer,
        )
        token = running.set(context)
        try:
            return self.runner.run(
                work.job, work.payload, context, seconds=max(0.001, (until - started).total_seconds())
            )
        finally:
            running.reset(token)

    def _record(self, work: Work, record: Record, run: Run, ending: Ending) -> Run:
        match ending:
            case Returned(value):
                result, detail = encode_result(value, work.job)
                self.ledger.complete(record, result=result)
                return replace(run, decision=Acknowledge("succeeded"), detail=detail)
            case NeverRan(kind):
                text = f"it returned {kind}, so nothing of it ran. Declare it `async def`, or return its result."
                return self._die(work, record, run, "returned-awaitable", Failure("NeverRan", text, "never-ran"))
            case Raised(Defer() as signal):
                wait = signal.seconds(self.clock())
                self.ledger.defer(record, not_before=self._after(wait))
                return replace(run, decision=DeferFor(wait, signal.why))
            case Raised(error):
                return self._failed(work, record, run, error)

    def _failed(self, work: Work, record: Record, run: Run, error: BaseException) -> Run:
        retry, failure = work.job.options.retry, failure_of(error)
        sorting = classify(error, retry, now=self.clock())
        if sorting.kind == "permanent":
            return self._die(work, record, run, "permanent", failure)
        if run.attempt >= retry.attempts:
            return self._die(work, record, run, "exhausted", failure)
        wait = retry.delay(run.attempt, self.roll(), least=sorting.after, pace=self.pace)
        self.ledger.fail(record, failure, not_before=self._after(wait))
        return replace(run, decision=RetryIn(wait, failure, run.attempt), detail=sorting.kind)

    def _die(self, work: Work, record: Record, run: Run, reason: Reason, failure: Failure) -> Run:
        self.ledger.die(record, reason, failure)
        dying = replace(record, attempts=run.attempt, why=reason)
        return self._hand_off(work, dying, run, failure)

    def _hand_off(self, work: Work, record: Record, run: Run, failure: Failure | None) -> Run:
        """DYING → dead-letter queue → DEAD: after a crash in between, the next delivery resumes here."""
        reason: Any = record.why or "permanent"
        dead = DeadLetter(reason, failure, attempts=record.attempts)
        parked = self._park(replace(run, decision=dead, attempt=record.attempts), identity=work.id)
        if isinstance(parked.decision, DeadLetter):
            self.ledger.bury(record)
        return parked

    def _park(self, run: Run, *, identity: str) -> Run:
        assert isinstance(run.decision, DeadLetter)
        at = self.clock().isoformat(timespec="seconds")
        try:
            self.letters.park(make_letter(run.delivery, run.decision, identity=identity, job=run.job, at=at))
        except Exception as error:  # noqa: BLE001 whatever it was, the message is still in its queue
            return replace(
                run,
                decision=HandBack("dead-letter hand-off failed"),
                detail=f"{type(error).__name__}: {error}",
            )
        return run

    def _after(self, seconds: float) -> int:
        return millis(self.clock() + timedelta(seconds=seconds))

    def _between(self, bounds: tuple[int, int]) -> float:
        return bounds[0] + (bounds[1] - bounds[0]) * self.roll()


def _last_failure(record: Record) -> Failure | None:
    if not record.history:
        return None
    last = record.history[-1]
    return Failure(last.get("kind", ""), last.get("message", ""), last.get("fingerprint", ""))


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
