"""`loomjobs relay-sql`: sends what applications put into an outbox in PostgreSQL."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from loomjobs.cli.project import environment
from loomjobs.core import names
from loomjobs.core.errors import LoomjobsError
from loomjobs.core.outbox import Row, age


def add(commands: Any) -> None:
    relays = commands.add_parser("relay-sql", help="send the rows of an outbox in PostgreSQL, until it is stopped")
    relays.add_argument("--env", help=f"environment (default: {names.ENV})")
    relays.add_argument("--table", default="loomjobs_outbox", help="the outbox's table (default: loomjobs_outbox)")
    relays.add_argument("--once", action="store_true", help="send what there is and end")
    relays.set_defaults(run=relay)
    relays.epilog = "The database is that of DATABASE_URL, else of libpq's own variables (PGHOST, PGDATABASE, ...)."


def relay(given: argparse.Namespace) -> int:
    """Ends with 0 after SIGTERM or SIGINT; with `--once`, with 1 where rows had to wait."""
    try:
        from loomjobs.sql import SqlOutbox, SqlRelay, opened
    except ImportError as error:
        raise LoomjobsError(f"the outbox in PostgreSQL needs psycopg: pip install 'loomjobs[sql]' ({error})") from None
    from loomjobs.aws.connect import process_sender

    if given.env is not None:
        chosen = environment(given.env)
        os.environ |= {names.ENV: chosen.name, names.APP: chosen.app}
    address = os.environ.get("DATABASE_URL", "")
    made = SqlRelay(SqlOutbox(given.table), connect=lambda: opened(address), outlet=process_sender(), journal=Lines())
    if given.once:
        with opened(address) as connection:
            while (done := made.once(connection)).sent and not done.left:
                pass
        return int(bool(done.left))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    made.run(stop)
    return 0


class Lines:
    """Implements the relay's journal as lines on standard output."""

    def sent(self, rows: Sequence[Row], /, *, now: datetime) -> None:
        for row in rows:
            self._say("relayed", id=row.id, queue=row.queue, age_ms=age(row, now=now))

    def refused(self, id: str, queue: str, reason: str, /) -> None:
        self._say("not relayed", id=id, queue=queue, reason=reason)

    def postponed(self, rows: Sequence[Row], reason: str, /) -> None:
        self._say("relay postponed", rows=len(rows), reason=reason)

    def lag(self, milliseconds: int, /) -> None:
        if milliseconds > 60_000:
            self._say("relay lags", lag_ms=milliseconds)

    def _say(self, what: str, **fields: object) -> None:
        told = " ".join(f"{name}={value}" for name, value in fields.items())
        print(f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {what} {told}", file=sys.stdout, flush=True)
