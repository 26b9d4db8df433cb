"""The deliveries of one invocation: who may start, what runs side by side, and when each ending is durable.

A wave of jobs is claimed in one call, which also carries the endings of those before: a lane takes its next job only
when its own last ending is durable. Jobs whose worker crashed before are suspects: they wait until everything else has
ended and is acknowledged, and then run one at a time, so that another crash takes nothing with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from loomjobs.core import defaults
from loomjobs.core.claim import Claim, Lapsed, Replace, Wait, judge
from loomjobs.core.decision import DeadLetter, Decision, DeferFor, HandBack, is_gone
from loomjobs.core.delivery import Delivery
from loomjobs.core.errors import LostClaim, StoreUnavailable
from loomjobs.core.expiry import verdict_on_deadline
from loomjobs.core.record import Record
from loomjobs.core.visibility import visibility_timeout, wait_of
from loomjobs.core.work import Unworkable, Work, understand
from loomjobs.runtime.admission import Admission, Admitted, Hold, Result, Slotted, Waits, Wanted
from loomjobs.runtime.context import RunContext
from loomjobs.runtime.heart import BEATS, Heart
from loomjobs.runtime.lanes import Start
from loomjobs.runtime.ledger import Claimed, Held, Refused
from loomjobs.runtime.ports import Answer, Run
from loomjobs.runtime.runner import Ending
from loomjobs.runtime.worker import Open, Worker

PASSED_OVER = 2
"""A suspect that found no time so often goes first."""
VALVE_LEAST = 60
"""Seconds of an open circuit from which on a queue's delivery is stopped; EventBridge Scheduler keeps to a minute."""
_TRIES = 4
"""Calls that make an ending durable, while there is time: its effect is done, so it is worth some."""
_PAUSE = 0.2
_LINGER = 0.003
_LAST_LINGER = 0.05
"""Seconds that an ending waits for others of its wave, to be recorded in one call: less than that call takes."""
_RETURN_MARGIN = 5
"""Seconds after the end of an invocation at which the messages of a killed one are visible again."""


@dataclass(slots=True)
class Slot:
    """One delivery on its way through the batch. `back_at` is when its message is wanted again, epoch seconds."""

    delivery: Delivery
    work: Work
    run: Run
    claim: Claim | None = None
    lapsed: Record | None = None
    context: RunContext | None = None
    started: datetime | None = None
    hush: Callable[[], None] | None = None
    reserved: int | None = None
    hold: Hold | None = None
    result: Result = "refused"
    blamed: str | None = None

    @property
    def group(self) -> str | None:
        return self.delivery.group if self.delivery.kind == "fifo" else None

    @property
    def is_first(self) -> bool:
        """Nothing should be on record yet: its claim can be a plain insert."""
        return self.delivery.receives == 1 and not self.work.envelope.redrives


