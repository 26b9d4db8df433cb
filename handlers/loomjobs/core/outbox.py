"""A row of the outbox: a message that is committed and not sent yet. It is deleted after SQS accepted it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from loomjobs.core.errors import InvalidOption
from loomjobs.core.outgoing import Outgoing
from loomjobs.core.write import Item


class _Traced(msgspec.Struct):
    trace: str | None = None


OLD = timedelta(seconds=60)
"""The stream sends a row within about a second. One that is older was left behind, and is the sweep's."""


class BadRow(Exception):
    """An item of the outbox table that is no row; `id` where it has one."""

    def __init__(self, id: str, what: str) -> None:
        self.id = id
        super().__init__(f"row {id or '?'} of the outbox: {what}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Implements Sendable. `id` is the job's id, `at` the instant it was written, in ms; `delay` counts from then."""

    id: str
    queue: str
    body: str = field(repr=False)
    group: str | None
    dedup: str | None
    delay: int
    at: int

    @property
    def size(self) -> int:
        return len(self.body.encode())

    @property
    def trace(self) -> str | None:
        """The envelope's. A body that is none has none."""
        try:
            return msgspec.json.decode(self.body, type=_Traced).trace
        except (msgspec.MsgspecError, UnicodeEncodeError):
            return None


def row_of(message: Outgoing, *, now: datetime) -> Row:
    """The message as it will be sent, whatever is deployed by then. Raises InvalidOption for what looks at the records
    before it is sent: the relay does not."""
    if message.call.unique_for is not None or message.call.track:
        raise InvalidOption(
            f"{message.call.job.name}: unique_for= and track= write a record before the message, which an outbox does "
            "not. Leave them out; the key suppresses a second effect."
        )
    return Row(
        id=message.id,
        queue=message.call.job.queue.name,
        body=message.body,
        group=message.group,
        dedup=message.dedup,
        delay=message.delay,
        at=_ms(now),
    )


def due(row: Row, *, now: datetime) -> Row:
    """The row with what is left of its delay."""
    return replace(row, delay=max(0, row.delay - age(row, now=now) // 1000)) if row.delay else row


def age(row: Row, *, now: datetime) -> int:
    """Milliseconds since it was written; hosts' clocks differ, so never below 0."""
    return max(0, _ms(now) - row.at)


def old_before(now: datetime) -> int:
    """Rows written up to this instant, in ms, are the sweep's."""
    return _ms(now - OLD)


def to_item(row: Row) -> Item:
    """As stored; what is not there is left out."""
    item: dict[str, Any] = {"id": row.id, "queue": row.queue, "body": row.body, "at": row.at}
    optional = {"group": row.group, "dedup": row.dedup, "delay": row.delay or None}
    return item | {name: value for name, value in optional.items() if value is not None}


def of_item(item: Mapping[str, Any]) -> Row:
    """A stored item as a row; unknown attributes are a later version's. Raises BadRow."""
    id = item.get("id")
    id = id if isinstance(id, str) else ""
    return Row(
        id=_text(item, "id", id),
        queue=_text(item, "queue", id),
        body=_text(item, "body", id),
        group=_text(item, "group", id) if "group" in item else None,
        dedup=_text(item, "dedup", id) if "dedup" in item else None,
        delay=_number(item, "delay", id) if "delay" in item else 0,
        at=_number(item, "at", id),
    )


def _text(item: Mapping[str, Any], name: str, id: str) -> str:
    value = item.get(name)
    if not isinstance(value, str) or not value:
        raise BadRow(id, f"{name} is no text")
    return value


def _number(item: Mapping[str, Any], name: str, id: str) -> int:
    value = item.get(name)
    if not isinstance(value, int):
        raise BadRow(id, f"{name} is no number")
    return value


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
