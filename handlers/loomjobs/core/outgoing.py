"""Messages on their way to SQS: their size, and how they are packed into batch calls."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

from loomjobs.core import limits
from loomjobs.core.call import Call, expiry, fifo_id
from loomjobs.core.envelope import render
from loomjobs.core.errors import PayloadTooLarge


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One message for one queue. `size` is what SQS counts, in bytes."""

    call: Call
    id: str
    key: str
    body: str
    group: str | None
    dedup: str | None
    delay: int

    @property
    def size(self) -> int:
        return len(self.body.encode())


class Sendable(Protocol):
    """What SQS is told of a message: an Outgoing, or a row of the outbox, which knows no declarations."""

    @property
    def body(self) -> str: ...
    @property
    def group(self) -> str | None: ...
    @property
    def dedup(self) -> str | None: ...
    @property
    def delay(self) -> int: ...
    @property
    def size(self) -> int: ...


S = TypeVar("S", bound=Sendable)

Lane: TypeAlias = tuple[str, int]
"""A queue, and on FIFO one of its parts."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one message: `refused` is final, `again` was the server's fault, `unknown` had no answer."""

    outcome: Literal["accepted", "refused", "again", "unknown"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """What work inherits from the run that sends it."""

    trace: str | None = None
    hops: int = 0
    expires: datetime | None = None


def address(call: Call, *, id: str, now: datetime, origin: Origin) -> Outgoing:
    """The message of a call. Raises PayloadTooLarge, saying by how much; InvalidOption for a deadline in the past.

    It expires when its call says, and no later than the run that sends it.
    """
    key = call.key if call.key is not None else id
    body = render(
        job=call.job.name,
        payload_json=call.encoded,
        id=id,
        key=key,
        payload_version=call.job.options.version,
        enqueued_at=now,
        trace=origin.trace,
        hops=origin.hops,
        expires=_sooner(expiry(call, now), origin.expires),
    )
    size = len(body.encode())
    if size > limits.SQS_MESSAGE_BYTES:
        raise PayloadTooLarge(call.job.name, size, limits.SQS_MESSAGE_BYTES)
    fifo = call.job.queue.fifo
    return Outgoing(
        call=call,
        id=id,
        key=key,
        body=body,
        group=call.group,
        dedup=_dedup(call, key) if fifo else None,
        delay=call.delay,
    )


def lane(message: Outgoing, parts: int) -> Lane:
    """Messages of one FIFO group are always in the same of so many parts of their queue; sent one batch at a time,
    none of them overtakes another. A standard queue has one part, and no order."""
    queue = message.call.job.queue
    return queue.name, zlib.crc32((message.group or "").encode()) % parts if queue.fifo else 0


class Pack(Generic[S]):
    """Messages of one queue within SQS's ten entries and one mebibyte."""

    def __init__(self) -> None:
        self.messages: list[S] = []
        self._size = 0

    def fits(self, message: S) -> bool:
        is_full = len(self.messages) == limits.SQS_BATCH_ENTRIES
        return not is_full and (not self.messages or self._size + message.size <= limits.SQS_MESSAGE_BYTES)

    def add(self, message: S) -> None:
        self.messages.append(message)
        self._size += message.size


def packs(messages: Sequence[S]) -> Iterator[Sequence[S]]:
    """All of them in order, as batches that SQS takes."""
    pack: Pack[S] = Pack()
    for message in messages:
        if not pack.fits(message):
            yield pack.messages
            pack = Pack()
        pack.add(message)
    if pack.messages:
        yield pack.messages


def _sooner(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _dedup(call: Call, key: str) -> str:
    """Equal for the same job, key and payload: SQS drops a repeat within five minutes; another payload gets through,
    so that the worker can report the conflict."""
    digest = hashlib.sha256(call.encoded).hexdigest()[:32]
    return fifo_id(hashlib.sha256(f"{call.job.name}#{key}#{digest}".encode("utf-8", "surrogatepass")).hexdigest())
