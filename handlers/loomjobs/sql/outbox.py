"""The outbox table, and putting calls into it: they are enqueued exactly when the caller's transaction commits."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, LiteralString, cast

from psycopg import AsyncConnection, Connection
from psycopg.sql import SQL, Composed, Identifier, Literal

from loomjobs.core.address import address
from loomjobs.core.call import Call, Enqueued
from loomjobs.core.errors import ConfigurationError
from loomjobs.core.outbox import Row, row_of
from loomjobs.core.outgoing import Outgoing
from loomjobs.core.sealed import Cipher
from loomjobs.runtime.caller import caller
from loomjobs.runtime.ports import Payloads
from loomjobs.runtime.storing import Storing

_COLUMNS: LiteralString = "id, queue, body, group_id, dedup, delay, at"


class SqlOutbox:
    """Stateless; one for an application. `table` is the table's name, with its schema where it has one. Jobs with
    encrypted fields need a `cipher`, `loomjobs.aws.connect.process_cipher()`.
    `payloads` is where payloads beside their messages are stored; left out, the process's bucket, found by
    `LOOMJOBS_ENV`.

    Nothing here commits or rolls back: that is the caller's, and the jobs' fate with it.
    """

    def __init__(
        self, table: str = "loomjobs_outbox", *, cipher: Cipher | None = None, payloads: Payloads | None = None
    ) -> None:
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?", table):
            raise ConfigurationError(f"{table!r} is not a table's name; use lower-case letters, digits and underscores")
        self.name = table
        self._cipher = cipher
        self._payloads = payloads
        self.table = Identifier(*table.split("."))

    @property
    def channel(self) -> str:
        """What a commit notifies, so that a relay that listens need not poll."""
        return self.name.replace(".", "_")

    def create(self, connection: Connection[Any]) -> None:
        """Make the table unless it is there. Applications with migrations take the text of `ddl` instead."""
        connection.execute(self._ddl())

    def ddl(self, connection: Connection[Any]) -> str:
        """The statement that makes the table, for a migration."""
        return self._ddl().as_string(connection)

    def add(self, connection: Connection[Any], *calls: Call) -> list[Enqueued]:
        """Put calls into the caller's transaction, in order. Raises PayloadTooLarge, InvalidOption; nothing is sent
        before the commit, and nothing at all after a rollback. Payloads that go beside their messages are stored here
        and now, one request each; raises PayloadForbidden, PayloadUnavailable, ConfigurationError."""
        rows = _Rows.of(calls, self._cipher)
        self._store(rows)
        with connection.cursor() as cursor:
            cursor.executemany(self._insert(), rows.values)
            cursor.execute(self._notify())
        return rows.enqueued

    async def aadd(self, connection: AsyncConnection[Any], *calls: Call) -> list[Enqueued]:
        """`add` for asyncio."""
        rows = _Rows.of(calls, self._cipher)
        await asyncio.to_thread(self._store, rows)
        async with connection.cursor() as cursor:
            await cursor.executemany(self._insert(), rows.values)
            await cursor.execute(self._notify())
        return rows.enqueued

    def oldest(self, *, limit: int) -> Composed:
        """The next rows in order, locked; those that SQS refused for good are left alone."""
        return SQL(
            f"SELECT {_COLUMNS} FROM {{}} WHERE refused IS NULL ORDER BY seq LIMIT {{}} FOR UPDATE"  # noqa: S608 our own column names
        ).format(self.table, Literal(limit))

    def delete(self) -> Composed:
        return SQL("DELETE FROM {} WHERE id = ANY(%s)").format(self.table)

    def refuse(self) -> Composed:
        return SQL("UPDATE {} SET refused = %s WHERE id = %s").format(self.table)

    def lag(self) -> Composed:
        """Seconds since the oldest row that is still to be sent was written; no row where there is none."""
        return SQL("SELECT extract(epoch FROM clock_timestamp() - min(at)) FROM {} WHERE refused IS NULL").format(
            self.table
        )

    def lock(self) -> Composed:
        """One relay sends at a time, so that a FIFO group stays in order; it holds this until its transaction ends."""
        return SQL("SELECT pg_try_advisory_xact_lock(hashtext({}))").format(Literal(f"loomjobs:{self.name}"))

    def _store(self, rows: _Rows) -> None:
        parcels = [message for message in rows.messages if message.parcel is not None]
        if parcels:
            Storing(self._payloads or _process_payloads()).store(parcels)

    def _ddl(self) -> Composed:
        return SQL(
            "CREATE TABLE IF NOT EXISTS {} ("
            "seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE, queue text NOT NULL, "
            "body text NOT NULL, group_id text, dedup text, delay bigint NOT NULL DEFAULT 0, "
            "at timestamptz NOT NULL, refused text)"
        ).format(self.table)

    def _insert(self) -> Composed:
        return SQL(f"INSERT INTO {{}} ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s)").format(self.table)  # noqa: S608 as above

    def _notify(self) -> Composed:
        return SQL("SELECT pg_notify({}, '')").format(Literal(self.channel))


def row_from(values: Sequence[Any]) -> Row:
    """A row as `oldest` selects it."""
    id, queue, body, group, dedup, delay, at = values
    moment = cast("datetime", at)
    return Row(id=id, queue=queue, body=body, group=group, dedup=dedup, delay=delay, at=int(moment.timestamp() * 1000))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Of some calls: their messages, what is inserted for each, and what the caller is told."""

    messages: list[Outgoing]
    values: list[tuple[Any, ...]]
    enqueued: list[Enqueued]

    @classmethod
    def of(cls, calls: Sequence[Call], cipher: Cipher | None) -> _Rows:
        now, origin = datetime.now(UTC), caller()
        messages = [address(one, id=secrets.token_hex(8), now=now, origin=origin, cipher=cipher) for one in calls]
        rows = [row_of(message, now=now) for message in messages]
        return cls(
            messages,
            [(row.id, row.queue, row.body, row.group, row.dedup, row.delay, now) for row in rows],
            [Enqueued(each.id, each.key, "delayed" if each.delay else "accepted") for each in messages],
        )


def _process_payloads() -> Payloads:
    from loomjobs.aws.connect import (
        process_payloads,
    )  # an import that goes up, as in runtime.sending: binding the default

    return process_payloads()
