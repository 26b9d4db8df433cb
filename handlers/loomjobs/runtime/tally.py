"""What became of many messages, counted as their answers come."""

from __future__ import annotations

from collections.abc import Iterable

from loomjobs.core.backpressure import Reject
from loomjobs.core.call import Call, Rejected, Report
from loomjobs.core.errors import NotSent, QueueFull, UnknownOutcome
from loomjobs.core.outgoing import Outgoing, Sent
from loomjobs.runtime.ports import Journal


class Tally:
    """Used by one thread: the caller's, which also writes the journal."""

    def __init__(self, journal: Journal) -> None:
        self.accepted = 0
        self._duplicate = 0
        self._journal = journal
        self._rejected: list[Rejected] = []
        self._unsent: list[Call] = []
        self._unknown: list[Call] = []
        self._reason = ""
        self._full: tuple[str, Reject] | None = None

    @property
    def failed(self) -> bool:
        return bool(self._rejected or self._unsent or self._unknown)

    def count(self, delivered: Iterable[tuple[Outgoing, Sent]]) -> None:
        accepted: list[Outgoing] = []
        for message, sent in delivered:
            self._reason = self._reason or sent.reason
            match sent.outcome:
                case "accepted":
                    accepted.append(message)
                case "duplicate":
                    self._duplicate += 1
                case "refused":
                    self._rejected.append(Rejected(message.call, sent.reason))
                case "again":
                    self._unsent.append(message.call)
                case "full":
                    assert sent.rejection is not None
                    self._unsent.append(message.call)
                    self._full = self._full or (message.call.job.queue.name, sent.rejection)
                case "unknown":
                    self._unknown.append(message.call)
        self.accepted += len(accepted)
        self._journal.enqueued(accepted)

    def leave(self, messages: Iterable[Outgoing]) -> None:
        """Behind a failure in the same call: not sent, so that nothing overtakes and the caller gets one answer."""
        self._unsent += [message.call for message in messages]

    def report(self) -> Report:
        return Report(
            accepted=self.accepted,
            duplicate=self._duplicate,
            rejected=tuple(self._rejected),
            unsent=tuple(self._unsent),
            unknown=tuple(self._unknown),
        )

    def settle(self) -> Report:
        """The report, or the error that carries it: a caller cannot overlook work that was not taken."""
        report = self.report()
        if report.unknown:
            raise UnknownOutcome(report, self._reason)
        if self._full is not None:
            raise QueueFull(report, *self._full)
        if self.failed:
            raise NotSent(report, self._reason)
        return report
