"""Puts calls into queues: in as few requests as SQS allows, and with an outcome for every one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from loomjobs.core import limits
from loomjobs.core.call import Call, Enqueued, Report
from loomjobs.core.errors import NotSent, UnknownOutcome
from loomjobs.core.outgoing import Origin, Outgoing, Sent, address, packs
from loomjobs.runtime.ports import Clock, Journal, Roll, Sender, Token

TRIES = 4
"""Sends of one message while the failure is the server's: SQS answered that it did not take it."""
_PAUSE = 0.1


class Producer:
    """Stateless between calls, so threads may share one. `pause` waits so many seconds between tries."""

    def __init__(
        self,
        sender: Sender,
        *,
        clock: Clock,
        token: Token,
        roll: Roll,
        journal: Journal,
        pause: Callable[[float], None],
    ) -> None:
        self._sender = sender
        self._clock = clock
        self._token = token
        self._roll = roll
        self.journal = journal
        self._pause = pause

    def address(self, one: Call, *, origin: Origin) -> Outgoing:
        """The message of a call with an id of its own, for somebody else to send."""
        return address(one, id=self._token(), now=self._clock(), origin=origin)

    def enqueue(self, one: Call, *, origin: Origin = Origin()) -> Enqueued:  # noqa: B008 it is frozen
        """Send one. Raises NotSent or UnknownOutcome; returning means that SQS has it."""
        message = self.address(one, origin=origin)
        self._flush(one.job.queue.name, [message]).settle()
        return Enqueued(message.id, message.key, "delayed" if message.delay else "accepted")

    def enqueue_many(self, calls: Iterable[Call], *, origin: Origin = Origin()) -> Report:  # noqa: B008 it is frozen
        """Send any number, reading `calls` as it goes: memory holds at most ten messages a queue.

        Raises NotSent or UnknownOutcome at the first batch that was not accepted whole, with `report` saying how far
        it came; what was not read from `calls` by then is still in it.
        """
        tally = _Tally()
        waiting: dict[str, list[Outgoing]] = defaultdict(list)
        for one in calls:
            buffer = waiting[one.job.queue.name]
            buffer.append(self.address(one, origin=origin))
            if len(buffer) == limits.SQS_BATCH_ENTRIES:
                tally.add(self._flush(one.job.queue.name, waiting.pop(one.job.queue.name)))
                if tally.failed:
                    break
        for queue, buffer in waiting.items():
            tally.add(_untried(buffer) if tally.failed else self._flush(queue, buffer))
        return tally.settle()

    def _flush(self, queue: str, messages: Sequence[Outgoing]) -> _Tally:
        tally = _Tally()
        for pack in packs(messages):
            tally.add(_untried(pack) if tally.failed else self._send(queue, pack))
        return tally

    def _send(self, queue: str, pack: Sequence[Outgoing]) -> _Tally:
        """One batch call, and again for what the server failed to take; never for what may have arrived."""
        tally = _Tally()
        for attempt in range(1, TRIES + 1):
            outcomes = list(zip(pack, self._sender.send(queue, pack), strict=True))
            final = attempt == TRIES
            for message, sent in outcomes:
                if sent.outcome != "again" or final:
                    tally.count(message, sent)
            self.journal.enqueued([message for message, sent in outcomes if sent.outcome == "accepted"])
            pack = [message for message, sent in outcomes if sent.outcome == "again"]
            if not pack or final:
                break
            self._pause(_PAUSE * 2**attempt * self._roll())
        return tally


@dataclass(slots=True)
class _Tally:
    accepted: int = 0
    unsent: list[Call] = field(default_factory=list[Call])
    unknown: list[Call] = field(default_factory=list[Call])
    reason: str = ""

    @property
    def failed(self) -> bool:
        return bool(self.unsent or self.unknown)

    def count(self, message: Outgoing, sent: Sent) -> None:
        if sent.outcome == "accepted":
            self.accepted += 1
            return
        (self.unknown if sent.outcome == "unknown" else self.unsent).append(message.call)
        self.reason = self.reason or sent.reason

    def add(self, other: _Tally) -> None:
        self.accepted += other.accepted
        self.unsent += other.unsent
        self.unknown += other.unknown
        self.reason = self.reason or other.reason

    def settle(self) -> Report:
        """The report, or the error that carries it: a caller cannot overlook work that was not taken."""
        report = Report(accepted=self.accepted, unsent=tuple(self.unsent), unknown=tuple(self.unknown))
        if report.unknown:
            raise UnknownOutcome(report, self.reason)
        if report.unsent:
            raise NotSent(report, self.reason)
        return report


def _untried(messages: Iterable[Outgoing]) -> _Tally:
    """Behind a failure in the same call: not sent, so that nothing overtakes and the caller gets one answer."""
    return _Tally(unsent=[message.call for message in messages])
