"""Messages on their way to SQS: their size, and how they are packed into batch calls."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, TypeVar

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


def packs(messages: Sequence[S]) -> Iterator[Sequence[S]]:
    """Batches within SQS's ten entries and one mebibyte, in order."""
    batch: list[S] = []
    size = 0
    for message in messages:
        if batch and (len(batch) == limits.SQS_BATCH_ENTRIES or size + message.size > limits.SQS_MESSAGE_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += message.size
    if batch:
        yield batch


def _sooner(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _dedup(call: Call, key: str) -> str:
    """Equal for the same job, key and payload: SQS drops a repeat within five minutes; another payload gets through,
    so that the worker can report the conflict."""
    digest = hashlib.sha256(call.encoded).hexdigest()[:32]
    return fifo_id(hashlib.sha256(f"{call.job.name}#{key}#{digest}".encode("utf-8", "surrogatepass")).hexdigest())
