"""Messages on their way to SQS: their size, and how they are packed into batch calls."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from loomjobs.core import limits
from loomjobs.core.call import Call, fifo_id
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


def address(call: Call, *, id: str, now: datetime, origin: Origin) -> Outgoing:
    """The message of a call. Raises PayloadTooLarge, saying by how much."""
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


def packs(messages: Sequence[Outgoing]) -> Iterator[Sequence[Outgoing]]:
    """Batches within SQS's ten entries and one mebibyte, in order."""
    batch: list[Outgoing] = []
    size = 0
    for message in messages:
        if batch and (len(batch) == limits.SQS_BATCH_ENTRIES or size + message.size > limits.SQS_MESSAGE_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += message.size
    if batch:
        yield batch


def _dedup(call: Call, key: str) -> str:
    """Equal for the same job, key and payload: SQS drops a repeat within five minutes; another payload gets through,
    so that the worker can report the conflict."""
    digest = hashlib.sha256(call.encoded).hexdigest()[:32]
    return fifo_id(hashlib.sha256(f"{call.job.name}#{key}#{digest}".encode("utf-8", "surrogatepass")).hexdigest())
