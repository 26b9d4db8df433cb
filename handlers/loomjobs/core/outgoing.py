"""Messages on their way to SQS: their size, and how they are packed into batch calls."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

from loomjobs.core import limits
from loomjobs.core.backpressure import Reject
from loomjobs.core.call import Call
from loomjobs.core.offload import Parcel


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One message for one queue, due `delay` seconds after it is sent. `size` is what SQS counts, in bytes.

    `payload` is the JSON that stands in the body, without encrypted fields; `parcel` has
    it where it goes beside the message, and is to be stored first.
    """

    call: Call
    id: str
    key: str
    body: str = field(repr=False)
    payload: bytes = field(repr=False)
    group: str | None
    dedup: str | None
    delay: int
    tenant: str | None = None
    trace: str | None = None
    correlation: str | None = None
    parcel: Parcel | None = None
    size: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", len(self.body.encode()))


class Sendable(Protocol):
    """What SQS is told of a message: an Outgoing, or a row of the outbox, which knows no declarations.

    `group` orders on FIFO queues, where there is a `dedup` too; on standard ones it is the tenant, and orders nothing.
    """

    @property
    def id(self) -> str: ...
    @property
    def body(self) -> str: ...
    @property
    def group(self) -> str | None: ...
    @property
    def dedup(self) -> str | None: ...
    @property
    def trace(self) -> str | None: ...
    @property
    def delay(self) -> int: ...
    @property
    def size(self) -> int: ...


S = TypeVar("S", bound=Sendable)

Lane: TypeAlias = tuple[str, int]
"""A queue, and on FIFO one of its parts."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one message: `refused` is final, `again` was the server's fault, `unknown` had no answer.

    - `duplicate` was not sent: the enqueue with the id `stands` ("" where it is not known) does the same.
    - `full` was not sent: the queue's `admit=` refused it, by `rejection`.
    """

    outcome: Literal["accepted", "refused", "again", "unknown", "duplicate", "full"]
    reason: str = ""
    stands: str = ""
    rejection: Reject | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """What work inherits from the run, or else the caller, that sends it."""

    trace: str | None = None
    correlation: str | None = None
    tenant: str | None = None
    hops: int = 0
    expires: datetime | None = None

    def deeper(self) -> Origin:
        """Of work one further in the chain, which has a deadline of its own or none."""
        return replace(self, hops=self.hops + 1, expires=None)


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


def is_far(message: Sendable) -> bool:
    """Due later than SQS can hold it, so that a one-off schedule sends it. FIFO queues, whose messages have a
    deduplication id, have no delay per message at all."""
    return message.delay > limits.SQS_DELAY_SECONDS or (message.delay > 0 and message.dedup is not None)


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
