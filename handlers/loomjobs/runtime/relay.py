"""The relay: sends the rows of the outbox and deletes those that SQS accepted.

Send, then delete: a crash between the two sends a row again, with the same job id and deduplication id, and the
execution record suppresses the second message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from loomjobs.core.errors import ConfigurationError
from loomjobs.core.outbox import BadRow, Row, age, due, old_before
from loomjobs.core.outgoing import Sendable, Sent, packs
from loomjobs.runtime.ports import Clock

SWEPT: Final = 100
"""Rows that a sweep holds in memory and sends at a time."""


class Outlet(Protocol):
    """The runtime's Sender, for messages whose declarations are not known here."""

    def send(self, queue: str, messages: Sequence[Sendable], /) -> Sequence[Sent]: ...


class Outbox(Protocol):
    def delete(self, rows: Sequence[Row], /) -> None:
        """Delete what was sent. Does not raise: a row that stays is sent again, and suppressed."""
        ...

    def written_before(self, at: int, /) -> Iterator[Row | BadRow]:
        """Rows of up to this instant (ms), in no order, read as it is consumed. Raises StoreUnavailable."""
        ...


class RelayJournal(Protocol):
    """Logs and metrics of the relay. Its methods do not raise."""

    def sent(self, rows: Sequence[Row], /, *, now: datetime) -> None: ...
    def refused(self, id: str, queue: str, reason: str, /) -> None:
        """SQS will never take it as it is: it stays in the table, and somebody has to look."""
        ...

    def postponed(self, rows: Sequence[Row], reason: str, /) -> None:
        """Not taken this time, and tried again."""
        ...

    def lag(self, milliseconds: int, /) -> None:
        """Age of the oldest row that the sweep found, 0 where it found none."""
        ...


@dataclass(slots=True)
class Forwarded:
    """What became of some rows: `sent`, `refused` (left in the table), `left` (to be tried again)."""

    sent: list[Row] = field(default_factory=list[Row])
    refused: list[Row] = field(default_factory=list[Row])
    left: list[Row] = field(default_factory=list[Row])


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    outbox: Outbox
    outlet: Outlet
    journal: RelayJournal
    clock: Clock

    def forward(self, rows: Sequence[Row]) -> Forwarded:
        """Send rows to their queues, ten to a call, and delete those that SQS accepted.

        Behind a row that has to wait, nothing more is sent to its queue: fewer repeats, and no overtaking in a group.
        """
        done = Forwarded()
        for queue, waiting in _by_queue(rows).items():
            packs_ = packs([due(row, now=self.clock()) for row in waiting])
            for pack in packs_:
                if not self._send(queue, pack, done):
                    done.left += [row for rest in packs_ for row in rest]
        return done

    def sweep(self, *, enough_time: Callable[[], bool]) -> int:
        """Send what the stream left behind, while there is time; how many were sent. Publishes the lag it found."""
        now = self.clock()
        oldest, count, stopped = 0, 0, set[str]()
        for some in _chunks(self._rows(now), SWEPT):
            oldest = max(oldest, *(age(row, now=now) for row in some))
            some.sort(key=lambda row: row.at)
            done = self.forward([row for row in some if row.queue not in stopped])
            stopped |= {row.queue for row in done.left}
            count += len(done.sent)
            if not enough_time():
                break
        self.journal.lag(oldest)
        return count

    def _rows(self, now: datetime) -> Iterator[Row]:
        for row in self.outbox.written_before(old_before(now)):
            if isinstance(row, BadRow):
                self.journal.refused(row.id, "", str(row))
            else:
                yield row

    def _send(self, queue: str, pack: Sequence[Row], done: Forwarded) -> bool:
        """Send one pack; False when one of it has to wait."""
        try:
            outcomes = self.outlet.send(queue, pack)
        except ConfigurationError as error:  # a queue that is gone: it must not hold up the others
            outcomes = [Sent("refused", str(error))] * len(pack)
        accepted: list[Row] = []
        waiting: list[Row] = []
        reason = ""
        for row, sent in zip(pack, outcomes, strict=True):
            if sent.outcome == "accepted":
                accepted.append(row)
            elif sent.outcome == "refused":
                done.refused.append(row)
                self.journal.refused(row.id, queue, sent.reason)
            else:
                waiting.append(row)
                reason = sent.reason
        if accepted:
            self.journal.sent(accepted, now=self.clock())
            self.outbox.delete(accepted)
        if waiting:
            self.journal.postponed(waiting, reason)
        done.sent += accepted
        done.left += waiting
        return not waiting


def _by_queue(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.queue].append(row)
    return found


def _chunks(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    chunk: list[Row] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
