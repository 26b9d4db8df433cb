"""What is left to do when a job has ended, before its message is acknowledged: its place in a batch is marked, and what
follows it is sent.

Each of it may happen twice without harm, and a message that is acknowledged has it behind it: a crash in between brings
the message back, whose record says that the job ended, and it is done then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from loomjobs.core.decision import Acknowledge, DeadLetter, Decision
from loomjobs.core.delivery import Delivery
from loomjobs.core.envelope import Envelope
from loomjobs.core.errors import BadEnvelope
from loomjobs.core.fan import Member, bad_write, done_write
from loomjobs.core.follow import Follow
from loomjobs.core.work import Work
from loomjobs.runtime.gathering import Gathering
from loomjobs.runtime.ledger import Ledger
from loomjobs.runtime.producer import Producer

Failed: TypeAlias = dict[int, str]
"""Places in the invocation, and what could not be done for each."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """The place of a delivery in the invocation, and what is to be done for it."""

    place: int
    member: Member | None
    then: Follow | None
    why: str = ""


@dataclass(slots=True, kw_only=True)
class Following:
    """Of one invocation."""

    ledger: Ledger
    producer: Producer
    trouble: Callable[[str], None]
    _ended: list[_Ended] = field(default_factory=list[_Ended])

    def note(self, place: int, work: Work, decision: Decision) -> None:
        """A delivery that was decided; where something is to be done for it, it waits for `carry_out`."""
        if isinstance(decision, Acknowledge):
            succeeded = decision.why in ("succeeded", "duplicate")
            self._note(place, work.envelope, "" if succeeded else decision.why, f"{work.job.name} {work.key}")
        elif isinstance(decision, DeadLetter):
            self._note(place, work.envelope, decision.reason, f"{work.job.name} {work.key}")

    def note_odd(self, place: int, delivery: Delivery, decision: Decision) -> None:
        """The same for one that is no work here: a child that cannot be read has failed."""
        try:
            envelope = Envelope.parse(delivery.body)
        except BadEnvelope:
            return
        if isinstance(decision, DeadLetter):
            self._note(place, envelope, decision.reason, envelope.job)

    def carry_out(self) -> dict[int, str]:
        """Of what could not be done, the place and why: its message has to come back."""
        ended, self._ended = self._ended, []
        failed: dict[int, str] = {}
        for act, some in self._acts(ended):
            try:
                failed |= act(some) or {}
            except Exception as error:  # noqa: BLE001 whatever it was: those messages come back, the others are done
                failed |= {each.place: f"{type(error).__name__}: {error}" for each in some}
        return failed

    def _note(self, place: int, envelope: Envelope, why: str, what: str) -> None:
        member = Member.parse(envelope.batch) if envelope.batch is not None else None
        then = None if why or envelope.then is None else self._follow(envelope.then)
        if member is not None or then is not None:
            self._ended.append(_Ended(place, member, then, f"{what} {why}" if why else ""))

    def _follow(self, member: object) -> Follow | None:
        try:
            return Follow.of(member)
        except BadEnvelope as error:
            self.trouble(str(error))
            return None

    def _acts(
        self, ended: Sequence[_Ended]
    ) -> Iterator[tuple[Callable[[Sequence[_Ended]], Failed | None], Sequence[_Ended]]]:
        """One request for all of a queue, one write for all of a page that succeeded, one for each that failed."""
        queues: dict[str, list[_Ended]] = defaultdict(list)
        pages: dict[tuple[str, int], list[_Ended]] = defaultdict(list)
        for each in ended:
            if each.then is not None:
                queues[each.then.queue].append(each)
            if each.member is not None and each.why:
                yield self._fail, [each]
            elif each.member is not None:
                pages[each.member.batch, each.member.page].append(each)
        for some in queues.values():
            yield self._send, some
        for some in pages.values():
            yield self._mark, some

    def _send(self, some: Sequence[_Ended]) -> Failed:
        """One that cannot be sent brings back its own message, and no other's."""
        outcomes = self.producer.forward([each.then for each in some if each.then is not None])
        told = zip(some, outcomes, strict=True)
        return {each.place: f"{sent.outcome}: {sent.reason}" for each, sent in told if sent.outcome != "accepted"}

    def _mark(self, some: Sequence[_Ended]) -> None:
        members = [each.member for each in some if each.member is not None]
        batch, page = members[0].batch, members[0].page
        write = done_write(batch, page, [each.number for each in members], expires=self.ledger.expires())
        self._gathering.page(batch, page, write)

    def _fail(self, some: Sequence[_Ended]) -> None:
        for each in some:
            assert each.member is not None
            write = bad_write(each.member, each.why, expires=self.ledger.expires())
            self._gathering.page(each.member.batch, each.member.page, write)

    @property
    def _gathering(self) -> Gathering:
        return Gathering(store=self.ledger.store, producer=self.producer, clock=self.ledger.clock, ttl=self.ledger.ttl)
