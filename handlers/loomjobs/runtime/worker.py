"""What a worker process holds, and its steps on one delivery: claim, stand back, sort the ending, dead-letter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from loomjobs.core import defaults
from loomjobs.core.breaker import blamed
from loomjobs.core.budget import Budget, Spent, Stay, Waiting, spend
from loomjobs.core.cancel import abandon_write
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.claim import Buried, Claim, Conflict, Ended, Lapsed, Resume, Wait
from loomjobs.core.classify import classify
from loomjobs.core.commit import Transactor
from loomjobs.core.decision import (
    Acknowledge,
    DeadLetter,
    DeferFor,
    Failure,
    HandBack,
    Reason,
    Renewed,
    RetryIn,
)
from loomjobs.core.errors import LostClaim
from loomjobs.core.expiry import Bury, Expire, expire_write, judge_late, verdict_on_retry
from loomjobs.core.failure import failure_of
from loomjobs.core.halt import halt_id, halt_write, is_halted, lift_write
from loomjobs.core.letter import make_letter
from loomjobs.core.record import DYING, EXPIRED, Record
from loomjobs.core.redact import redact
from loomjobs.core.result import encode_result
from loomjobs.core.signals import Continue, Defer, Signal
from loomjobs.core.unrun import cause
from loomjobs.core.work import Work
from loomjobs.core.write import Write
from loomjobs.runtime.admission import Result, services_of
from loomjobs.runtime.brakes import Brakes
from loomjobs.runtime.context import RunContext
from loomjobs.runtime.effects import Effects
from loomjobs.runtime.lanes import Lanes
from loomjobs.runtime.ledger import Closing, Held, Ledger, Refused, millis
from loomjobs.runtime.outage import Outage
from loomjobs.runtime.ports import (
    Addresses,
    Clock,
    DeadLetterQueue,
    Journal,
    Messages,
    Pulse,
    Renewals,
    Roll,
    Run,
    Token,
    Valve,
)
from loomjobs.runtime.producer import Producer
from loomjobs.runtime.runner import Ending, NeverRan, Raised, Returned

_ROUNDS = 4
"""Looks at a record that changes between look and write."""


@dataclass(frozen=True, slots=True)
class Open:
    """An ending that is decided and not yet durable."""

    closing: Closing
    run: Run
    waiting: Waiting | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """`pace` scales retry waits, `release` names its version in records, `pause` sleeps so many seconds, and `quit`
    ends the process at once."""

    catalogue: Catalogue
    ledger: Ledger
    letters: DeadLetterQueue
    messages: Messages
    renewals: Renewals
    producer: Producer
    transactor: Transactor
    addresses: Addresses
    journal: Journal
    lanes: Lanes
    budget: Budget
    clock: Clock
    token: Token
    roll: Roll
    pause: Callable[[float], None]
    quit: Callable[[], None]
    pulse: Pulse
    brakes: Brakes
    valve: Valve | None = None
    pace: float = 1.0
    release: str = ""
    outage: Outage = field(default_factory=Outage)

    def claim(self, work: Work, *, until: datetime, wave: int) -> Claim:
        delivery, heartbeat = work.delivery, work.job.options.heartbeat
        if heartbeat is not None:
            until = min(until, self.clock() + heartbeat)
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
            receives=delivery.receives,
            wave=wave,
        )

    def context(self, work: Work, record: Record, *, until: datetime) -> RunContext:
        return RunContext(
            work=work,
            attempt=record.attempts + 1,
            until=until,
            clock=self.clock,
            addresses=self.addresses,
            producer=self.producer,
            effects=Effects(work=work, record=record, ledger=self.ledger, transactor=self.transactor, clock=self.clock),
        )

    def stand_back(self, work: Work, refused: Refused, run: Run) -> Run:
        """The record is not ours to run: what the delivery is then."""
        record = refused.record
        match refused.verdict:
            case Wait(free_at, why):
                wait = max(0.0, (free_at - millis(self.clock())) / 1000) + self.roll()
                return self.defer(work, run, wait, why)
            case Conflict():
                text = f"key {work.key!r} has run with another payload; give different work another key"
                dead = DeadLetter("key-conflict", Failure("KeyConflict", text, "key-conflict"))
                return self.park(replace(run, decision=dead), identity=work.id)
            case Resume() if record is not None:
                return self._hand_off(work, record, run, _last_failure(record))
            case Buried() if record is not None:
                return replace(run, decision=Acknowledge("dead-before", _iso(record.dead_at)))
            case Ended() if record is not None:
                return replace(run, decision=Acknowledge(cause(record), _iso(record.ended)))
            case _:
                return self.defer(work, run, 1.0 + self.roll(), "contended")

    def defer(self, work: Work, run: Run, seconds: float, why: str) -> Run:
        """Not now, and nothing is claimed: wait as the message's budget allows, or give up on it."""
        waiting = self._spend(seconds, run)
        if isinstance(waiting, Spent):
            claimed = self.ledger.claim(self.claim(work, until=self.clock(), wave=1))
            if isinstance(claimed, Held):
                return self._die(work, claimed.record, run, waiting.reason, _last_failure(claimed.record), charge=False)
            waiting = Stay(seconds)  # somebody has it: that run will end it
        return self.wait(replace(run, decision=DeferFor(seconds, why)), waiting)

    def expire(self, work: Work, run: Run) -> Run:
        """Its deadline is over: end it without a run, or as a dead letter where it failed before."""
        claim = self.claim(work, until=self.clock(), wave=1)
        write = expire_write(claim)
        old: Record | None = None
        for _ in range(_ROUNDS):
            written = self.ledger.store.write(write)
            if written.applied:
                return self._expired(work, run, claim, write, old)
            if written.item is None:
                write = expire_write(claim)
                continue
            old = Record.of(written.item)
            match judge_late(old, claim):
                case Expire(again) | Bury(again):
                    write = again
                case Lapsed():
                    return self.abandon(work, run, old)
                case verdict:
                    return self.stand_back(work, Refused(verdict, old), run)
        return self.defer(work, run, 1.0 + self.roll(), "contended")

    def abandon(self, work: Work, run: Run, old: Record) -> Run:
        """Its worker crashed after somebody asked to cancel it: nobody takes over."""
        if self.ledger.write(abandon_write(old, now=self.ledger.now(), expires=self.ledger.expires())):
            return replace(run, decision=Acknowledge("cancelled"))
        return self.defer(work, run, 1.0 + self.roll(), "contended")

    def cancel(self, opened: Open) -> Run:
        """A run that would wait was asked to stop: it ends here."""
        decision = opened.run.decision
        failure = decision.failure if isinstance(decision, RetryIn) else None
        self.ledger.end(self.ledger.cancelling(opened.closing.record, failure))
        return replace(opened.run, decision=Acknowledge("cancelled"))

    def take_slot(self, work: Work, run: Run, *, at: int, why: str) -> Run:
        """Wait for a slot of a rate that is reserved from now on: the record keeps it for the delivery that uses it."""
        refused = self.ledger.slot(self.claim(work, until=self.clock(), wave=1), at=at)
        if refused is not None:
            return self.stand_back(work, refused, run)
        return self.defer(work, run, max(0.0, (at - self.ledger.now()) / 1000), why)

    def wait(self, run: Run, waiting: Waiting) -> Run:
        """Carry out a wait that the budget allows."""
        assert isinstance(run.decision, (RetryIn, DeferFor))
        assert not isinstance(waiting, Spent)
        if isinstance(waiting, Stay):
            return replace(run, decision=replace(run.decision, delay=waiting.seconds))
        why = run.decision.why if isinstance(run.decision, DeferFor) else "retry"
        try:
            self.renewals.renew(run.delivery, waiting.seconds)
        except Exception as error:  # noqa: BLE001 whatever it was, the message is still in its queue
            stays = replace(run.decision, delay=waiting.seconds)
            return replace(run, decision=stays, detail=f"not renewed: {type(error).__name__}: {error}")
        return replace(run, decision=Renewed(waiting.seconds, why))

    def sort(self, work: Work, effects: Effects, run: Run, ending: Ending, *, probe: str | None = None) -> Run | Open:
        """What an ending means. A dead letter is handed off here; anything else is still to be made durable.

        `probe` names the service that the run tried out and that failed it.
        """
        record = effects.record
        if effects.lost:
            raise LostClaim(f"{record.id}: its claim could not be kept while it ran")
        if effects.committed:
            raised = ending.error if isinstance(ending, Raised) else None
            detail = f"raised after its commit, which changes nothing: {raised!r}" if raised else ""
            return replace(run, decision=Acknowledge("succeeded"), detail=detail)
        if effects.cancelled and isinstance(ending, Raised):
            failure = None if isinstance(ending.error, Signal) else self._failure(work, ending.error)
            return Open(self.ledger.cancelling(record, failure), replace(run, decision=Acknowledge("cancelled")))
        match ending:
            case Returned(value):
                result, detail = encode_result(value, work.job)
                done = replace(run, decision=Acknowledge("succeeded"), detail=detail)
                return Open(self.ledger.completing(record, result=result), done)
            case NeverRan(kind):
                text = f"it returned {kind}, so nothing of it ran. Declare it `async def`, or return its result."
                return self._die(work, record, run, "returned-awaitable", Failure("NeverRan", text, "never-ran"))
            case Raised(Defer() as signal):
                return self._put_off(work, record, run, signal.seconds(self.clock()), signal.why)
            case Raised(Continue()):
                return self._go_on(work, record, run)
            case Raised(error):
                return self._failed(work, record, run, error, probe)

    def blame(self, work: Work, ending: Ending) -> tuple[Result, str | None]:
        """What the brakes are told of an ending, and which service failed."""
        match ending:
            case Returned():
                return "succeeded", None
            case Raised(Signal()):
                return "deferred", None
            case Raised(error):
                sorting = classify(error, work.job.options.retry, now=self.clock())
                service = blamed(error, sorting, [each.name for each in services_of(work)])
                return ("failed" if service is None else "failed-by-service"), service
            case _:
                return "failed", None

    def park(self, run: Run, *, identity: str) -> Run:
        assert isinstance(run.decision, DeadLetter)
        at = self.clock().isoformat(timespec="seconds")
        try:
            self.letters.park(
                make_letter(run.delivery, run.decision, identity=identity, job=run.job, at=at, key=run.key)
            )
        except Exception as error:  # noqa: BLE001 whatever it was, the message is still in its queue
            detail = f"{type(error).__name__}: {error}"
            return replace(run, decision=HandBack("dead-letter hand-off failed"), detail=detail)
        return run

    def is_halted(self, work: Work) -> bool:
        """Another job of its FIFO group is dead, and says that the group waits for an operator."""
        group = work.delivery.group
        if group is None or not any(job.options.on_dead == "halt" for job in self.catalogue.on(work.job.queue.name)):
            return False
        mark = self.ledger.store.read(halt_id(work.delivery.queue, group))
        return is_halted(mark, record=work.record_id, now=self.ledger.now() // 1000)

    def lift(self, work: Work, record: Record) -> None:
        """A job that had died and has now succeeded lets its group go on."""
        if work.job.options.on_dead == "halt" and work.delivery.group is not None and record.epoch > 1:
            self.ledger.write(lift_write(work.delivery.queue, work.delivery.group, by=record.id))

    def tell_of_brakes(self, job: str) -> None:
        """What the brakes noticed since the last time, to the journal."""
        while self.brakes.troubles:
            self.journal.trouble(self.brakes.troubles.popleft())
        while self.brakes.changes:
            service, state = self.brakes.changes.popleft()
            self.journal.trouble(f"the circuit breaker of {service} is {state}")
            self.journal.counted(f"Breaker{state.title().replace('_', '')}", job)

    def between(self, bounds: tuple[int, int]) -> float:
        return bounds[0] + (bounds[1] - bounds[0]) * self.roll()

    def _failed(self, work: Work, record: Record, run: Run, error: BaseException, probe: str | None) -> Run | Open:
        retry, failure = work.job.options.retry, self._failure(work, error)
        sorting = classify(error, retry, now=self.clock())
        if sorting.kind == "permanent":
            return self._die(work, record, run, "permanent", failure)
        if probe is not None:
            # the outage would have met any job: it must not use up this one's attempts
            wait = retry.delay(1, self.roll(), least=sorting.after)
            told = replace(run, detail=f"{failure.kind}: {failure.message}")
            return self._put_off(work, record, told, wait, f"its run tried out {probe}, which still fails")
        if run.attempt >= retry.attempts:
            return self._die(work, record, run, "exhausted", failure)
        wait = retry.delay(run.attempt, self.roll(), least=sorting.after, pace=self.pace)
        waiting = self._spend(wait, run)
        if isinstance(waiting, Spent):
            return self._die(work, record, run, waiting.reason, failure)
        if verdict_on_retry(work.expires, self.clock(), waiting.seconds) == "bury":
            return self._die(work, record, run, "deadline", failure)
        closing = self.ledger.failing(record, failure, not_before=self._after(waiting.seconds))
        retry_in = replace(run, decision=RetryIn(waiting.seconds, failure, run.attempt), detail=sorting.kind)
        return Open(closing, retry_in, waiting)

    def _put_off(self, work: Work, record: Record, run: Run, seconds: float, why: str) -> Run | Open:
        waiting = self._spend(seconds, run)
        if isinstance(waiting, Spent):
            return self._die(work, record, run, waiting.reason, _last_failure(record), charge=False)
        closing = self.ledger.deferring(record, not_before=self._after(waiting.seconds), why=why)
        return Open(closing, replace(run, decision=DeferFor(waiting.seconds, why)), waiting)

    def _go_on(self, work: Work, record: Record, run: Run) -> Run | Open:
        waiting = self._spend(0.0, run)
        if isinstance(waiting, Spent):
            return self._die(work, record, run, waiting.reason, _last_failure(record), charge=False)
        closing = self.ledger.continuing(record, not_before=self._after(waiting.seconds))
        goes_on = DeferFor(waiting.seconds, "continues from its checkpoint")
        return Open(closing, replace(run, decision=goes_on), waiting)

    def _expired(self, work: Work, run: Run, claim: Claim, write: Write, old: Record | None) -> Run:
        if write.sets["status"] == EXPIRED or old is None:
            return replace(run, decision=Acknowledge("expired"))
        attempts = int(write.sets.get("n", old.attempts))
        dying = replace(old, owner=claim.owner, status=DYING, attempts=attempts, why="deadline")
        return self._hand_off(work, dying, run, _last_failure(old))

    def _failure(self, work: Work, error: BaseException) -> Failure:
        """What is kept of an error, without what may not be shown."""
        failure = failure_of(error)
        payload = work.envelope.payload
        return replace(
            failure,
            message=redact(failure.message, payload, key=work.key),
            stack=redact(failure.stack, payload, key=work.key),
        )

    def _die(
        self, work: Work, record: Record, run: Run, reason: Reason, failure: Failure | None, *, charge: bool = True
    ) -> Run:
        attempts = record.attempts + charge
        self.ledger.die(record, reason, failure, attempts=attempts)
        return self._hand_off(work, replace(record, attempts=attempts, why=reason), run, failure)

    def _hand_off(self, work: Work, record: Record, run: Run, failure: Failure | None) -> Run:
        """DYING → dead-letter queue → DEAD: after a crash in between, the next delivery resumes here."""
        reason: Any = record.why or "permanent"
        if work.job.options.on_dead == "halt" and run.delivery.group is not None:
            self.ledger.write(
                halt_write(
                    run.delivery.queue,
                    run.delivery.group,
                    by=record.id,
                    now=self.ledger.now(),
                    expires=self.ledger.expires(),
                )
            )
        dead = DeadLetter(reason, failure, attempts=record.attempts)
        parked = self.park(replace(run, decision=dead, attempt=record.attempts), identity=work.id)
        if isinstance(parked.decision, DeadLetter):
            self.ledger.bury(record)
        return parked

    def _spend(self, seconds: float, run: Run) -> Waiting:
        return spend(seconds, run.delivery, self.budget, now=self.clock())

    def _after(self, seconds: float) -> int:
        return millis(self.clock() + timedelta(seconds=seconds))


def _last_failure(record: Record) -> Failure | None:
    if not record.history:
        return None
    last = record.history[-1]
    return Failure(last.get("kind", ""), last.get("message", ""), last.get("fingerprint", ""))


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
