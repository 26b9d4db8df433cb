"""Who of a batch may start: asked before anything is claimed, so that whoever has to wait costs no attempt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from loomjobs.core import defaults
from loomjobs.core.claim import Lapsed, Replace, Wait, judge
from loomjobs.core.errors import StoreUnavailable
from loomjobs.core.expiry import verdict_on_deadline
from loomjobs.core.halt import halt_id, is_halted, lift_write
from loomjobs.core.job import Job
from loomjobs.core.record import Record
from loomjobs.core.write import Item
from loomjobs.runtime import aside
from loomjobs.runtime.admission import Admission, Admitted, Waits, Wanted
from loomjobs.runtime.ledger import Refused
from loomjobs.runtime.ports import Run
from loomjobs.runtime.remote import goes_by_payload
from loomjobs.runtime.slot import Slot
from loomjobs.runtime.worker import Worker


@dataclass(frozen=True, slots=True)
class Go:
    """Claim it."""


@dataclass(frozen=True, slots=True)
class Crashed:
    """Its earlier run never ended: it is a suspect."""

    record: Record


@dataclass(frozen=True, slots=True)
class Unread:
    """Its record could not be read."""

    why: str


@dataclass(frozen=True, slots=True)
class Not:
    """It does not start; `step` makes of it what it is instead. `braked`: a breaker, lock or rate keeps it."""

    step: Callable[[], Run]
    braked: bool = False


Verdict: TypeAlias = Go | Crashed | Unread | Not


class Gate:
    """Of one batch. It remembers the marks of halted groups that it has seen."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._marks: dict[str, Item | None] = {}

    def turned_away(self, slot: Slot) -> Not | None:
        """By its own deadline, or by a dead letter that halts its FIFO group."""
        worker = self._worker
        if verdict_on_deadline(slot.work.expires, worker.clock(), 0) != "run":
            return Not(lambda: aside.expire(worker, slot.work, slot.run))
        if self._is_halted(slot):
            return self.later(slot, worker.between(defaults.HALTED), "its group is halted by a dead letter")
        return None

    def later(self, slot: Slot, seconds: float, why: str) -> Not:
        return Not(lambda: aside.defer(self._worker, slot.work, slot.run, seconds, why))

    def admit(self, slots: Sequence[Slot]) -> list[tuple[Slot, Verdict]]:
        """Ask the brakes for a wave. A slot that may go has its hold."""
        brakes = self._worker.brakes
        free = [slot for slot in slots if not brakes.concern(slot.work)]
        told: list[tuple[Slot, Verdict]] = [(slot, Go()) for slot in free]
        braked = [slot for slot in slots if slot not in free]
        if braked and self._worker.outage.is_on(self._worker.clock()):
            return told + [(slot, Unread("the store did not answer a moment ago")) for slot in braked]
        looked = [(slot, self._look(slot)) for slot in braked]
        told += [(slot, verdict) for slot, verdict in looked if not isinstance(verdict, Go)]
        unclaimed = [slot for slot, verdict in looked if isinstance(verdict, Go)]
        asked = [slot for slot in unclaimed if self._is_known(slot)]
        told += [(slot, Go()) for slot in unclaimed if slot not in asked]
        answers = brakes.admit([self._wanted(slot) for slot in asked])
        return told + [(slot, self._verdict(slot, answer)) for slot, answer in zip(asked, answers, strict=True)]

    def admit_suspect(self, slot: Slot) -> Verdict:
        """The same for one whose run crashed. It takes no new slot of a rate: that run had one."""
        slot.reserved = self._worker.ledger.now()
        if not self._worker.brakes.concern(slot.work) or not self._is_known(slot):
            return Go()
        (answer,) = self._worker.brakes.admit([self._wanted(slot)])
        if isinstance(answer, (Admitted, Waits)):
            return self._verdict(slot, answer)
        return self.later(slot, max(0.0, (answer.at_ms - self._worker.ledger.now()) / 1000), answer.why)

    def _look(self, slot: Slot) -> Verdict:
        """Whether its record is free to be claimed: otherwise it would take a slot, a lock or a probe for nothing."""
        worker = self._worker
        if slot.is_first and not _reads_ahead(slot):
            return Go()
        try:
            record = worker.ledger.read(slot.work.record_id)
        except StoreUnavailable as error:
            return Unread(str(error))
        if record is None:
            return Go()
        slot.reserved = record.slot
        verdict = judge(record, worker.claim(slot.work, until=worker.clock(), wave=1))
        if isinstance(verdict, Replace) or (isinstance(verdict, Wait) and record.is_due(worker.ledger.now())):
            return Go()
        if isinstance(verdict, Lapsed):
            return Crashed(record)
        return Not(lambda: aside.stand_back(worker, slot.work, Refused(verdict, record), slot.run))

    def _is_known(self, slot: Slot) -> bool:
        """Whether its brakes know the value that they go by. Where its payload cannot be read nothing of the job will
        run, so it needs none."""
        if slot.remote is not None and _reads_ahead(slot):
            try:
                slot.remote.read()
            except Exception:  # noqa: BLE001 kept: it is how the run ends
                return False
            slot.work = slot.remote.work
        return True

    def _verdict(self, slot: Slot, answer: Admission) -> Verdict:
        worker = self._worker
        if isinstance(answer, Admitted):
            slot.hold = answer.hold
            return Go()
        if isinstance(answer, Waits):
            seconds, why = answer.seconds, answer.why
            return Not(lambda: aside.defer(worker, slot.work, slot.run, seconds, why), braked=True)
        at, why = answer.at_ms, answer.why
        return Not(lambda: aside.take_slot(worker, slot.work, slot.run, at=at, why=why), braked=True)

    def _wanted(self, slot: Slot) -> Wanted:
        return Wanted(work=slot.work, receives=slot.delivery.receives, slot=slot.reserved)

    def lift(self, slot: Slot) -> None:
        """A job that had died, and has ended otherwise now, lets its FIFO group go on."""
        mark = self._marks.get(slot.group or "")
        if mark is not None and mark.get("by") == slot.work.record_id and not mark.get("lifted"):
            self._worker.ledger.write(lift_write(slot.delivery.queue, slot.group or "", by=slot.work.record_id))

    def _is_halted(self, slot: Slot) -> bool:
        """An unreadable mark halts nothing: the claim that follows meets the same store."""
        worker = self._worker
        if slot.group is None or not any(job.options.on_dead == "halt" for job in self._siblings(slot)):
            return False
        try:
            mark = self._marks[slot.group] = worker.ledger.store.read(halt_id(slot.delivery.queue, slot.group))
        except StoreUnavailable:
            return False
        return is_halted(mark, record=slot.work.record_id, now=worker.ledger.now() // 1000)

    def _siblings(self, slot: Slot) -> tuple[Job[Any, Any], ...]:
        return self._worker.catalogue.on(slot.work.job.queue.name)


def _reads_ahead(slot: Slot) -> bool:
    return slot.remote is not None and goes_by_payload(slot.work)
