"""The deliveries of one invocation: who may start, what runs side by side, and when each ending is durable.

A wave of jobs is claimed in one call, which also carries the endings of those before: a lane takes its next job only
when its own last ending is durable. Jobs whose worker crashed before are suspects: they wait until everything else has
ended and is acknowledged, and then run one at a time, so that another crash takes nothing with it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from loomjobs.core import defaults
from loomjobs.core.claim import Lapsed
from loomjobs.core.decision import Acknowledge, DeadLetter, Decision, DeferFor, HandBack, is_gone
from loomjobs.core.delivery import Delivery
from loomjobs.core.errors import LostClaim, StoreUnavailable
from loomjobs.core.record import Record
from loomjobs.core.sealed import NotAskedAgain
from loomjobs.core.sensitive import is_marked
from loomjobs.core.work import Unworkable, Work, understand
from loomjobs.runtime import aside, burial, sorting
from loomjobs.runtime.following import Following
from loomjobs.runtime.gate import Crashed, Gate, Go, Not, Unread, Verdict
from loomjobs.runtime.heart import BEATS, Heart
from loomjobs.runtime.lanes import Start
from loomjobs.runtime.ledger import Claimed, Held
from loomjobs.runtime.ports import Answer, Run
from loomjobs.runtime.remote import Remote
from loomjobs.runtime.replies import Replies
from loomjobs.runtime.runner import Ending
from loomjobs.runtime.slot import Slot
from loomjobs.runtime.sorting import Open
from loomjobs.runtime.worker import Worker

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
_CIPHER_SLOW = timedelta(seconds=2)
"""From here on a refusal to decrypt was a timeout (KMS's first is after two seconds), and no refusal of one key."""


class Batch:
    """One per invocation: nothing of it outlives the invocation."""

    def __init__(self, worker: Worker, deliveries: Sequence[Delivery], *, until: datetime, longest: timedelta) -> None:
        """`until` is when the process will be stopped, `longest` the queue's job timeout."""
        self._worker = worker
        self._deliveries = deliveries
        self._until = until
        self._stop_at = until - timedelta(seconds=defaults.RESERVE)
        self._longest = longest
        self._gate = Gate(worker)
        self._replies = Replies(deliveries, worker.messages, worker.clock)
        self._following = Following(ledger=worker.ledger, producer=worker.producer, trouble=worker.journal.trouble)
        self._cipher = worker.cipher
        self._pending: list[Slot] = []
        self._odd: list[tuple[int, Delivery, Unworkable]] = []
        self._running: dict[Hashable, Slot] = {}
        self._open: list[tuple[Slot, Open]] = []
        self._suspects: list[Slot] = []
        self._urgent = False
        self._started = False
        self._blocked: set[str] = set()
        self._braked: set[int] = set()

    def decide(self) -> list[tuple[Delivery, Decision]]:
        """Run what can run, and say what is to happen to each delivery, in order.

        It does not raise, except for what ends the process itself. Waits are carried out; that the finished ones are
        deleted is left to the caller's answer, except before a suspect starts.
        """
        self._replies.hide_all((self._until - self._worker.clock()).total_seconds() + _RETURN_MARGIN)
        for place, delivery in enumerate(self._deliveries):
            self._take_in(place, delivery)
        try:
            self._work_off()
        except Exception:
            if self._running:
                self._worker.quit()  # what still runs must not go on in the next invocation
            raise
        self._finish()
        return self._replies.all()

    def _work_off(self) -> None:
        while self._pending or self._odd or self._running or self._open or self._suspects:
            before = len(self._pending) + len(self._odd)
            self._settle_odd()
            wave = self._wave()
            if wave or self._open:
                self._flush(wave)
            elif self._running:
                self._collect()
            elif len(self._pending) + len(self._odd) == before:
                self._isolate(self._suspects.pop(0))

    # -- in ---------------------------------------------------------------------------------------

    def _take_in(self, place: int, delivery: Delivery) -> None:
        worker = self._worker
        work = self._understood(delivery)
        if isinstance(work, Unworkable):
            self._odd.append((place, delivery, work))
            return
        run = Run(
            delivery=delivery,
            decision=HandBack("not decided"),
            job=work.job.name,
            id=work.id,
            key=work.key,
            tenant=work.envelope.tenant,
            trace=work.envelope.trace,
            correlation=work.envelope.correlation,
            payload_hash=None if is_marked(work.job.payload_type) else work.payload_hash,
            latency=max(0.0, (worker.clock() - work.due).total_seconds()),
        )
        remote = Remote(work, worker.payloads, self._cipher) if work.is_closed else None
        self._pending.append(Slot(place, delivery, work, run, remote))

    def _understood(self, delivery: Delivery) -> Work | Unworkable:
        """One message whose decryption ran into a timeout is enough: the others of the batch are put off at once."""
        asked = self._worker.clock()
        work = understand(delivery, self._worker.catalogue, self._cipher)
        is_put_off = isinstance(work, Unworkable) and isinstance(work.decision, DeferFor)
        if is_put_off and self._worker.clock() - asked >= _CIPHER_SLOW:
            self._cipher = NotAskedAgain()
        return work

    def _settle_odd(self) -> None:
        """Deliveries that are no work here; on FIFO each when it is its turn."""
        for odd in list(self._odd):
            place, delivery, work = odd
            group = delivery.group if delivery.kind == "fifo" else None
            if group is not None and any(slot.place < place and slot.group == group for slot in self._undecided()):
                continue
            self._odd.remove(odd)
            run = Run(delivery=delivery, decision=work.decision, job=work.job, id=work.id)
            if group in self._blocked:
                run = replace(run, decision=DeferFor(0.0, "behind a failed job of its group"))
            elif isinstance(work.decision, DeadLetter):
                run = self._buried(work, run)
            self._decide(place, run)
            self._following.note_odd(place, delivery, run.decision)

    def _buried(self, work: Unworkable, run: Run) -> Run:
        try:
            return burial.bury_odd(self._worker, work, run)
        except StoreUnavailable as error:
            return replace(run, decision=HandBack("store-unavailable"), detail=str(error))

    def _undecided(self) -> list[Slot]:
        """Slots whose outcome is still open."""
        running = list(self._running.values())
        return [*self._pending, *running, *self._suspects, *(slot for slot, _ in self._open)]

    # -- who may start ----------------------------------------------------------------------------

    def _wave(self) -> list[Slot]:
        """The next jobs to claim: as many as there are free lanes, one of each record and of each FIFO group."""
        free = self._worker.lanes.size - len(self._running)
        chosen: list[Slot] = []
        if free <= 0 or self._urgent:
            return chosen
        ahead = [*self._running.values(), *self._suspects, *(slot for slot, _ in self._open)]
        ids = {slot.work.record_id for slot in ahead}
        groups = {slot.group for slot in ahead} - {None}
        odd = [(place, delivery.group) for place, delivery, _ in self._odd if delivery.kind == "fifo"]
        for slot in list(self._pending):
            if slot.group in self._blocked:
                self._turn_away(slot, self._gate.later(slot, 0.0, "behind a failed job of its group"))
            elif any(place < slot.place and group == slot.group for place, group in odd):
                pass  # behind one that is no work, which is to be decided first
            elif slot.group not in groups and slot.work.record_id not in ids:
                late = self._gate.later(slot, 0.0, "no time left") if self._is_late() else None
                turned_away = late or self._gate.turned_away(slot)
                if turned_away is not None:
                    self._turn_away(slot, turned_away)
                else:
                    chosen.append(slot)
            ids.add(slot.work.record_id)
            groups |= {slot.group} - {None}
            if len(chosen) == free:
                break
        self._pending = [slot for slot in self._pending if slot not in chosen]
        return [slot for slot, verdict in self._gate.admit(chosen) if self._goes(slot, verdict)]

    def _goes(self, slot: Slot, verdict: Verdict) -> bool:
        """Whether to claim it; what becomes of it otherwise is carried out."""
        match verdict:
            case Go():
                return True
            case Crashed(record):
                self._suspect(slot, record)
            case Unread(why):
                self._without_store(slot, why)
            case Not(step, braked):
                if braked:
                    self._braked.add(slot.place)
                self._settle(slot, step)
        return False

    def _turn_away(self, slot: Slot, verdict: Not) -> None:
        self._pending.remove(slot)
        self._settle(slot, verdict.step)

    def _is_late(self) -> bool:
        """No job starts that may not end in time; the first may, since an invocation of one job has no more."""
        start_by = self._stop_at - self._longest if self._started or len(self._replies) else self._stop_at
        return self._worker.clock() >= start_by or self._worker.lanes.stuck

    # -- claim, run, end --------------------------------------------------------------------------

    def _flush(self, wave: Sequence[Slot]) -> None:
        """Make the endings durable and claim the wave, in one call; what needs a look at its record, one by one."""
        worker, endings = self._worker, self._open
        self._open = []
        if worker.outage.is_on(worker.clock()):
            for slot in wave:
                self._without_store(slot, "the store did not answer a moment ago")
            wave = []
        claims = {slot: worker.claim(slot.work, until=self._stop_at, wave=worker.lanes.size) for slot in wave}
        first = [slot for slot in wave if slot.is_first]
        closed, claimed = worker.ledger.flush(
            [opened.closing for _, opened in endings], [claims[slot] for slot in first]
        )
        answers: dict[Slot, Answer] = dict(zip(first, claimed, strict=True))
        for (slot, opened), answer in zip(endings, closed, strict=True):
            self._close(slot, opened, answer)
        for slot in [*first, *(slot for slot in wave if slot not in first)]:
            self._claimed(slot, partial(worker.ledger.claimed, claims[slot], answers.get(slot)))

    def _claimed(self, slot: Slot, ask: Callable[[], Claimed]) -> None:
        worker = self._worker
        try:
            claimed = ask()
        except StoreUnavailable as error:
            self._without_store(slot, str(error))
            return
        worker.outage.end()
        if isinstance(claimed, Held):
            self._start(slot, claimed.record)
        elif isinstance(claimed.verdict, Lapsed) and claimed.record is not None:
            self._suspect(slot, claimed.record)
        else:
            self._settle(slot, lambda: aside.stand_back(worker, slot.work, claimed, slot.run))

    def _without_store(self, slot: Slot, why: str) -> None:
        """Nothing runs without a claim: the message comes back when the store may have recovered."""
        worker = self._worker
        self._note_outage()
        run = replace(slot.run, detail=why)
        self._conclude(slot, aside.without_store(worker, slot.work, run, worker.between(defaults.HAND_BACK)))

    def _note_outage(self) -> None:
        worker = self._worker
        if not worker.outage.is_on(worker.clock()):
            worker.outage.begin(worker.clock())
            worker.journal.counted("StoreUnavailable", None)

    def _start(self, slot: Slot, record: Record) -> None:
        worker, work = self._worker, slot.work
        now = worker.clock()
        until = min(self._stop_at, now + work.job.timeout)
        slot.started = now
        slot.context = worker.context(work, record, until=until)
        slot.run = replace(slot.run, attempt=slot.context.attempt)
        self._started = True
        self._running[slot] = slot
        worker.journal.started(slot.run)
        self._keep_alive(slot)
        worker.lanes.start(
            Start(
                place=slot,
                job=work.job,
                payload=slot.remote or work.payload,
                ctx=slot.context,
                seconds=max(0.001, (until - now).total_seconds()),
            )
        )

    def _keep_alive(self, slot: Slot) -> None:
        worker, every = self._worker, slot.work.job.options.heartbeat
        assert slot.context is not None
        if every is None:
            return
        heart = Heart(
            effects=slot.context.effects,
            delivery=slot.delivery,
            messages=worker.messages,
            clock=worker.clock,
            every=every,
            keep=lambda: slot.hold is None or worker.brakes.renew(slot.hold),
            stop=lambda: worker.lanes.interrupt(slot),
            hidden_until=self._until + timedelta(seconds=_RETURN_MARGIN),
        )
        heart.show()
        slot.hush = worker.pulse(every / BEATS, heart.beat)

    def _collect(self) -> None:
        # a lane that could take another job waits less than one that is done
        linger = _LINGER if self._pending else _LAST_LINGER
        for place, ending in self._worker.lanes.ended(linger=linger):
            slot = self._running.pop(place, None)
            if slot is not None:  # else it is of a batch that broke off
                self._end(slot, ending)

    def _end(self, slot: Slot, ending: Ending) -> None:
        assert slot.started is not None
        assert slot.context is not None
        if slot.hush is not None:
            slot.hush()
        if slot.remote is not None:
            slot.work = slot.remote.work
        slot.run = replace(slot.run, duration=(self._worker.clock() - slot.started).total_seconds())
        effects = slot.context.effects
        slot.result, slot.blamed = sorting.blame(self._worker, slot.work, ending)
        probe = slot.blamed if slot.hold is not None and slot.blamed in slot.hold.probes else None
        self._settle(slot, lambda: sorting.sort(self._worker, slot.work, effects, slot.run, ending, probe=probe))

    def _settle(self, slot: Slot, step: Callable[[], Run | Open]) -> None:
        """Take a step that may write the record itself; an ending that is only decided waits for the next flush."""
        try:
            outcome = step()
            if isinstance(outcome, Run) and isinstance(outcome.decision, Acknowledge):
                self._gate.lift(slot)
        except LostClaim as error:
            outcome = replace(slot.run, decision=HandBack("lost the claim"), detail=str(error))
        except StoreUnavailable as error:
            self._note_outage()
            # not acknowledged, visibility untouched: what was done is not recorded, and runs again
            why = "store-unavailable" if slot.started is None else "effect uncertain"
            outcome = replace(slot.run, decision=HandBack(why), detail=str(error))
        except Exception as error:  # noqa: BLE001 a fault of ours, in this delivery: its batch goes on, its message stays
            self._worker.journal.trouble(f"a step of {slot.work.job.name} failed: {type(error).__name__}: {error}")
            outcome = replace(slot.run, decision=HandBack("broken"), detail=f"{type(error).__name__}: {error}")
        if isinstance(outcome, Open):
            self._open.append((slot, outcome))
        else:
            self._conclude(slot, outcome)

    def _close(self, slot: Slot, opened: Open, answer: Answer) -> None:
        """Decide once the ending is durable, trying for it while there is time."""
        worker = self._worker

        def step() -> Run:
            last = answer
            for attempt in range(1, _TRIES + 1):
                try:
                    if not worker.ledger.closed(opened.closing, last):
                        return sorting.cancel(worker, opened)
                    break
                except StoreUnavailable:
                    if attempt == _TRIES or worker.clock() >= self._until - timedelta(seconds=1):
                        raise
                worker.pause(_PAUSE * 2**attempt * worker.roll())
                (last,) = worker.ledger.flush([opened.closing], [])[0]
            if opened.waiting is not None:
                return aside.wait(worker, slot.work, opened.run, opened.waiting)
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
            self._settle(slot, lambda: aside.abandon(worker, slot.work, slot.run, old))
            return
        if self._is_late():
            self._settle(slot, self._gate.later(slot, 0.0, "no time left").step)
            return
        self._follow_up()
        self._replies.acknowledge()
        if not self._goes(slot, self._gate.admit_suspect(slot)):
            return
        attempts = slot.work.job.options.retry.attempts
        claim = worker.claim(slot.work, until=self._stop_at, wave=1)
        worker.journal.counted("EffectUncertain", slot.work.job.name)
        self._claimed(slot, lambda: worker.ledger.take_over(claim, old, attempts=attempts))
        while slot in self._running:
            self._collect()
        self._flush([])

    # -- out --------------------------------------------------------------------------------------

    def _conclude(self, slot: Slot, run: Run) -> None:
        """Everything of this delivery is durable, or given up: its brakes are free."""
        self._decide(slot.place, run)
        self._following.note(slot.place, slot.work, run.decision)
        worker = self._worker
        if slot.hold is not None:
            worker.brakes.release(slot.hold, slot.result, service=slot.blamed)
        worker.tell_of_brakes(slot.work.job.name)

    def _decide(self, place: int, run: Run) -> None:
        worker, delivery = self._worker, run.delivery
        self._replies.put(place, run.decision)
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

    def _follow_up(self) -> None:
        """Before anything is acknowledged: what could not be done for a message brings it back."""
        for place, why in self._following.carry_out().items():
            self._replies.put(place, HandBack("what follows is not done"))
            self._worker.journal.trouble(f"what follows a job that ended was not done, its message comes back: {why}")

    def _finish(self) -> None:
        self._follow_up()
        if self._worker.lanes.stuck:
            # its thread would go on in the next invocation: nothing of this process may be used again
            self._replies.acknowledge()
            self._worker.quit()
        self._replies.send_back()
        self._shut_valve()

    def _shut_valve(self) -> None:
        """A queue whose jobs all wait for an open circuit is not delivered meanwhile: each delivery would only spend
        a receive, and keep its messages in flight."""
        worker = self._worker
        rest = worker.brakes.shut_for()
        if worker.valve is None or rest < VALVE_LEAST or len(self._braked) < len(self._deliveries) or not self._braked:
            return
        try:
            worker.valve.shut(rest)
        except Exception as error:  # noqa: BLE001 the queue is delivered on, which is safe
            worker.journal.trouble(f"the queue's mapping was not switched off: {type(error).__name__}: {error}")
        else:
            worker.journal.counted("ValveShut", None)