class Batch:
    """One per invocation: nothing of it outlives the invocation."""

    def __init__(self, worker: Worker, deliveries: Sequence[Delivery], *, until: datetime, longest: timedelta) -> None:
        """`until` is when the process will be stopped, `longest` the queue's job timeout."""
        self._worker = worker
        self._deliveries = deliveries
        self._until = until
        self._stop_at = until - timedelta(seconds=defaults.RESERVE)
        self._longest = longest
        self._pending: list[Slot] = []
        self._running: dict[str, Slot] = {}
        self._open: list[tuple[Slot, Open]] = []
        self._suspects: list[Slot] = []
        self._urgent = False
        self._started = False
        self._blocked: set[str] = set()
        self._decided: dict[str, Decision] = {}
        self._back_at: dict[str, float] = {}
        self._told: set[str] = set()
        self._held_up: set[str] = set()

    def decide(self) -> list[tuple[Delivery, Decision]]:
        """Run what can run, and say what is to happen to each delivery, in order.

        It does not raise, except for what ends the process itself. Waits are carried out; that the finished ones are
        deleted is left to the caller's answer, except before a suspect starts.
        """
        worker = self._worker
        soon = (self._until - worker.clock()).total_seconds() + _RETURN_MARGIN
        self._hide([(delivery, soon) for delivery in self._deliveries])
        for delivery in self._deliveries:
            self._take_in(delivery)
        while self._pending or self._running or self._open or self._suspects:
            before = len(self._pending)
            wave = self._wave()
            if wave or self._open:
                self._flush(wave)
            elif self._running:
                self._collect()
            elif len(self._pending) == before:
                self._isolate(self._suspects.pop(0))
        self._finish()
        return [(delivery, self._decided[delivery.receipt]) for delivery in self._deliveries]

    # -- in ---------------------------------------------------------------------------------------

    def _take_in(self, delivery: Delivery) -> None:
        worker = self._worker
        work = understand(delivery, worker.catalogue)
        if isinstance(work, Unworkable):
            self._decide(delivery, self._unworkable(delivery, work))
            return
        run = Run(
            delivery=delivery,
            decision=HandBack("not decided"),
            job=work.job.name,
            id=work.id,
            key=work.key,
            trace=work.envelope.trace,
            payload_hash=work.payload_hash,
            latency=max(0.0, (worker.clock() - (work.envelope.enqueued_at or delivery.sent_at)).total_seconds()),
        )
        self._pending.append(Slot(delivery, work, run))

    def _unworkable(self, delivery: Delivery, work: Unworkable) -> Run:
        run = Run(delivery=delivery, decision=work.decision, job=work.job, id=work.id)
        return self._worker.park(run, identity=work.id) if isinstance(work.decision, DeadLetter) else run

    # -- who may start ----------------------------------------------------------------------------

    def _wave(self) -> list[Slot]:
        """The next jobs to claim: as many as there are free lanes, one of each record and of each FIFO group."""
        worker = self._worker
        free = worker.lanes.size - len(self._running)
        chosen: list[Slot] = []
        if free <= 0 or self._urgent:
            return chosen
        ahead = [*self._running.values(), *self._suspects, *(slot for slot, _ in self._open)]
        ids = {slot.work.record_id for slot in ahead}
        groups = {slot.group for slot in ahead} - {None}
        for slot in list(self._pending):
            if slot.group in self._blocked:
                self._drop(slot, DeferFor(0.0, "behind a failed job of its group"))
            elif slot.group not in groups and slot.work.record_id not in ids:
                if self._is_late():
                    self._drop(slot, DeferFor(0.0, "no time left"))
                elif verdict_on_deadline(slot.work.expires, worker.clock(), 0) != "run":
                    self._expire(slot)
                elif self._is_halted(slot):
                    self._drop(slot, DeferFor(worker.between(defaults.HALTED), "its group is halted by a dead letter"))
                else:
                    self._pending.remove(slot)
                    chosen.append(slot)
            ids.add(slot.work.record_id)
            groups |= {slot.group} - {None}
            if len(chosen) == free:
                break
        return self._admitted(chosen)

    def _admitted(self, chosen: Sequence[Slot]) -> list[Slot]:
        """Those that the brakes let start; what becomes of the others is decided here, and nothing of it claimed."""
        worker = self._worker
        braked = [slot for slot in chosen if worker.brakes.concern(slot.work)]
        if braked and not worker.outage.is_on(worker.clock()):
            asked = [slot for slot in braked if self._is_open(slot)]
            wanted = [Wanted(work=slot.work, receives=slot.delivery.receives, slot=slot.reserved) for slot in asked]
            for slot, admission in zip(asked, worker.brakes.admit(wanted), strict=True):
                self._admit(slot, admission)
            chosen = [slot for slot in chosen if slot not in braked or slot.hold is not None]
        return list(chosen)

    def _is_open(self, slot: Slot) -> bool:
        """Its record is free to be claimed: otherwise it would take a slot or a probe for nothing."""
        worker = self._worker
        if slot.is_first:
            return True
        try:
            record = worker.ledger.read(slot.work.record_id)
        except StoreUnavailable as error:
            worker.outage.begin(worker.clock())
            self._without_store(slot, str(error))
            return False
        if record is None:
            return True
        slot.reserved = record.slot
        verdict = judge(record, self._claim_of(slot, wave=worker.lanes.size))
        if isinstance(verdict, Replace) or (isinstance(verdict, Wait) and record.is_due(worker.ledger.now())):
            return True
        if isinstance(verdict, Lapsed):
            self._suspect(slot, record)
        else:
            self._settle(slot, lambda: worker.stand_back(slot.work, Refused(verdict, record), slot.run))
        return False

    def _admit(self, slot: Slot, admission: Admission) -> None:
        worker = self._worker
        match admission:
            case Admitted(hold):
                slot.hold = hold
            case Waits(seconds, why):
                self._held_up.add(slot.delivery.receipt)
                self._settle(slot, lambda: worker.defer(slot.work, slot.run, seconds, why))
            case Slotted(at, why):
                self._settle(slot, lambda: worker.take_slot(slot.work, slot.run, at=at, why=why))

    def _is_late(self) -> bool:
        """No job starts that may not end in time; the first may, since an invocation of one job has no more."""
        start_by = self._stop_at - self._longest if self._started or self._decided else self._stop_at
        return self._worker.clock() >= start_by or self._worker.lanes.stuck

    def _expire(self, slot: Slot) -> None:
        self._pending.remove(slot)
        self._settle(slot, lambda: self._worker.expire(slot.work, slot.run))

    def _is_halted(self, slot: Slot) -> bool:
        """An unreadable mark halts nothing: the claim that follows meets the same store."""
        try:
            return self._worker.is_halted(slot.work)
        except StoreUnavailable:
            return False

    def _drop(self, slot: Slot, decision: DeferFor) -> None:
        self._pending.remove(slot)
        self._settle(slot, lambda: self._worker.defer(slot.work, slot.run, decision.delay, decision.why))

    # -- claim, run, end --------------------------------------------------------------------------

    def _flush(self, wave: Sequence[Slot]) -> None:
        """Make the endings durable and claim the wave, in one call; what needs a look at its record, one by one."""
        worker, endings = self._worker, self._open
        self._open = []
        if worker.outage.is_on(worker.clock()):
            for slot in wave:
                self._without_store(slot, "the store did not answer a moment ago")
            wave = []
        for slot in wave:
            slot.claim = self._claim_of(slot, wave=worker.lanes.size)
        first = [slot for slot in wave if slot.is_first]
        closed, claimed = worker.ledger.flush(
            [opened.closing for _, opened in endings], [slot.claim for slot in first if slot.claim is not None]
        )
        for (slot, opened), answer in zip(endings, closed, strict=True):
            self._close(slot, opened, answer)
        for slot, answer in zip(first, claimed, strict=True):
            self._claimed(slot, _asked(worker, slot, answer))
        for slot in wave:
            if not slot.is_first:
                self._claimed(slot, _asked(worker, slot, None))

    def _claim_of(self, slot: Slot, *, wave: int) -> Claim:
        return self._worker.claim(slot.work, until=self._stop_at, wave=wave)

    def _claimed(self, slot: Slot, ask: Callable[[], Claimed]) -> None:
        worker = self._worker
        try:
            claimed = ask()
        except StoreUnavailable as error:
            worker.outage.begin(worker.clock())
            self._without_store(slot, str(error))
            return
        worker.outage.end()
        if isinstance(claimed, Held):
            self._start(slot, claimed.record)
        elif isinstance(claimed.verdict, Lapsed) and claimed.record is not None:
            self._suspect(slot, claimed.record)
        else:
            self._settle(slot, lambda: worker.stand_back(slot.work, claimed, slot.run))

    def _without_store(self, slot: Slot, why: str) -> None:
        """Nothing runs without a claim: the message comes back when the store may have recovered."""
        wait = self._worker.between(defaults.HAND_BACK)
        self._conclude(slot, replace(slot.run, decision=DeferFor(wait, "store-unavailable"), detail=why))

    def _start(self, slot: Slot, record: Record) -> None:
        worker, work = self._worker, slot.work
        now = worker.clock()
        until = min(self._stop_at, now + work.job.timeout)
        slot.started = now
        slot.context = worker.context(work, record, until=until)
        slot.run = replace(slot.run, attempt=slot.context.attempt)
        self._started = True
        self._running[slot.delivery.receipt] = slot
        worker.journal.started(slot.run)
        self._keep_alive(slot)
        worker.lanes.start(
            Start(
                place=slot.delivery.receipt,
                job=work.job,
                payload=work.payload,
                ctx=slot.context,
                seconds=max(0.001, (until - now).total_seconds()),
            )
        )

    def _keep_alive(self, slot: Slot) -> None:
        worker, every = self._worker, slot.work.job.options.heartbeat
        assert slot.context is not None
        if every is None:
            return
        place = slot.delivery.receipt
        heart = Heart(
            effects=slot.context.effects,
            delivery=slot.delivery,
            messages=worker.messages,
            clock=worker.clock,
            every=every,
            keep=lambda: slot.hold is None or worker.brakes.renew(slot.hold),
            stop=lambda: worker.lanes.interrupt(place),
            hidden_until=self._until + timedelta(seconds=_RETURN_MARGIN),
        )
        heart.show()
        slot.hush = worker.pulse(every / BEATS, heart.beat)

    def _collect(self) -> None:
        # a lane that could take another job waits less than one that is done
        linger = _LINGER if self._pending else _LAST_LINGER
        for place, ending in self._worker.lanes.ended(linger=linger):
            self._end(self._running.pop(str(place)), ending)

    def _end(self, slot: Slot, ending: Ending) -> None:
        assert slot.started is not None
        assert slot.context is not None
        if slot.hush is not None:
            slot.hush()
        slot.run = replace(slot.run, duration=(self._worker.clock() - slot.started).total_seconds())
        effects = slot.context.effects
        slot.result, slot.blamed = self._worker.blame(slot.work, ending)
        self._settle(slot, lambda: self._worker.sort(slot.work, effects, slot.run, ending))

    def _settle(self, slot: Slot, step: Callable[[], Run | Open]) -> None:
        """Take a step that may write the record itself; an ending that is only decided waits for the next flush."""
        try:
            outcome = step()
        except LostClaim as error:
            outcome = replace(slot.run, decision=HandBack("lost the claim"), detail=str(error))
        except StoreUnavailable as error:
            # not acknowledged, visibility untouched: what was done is not recorded, and runs again
            why = "store-unavailable" if slot.started is None else "effect uncertain"
            outcome = replace(slot.run, decision=HandBack(why), detail=str(error))
        if isinstance(outcome, Open):
            self._open.append((slot, outcome))
        else:
            self._conclude(slot, outcome)

    def _conclude(self, slot: Slot, run: Run) -> None:
        """Everything of this delivery is durable, or given up: its brakes are free."""
        self._decide(slot.delivery, run)
        brakes = self._worker.brakes
        if slot.hold is not None:
            brakes.release(slot.hold, slot.result, service=slot.blamed)
        while brakes.troubles:
            self._worker.journal.trouble(brakes.troubles.popleft())
        while brakes.changes:
            service, state = brakes.changes.popleft()
            self._worker.journal.trouble(f"the circuit breaker of {service} is {state}")
            self._worker.journal.counted(f"Breaker{state.title().replace('_', '')}", slot.work.job.name)

    def _close(self, slot: Slot, opened: Open, answer: Answer) -> None:
        """Decide once the ending is durable, trying for it while there is time."""
        worker = self._worker

        def step() -> Run:
            last = answer
            for attempt in range(1, _TRIES + 1):
                try:
                    if not worker.ledger.closed(opened.closing, last):
                        return worker.cancel(opened)
                    break
                except StoreUnavailable:
                    if attempt == _TRIES or worker.clock() >= self._until - timedelta(seconds=1):
                        raise
                worker.pause(_PAUSE * 2**attempt * worker.roll())
                (last,) = worker.ledger.flush([opened.closing], [])[0]
            if opened.waiting is not None:
                return worker.wait(opened.run, opened.waiting)
            worker.lift(slot.work, opened.closing.record)
            return opened.run

        self._settle(slot, step)

    # -- suspects ---------------------------------------------------------------------------------

    def _suspect(self, slot: Slot, lapsed: Record) -> None:
        slot.lapsed = lapsed
        if slot.delivery.receives - lapsed.receives > PASSED_OVER:
            self._urgent = True
            self._suspects.insert(0, slot)
        else:
            self._suspects.append(slot)

    def _isolate(self, slot: Slot) -> None:
        """Run one suspect with nothing beside it, and nothing left that its crash could bring back."""
        worker, old = self._worker, slot.lapsed
        assert old is not None
        self._urgent = False
        if old.cancelled:
            self._settle(slot, lambda: worker.abandon(slot.work, slot.run, old))
            return
        if self._is_late():
            self._settle(slot, lambda: worker.defer(slot.work, slot.run, 0.0, "no time left"))
            return
        self._acknowledge()
        slot.reserved = worker.ledger.now()  # its slot was that of the run that crashed
        if not self._admitted_suspect(slot):
            return
        attempts = slot.work.job.options.retry.attempts
        claim = self._claim_of(slot, wave=1)
        worker.journal.counted("EffectUncertain", slot.work.job.name)
        self._claimed(slot, lambda: worker.ledger.take_over(claim, old, attempts=attempts))
        while slot.delivery.receipt in self._running:
            self._collect()
        self._flush([])

    def _admitted_suspect(self, slot: Slot) -> bool:
        worker = self._worker
        if worker.brakes.concern(slot.work):
            wanted = Wanted(work=slot.work, receives=slot.delivery.receives, slot=slot.reserved)
            (admission,) = worker.brakes.admit([wanted])
            if isinstance(admission, Slotted):
                admission = Waits((admission.at_ms - worker.ledger.now()) / 1000, admission.why)
            self._admit(slot, admission)
        return slot.delivery.receipt not in self._decided

    # -- out --------------------------------------------------------------------------------------

    def _decide(self, delivery: Delivery, run: Run) -> None:
        worker = self._worker
        self._decided[delivery.receipt] = run.decision
        wait = wait_of(run.decision)
        if wait is not None:
            self._back_at[delivery.receipt] = worker.clock().timestamp() + wait
        if delivery.kind == "fifo" and delivery.group is not None and not self._lets_pass(run):
            if delivery.group not in self._blocked:
                worker.journal.counted("GroupsBlocked", None)
            self._blocked.add(delivery.group)
        worker.journal.ended(run)

    def _lets_pass(self, run: Run) -> bool:
        """The next of its FIFO group may run: the message is gone, and not by a death that halts the group."""
        job = self._worker.catalogue.find(run.job) if run.job else None
        halts = isinstance(run.decision, DeadLetter) and job is not None and job.options.on_dead == "halt"
        return is_gone(run.decision) and not halts

    def _acknowledge(self) -> None:
        """Tell SQS ourselves what was decided so far."""
        fresh = [each for each in self._deliveries if each.receipt in self._decided and each.receipt not in self._told]
        self._told |= {each.receipt for each in fresh}
        gone = [each for each in fresh if is_gone(self._decided[each.receipt])]
        if gone:
            self._worker.messages.delete(gone)
        self._send_back(fresh)

    def _send_back(self, deliveries: Sequence[Delivery]) -> None:
        now = self._worker.clock().timestamp()
        self._hide([(each, self._back_at[each.receipt] - now) for each in deliveries if each.receipt in self._back_at])

    def _hide(self, waits: Sequence[tuple[Delivery, float]]) -> None:
        now = self._worker.clock()
        if waits:
            self._worker.messages.hide([(each, visibility_timeout(wait, each, now)) for each, wait in waits])

    def _finish(self) -> None:
        if self._worker.lanes.stuck:
            # its thread would go on in the next invocation: nothing of this process may be used again
            self._acknowledge()
            self._worker.quit()
        self._send_back([each for each in self._deliveries if each.receipt not in self._told])
        self._shut_valve()

    def _shut_valve(self) -> None:
        """A queue whose jobs all wait for an open circuit is not delivered meanwhile: each delivery would only spend
        a receive, and keep its messages in flight."""
        worker = self._worker
        rest = worker.brakes.shut_for()
        if worker.valve is None or rest < VALVE_LEAST or self._held_up < set(self._decided) or not self._decided:
            return
        try:
            worker.valve.shut(rest)
        except Exception as error:  # noqa: BLE001 the queue is delivered on, which is safe
            worker.journal.trouble(f"the queue's mapping was not switched off: {type(error).__name__}: {error}")
        else:
            worker.journal.counted("ValveShut", None)


def _asked(worker: Worker, slot: Slot, answer: Answer | None) -> Callable[[], Claimed]:
    claim = slot.claim
    assert claim is not None
    if answer is None:
        return lambda: worker.ledger.claim(claim)
    return lambda: worker.ledger.claimed(claim, answer)
