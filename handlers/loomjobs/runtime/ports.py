"""What the use cases need from the outside, each in one to three methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias

from loomjobs.core.decision import Decision, Failure
from loomjobs.core.delivery import Delivery
from loomjobs.core.errors import StoreUnavailable
from loomjobs.core.letter import Letter
from loomjobs.core.outgoing import Origin, Outgoing, Sendable, Sent
from loomjobs.core.reading import Reading
from loomjobs.core.write import Item, Write, Written

Clock: TypeAlias = Callable[[], datetime]
"""The current instant, UTC."""

Delivered: TypeAlias = "Sequence[tuple[Outgoing, Sent]]"
"""What became of each message of a batch, after all tries."""

Deliver: TypeAlias = Callable[[Sequence[Outgoing]], Delivered]
"""Sends one batch of one queue."""

Caller: TypeAlias = Callable[[], Origin]
"""What a call inherits that no job sends, read in the caller's thread or task."""

Roll: TypeAlias = Callable[[], float]
"""A uniform random number in [0, 1)."""

Token: TypeAlias = Callable[[], str]
"""A new unguessable text: ids and claim owners."""


Answer: TypeAlias = Written | StoreUnavailable
"""What became of one of many writes."""


class Store(Protocol):
    """Execution records. `write` and `read` raise StoreUnavailable when the answer is not known."""

    def write(self, write: Write, /) -> Written:
        """Carry out one conditional write; a refused one returns the item that refused it."""
        ...

    def write_many(self, writes: Sequence[Write], /) -> Sequence[Answer]:
        """Carry out writes of different items, in as few calls as the store has; an answer for each, in order.

        An applied one need not bring the new item. It does not raise.
        """
        ...

    def read(self, id: str, /) -> Item | None:
        """The item, strongly consistent."""
        ...


class Sender(Protocol):
    def send(self, queue: str, messages: Sequence[Sendable], /) -> Sequence[Sent]:
        """One batch call (at most ten, one mebibyte), an outcome for each message, in order. It does not raise for
        what SQS answers; ConfigurationError when the queue's address is not known."""
        ...


class Payloads(Protocol):
    """Objects beside messages. Its methods raise PayloadForbidden, PayloadUnavailable, and ConfigurationError where the
    bucket is not known."""

    def put(self, key: str, data: bytes, /) -> None:
        """Store, in place of what was there. Durable when it returns."""
        ...

    def get(self, key: str, /, *, most: int) -> bytes:
        """The object's first bytes, `most` of them at most. Raises PayloadMissing."""
        ...


class Depths(Protocol):
    def read(self, queue: str, /, *, age: bool) -> Reading:
        """Count a queue's messages now, and with `age` find out how old the oldest is. Raises whatever went wrong,
        ConfigurationError when the queue's address is not known."""
        ...


class DeadLetterQueue(Protocol):
    def park(self, letter: Letter, /) -> None:
        """Send to the dead-letter queue. Returns only after SQS accepted it; raises whatever went wrong otherwise."""
        ...


class Messages(Protocol):
    """The messages of the worker's own queue. Its methods do not raise: what they could not do is reported by
    the adapter, and changes no outcome."""

    def delete(self, deliveries: Sequence[Delivery], /) -> None:
        """Acknowledge, ahead of Lambda's own acknowledgement at the end of the invocation."""
        ...

    def hide(self, waits: Sequence[tuple[Delivery, int]], /) -> None:
        """Let each come back after so many whole seconds."""
        ...


class Renewals(Protocol):
    def renew(self, delivery: Delivery, seconds: float, /) -> None:
        """Have the body (`core.renewal`) sent to the same queue after `seconds`, as a fresh message. Raises whatever
        went wrong."""
        ...


class Valve(Protocol):
    def shut(self, seconds: float, /) -> None:
        """Stop the delivery of this worker's queue, and have it begin again after so long, at first with few workers.
        Raises whatever went wrong."""
        ...


Pulse: TypeAlias = "Callable[[timedelta, Callable[[], bool]], Callable[[], None]]"
"""Calls a function each interval, beside the running job, until it returns False; the result stops it for good."""


class Addresses(Protocol):
    """Where declared things are; raises ConfigurationError naming what was not given to this process."""

    def resource(self, name: str, /) -> str: ...
    def setting(self, name: str, /) -> str: ...
    def secret(self, name: str, /) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How one delivery ended, for logs and metrics. `job`, `id`, `key` are None where the message named none.

    `latency` is from when it was due to its start and `duration` of the job itself, both in seconds; `duration` is None
    when it did not run. `failure` is that of a run that failed, whatever was decided then, and `sorting` how it was
    classified. `detail` adds what only some endings have.
    """

    delivery: Delivery
    decision: Decision
    job: str | None = None
    id: str | None = None
    key: str | None = None
    tenant: str | None = None
    trace: str | None = None
    correlation: str | None = None
    payload_hash: str | None = None
    attempt: int = 0
    latency: float = 0.0
    duration: float | None = None
    failure: Failure | None = None
    sorting: str | None = None
    detail: str = ""


class Journal(Protocol):
    """Logs and metrics. Its methods do not raise."""

    def enqueued(self, messages: Sequence[Outgoing], /) -> None: ...
    def started(self, run: Run, /) -> None: ...
    def ended(self, run: Run, /) -> None: ...
    def counted(self, what: str, job: str | None, /) -> None:
        """One of something that is worth a metric and is no ending."""
        ...

    def trouble(self, what: str, /) -> None:
        """Something that changed no outcome but should be seen."""
        ...


class Silent:
    """A journal that keeps nothing."""

    def enqueued(self, messages: Sequence[Outgoing], /) -> None: ...
    def started(self, run: Run, /) -> None: ...
    def ended(self, run: Run, /) -> None: ...
    def counted(self, what: str, job: str | None, /) -> None: ...
    def trouble(self, what: str, /) -> None: ...
