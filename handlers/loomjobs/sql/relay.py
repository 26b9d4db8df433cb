"""The relay of an outbox in PostgreSQL: sends its rows in order, and deletes those that SQS accepted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from psycopg import Connection, OperationalError
from psycopg.sql import SQL, Identifier

from loomjobs.core.outbox import Row
from loomjobs.runtime.relay import Forwarded, Outlet, Relay, RelayJournal
from loomjobs.sql.outbox import SqlOutbox, row_from

ROWS: Final = 200
"""Rows of one transaction of the relay: twenty calls to SQS."""
POLL: Final = 5.0
"""Seconds after which a relay looks without having been notified: a notification is lost with its connection."""
_RETRY: Final = (0.5, 30.0)
"""Shortest and longest pause after the database or SQS did not answer."""


@dataclass(slots=True)
class _Locked:
    """Implements the relay's Outbox inside one transaction: what is sent is deleted when that commits."""

    rows: list[Row] = field(default_factory=list[Row])

    def delete(self, rows: Sequence[Row], /) -> None:
        self.rows.extend(rows)

    def written_before(self, at: int, /) -> Iterator[Row]:
        yield from ()  # nothing is left behind here: every pass takes the oldest first


@dataclass(slots=True)
class _Refusals:
    """Passes on to the journal, and keeps why SQS refused a row."""

    journal: RelayJournal
    reasons: dict[str, str] = field(default_factory=dict[str, str])

    def sent(self, rows: Sequence[Row], /, *, now: datetime) -> None:
        self.journal.sent(rows, now=now)

    def refused(self, id: str, queue: str, reason: str, /) -> None:
        self.reasons[id] = reason
        self.journal.refused(id, queue, reason)

    def postponed(self, rows: Sequence[Row], reason: str, /) -> None:
        self.journal.postponed(rows, reason)

    def lag(self, milliseconds: int, /) -> None:
        self.journal.lag(milliseconds)


class SqlRelay:
    """Any number may run; one sends at a time, the others stand by.

    A crash between SQS's answer and the commit sends those rows again, with the same job ids and deduplication ids: the
    worker suppresses the second message. `connect` opens a connection of the relay's own.
    """

    def __init__(
        self, outbox: SqlOutbox, *, connect: Callable[[], Connection[Any]], outlet: Outlet, journal: RelayJournal
    ) -> None:
        self._outbox = outbox
        self._connect = connect
        self._outlet = outlet
        self._journal = journal

    def once(self, connection: Connection[Any]) -> Forwarded:
        """Send what there is now, up to 200 rows, in a transaction of its own. Raises psycopg's errors."""
        with connection.transaction():
            locked = connection.execute(self._outbox.lock()).fetchone()
            if locked is None or not locked[0]:
                return Forwarded()  # another relay is at it
            rows = [row_from(values) for values in connection.execute(self._outbox.oldest(limit=ROWS)).fetchall()]
            kept, refusals = _Locked(), _Refusals(self._journal)
            relay = Relay(outbox=kept, outlet=self._outlet, journal=refusals, clock=_utc_now)
            done = relay.forward(rows)
            if kept.rows:
                connection.execute(self._outbox.delete(), ([row.id for row in kept.rows],))
            for id, reason in refusals.reasons.items():
                connection.execute(self._outbox.refuse(), (reason, id))
        return done

    def run(self, stop: threading.Event) -> None:
        """Relay until `stop` is set: at each commit's notification, and every five seconds. It outlives the database's
        and SQS's outages."""
        pause = _RETRY[0]
        while not stop.is_set():
            try:
                with self._connect() as connection:
                    self._serve(connection, stop)
                pause = _RETRY[0]
            except OperationalError as error:
                self._journal.postponed([], f"the database did not answer: {error}")
                stop.wait(pause)
                pause = min(pause * 2, _RETRY[1])

    def _serve(self, connection: Connection[Any], stop: threading.Event) -> None:
        connection.autocommit = True
        connection.execute(SQL("LISTEN {}").format(Identifier(self._outbox.channel)))
        pause = _RETRY[0]
        while not stop.is_set():
            done = self.once(connection)
            self._journal.lag(self._lag(connection))
            if done.left:
                stop.wait(pause)
                pause = min(pause * 2, _RETRY[1])
                continue
            pause = _RETRY[0]
            if not done.sent:
                for _ in connection.notifies(timeout=POLL, stop_after=1):
                    pass

    def _lag(self, connection: Connection[Any]) -> int:
        found = connection.execute(self._outbox.lag()).fetchone()
        return 0 if found is None or found[0] is None else max(0, int(found[0] * 1000))


def opened(address: str) -> Connection[Any]:
    """A connection that commits by itself outside of `transaction()`; an empty address takes libpq's own variables."""
    return Connection.connect(address, autocommit=True)


def _utc_now() -> datetime:
    return datetime.now(UTC)
