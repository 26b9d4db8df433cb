"""What the use cases need from the outside, each in one to three methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

from loomjobs.core.decision import Decision
from loomjobs.core.delivery import Delivery
from loomjobs.core.letter import Letter
from loomjobs.core.outgoing import Outgoing, Sent
from loomjobs.core.write import Item, Write, Written

Clock: TypeAlias = Callable[[], datetime]
"""The current instant, UTC."""

Roll: TypeAlias = Callable[[], float]
"""A uniform random number in [0, 1)."""

Token: TypeAlias = Callable[[], str]
"""A new unguessable text: ids and claim owners."""


class Store(Protocol):
    """Execution records. Both methods raise StoreUnavailable when the answer is not known."""

    def write(self, write: Write, /) -> Written:
        """Carry out one conditional write; a refused one returns the item that refused it."""
        ...

    def read(self, id: str, /) -> Item | None:
        """The item, strongly consistent."""
        ...


class Sender(Protocol):
    def send(self, queue: str, messages: Sequence[Outgoing], /) -> Sequence[Sent]:
        """One batch call (at most ten, one mebibyte), an outcome for each message, in order. It does not raise for
        what SQS answers; ConfigurationError when the queue's address is not known."""
        ...


class DeadLetterQueue(Protocol):
    def park(self, letter: Letter, /) -> None:
        """Send to the dead-letter queue. Returns only after SQS accepted it; raises whatever went wrong otherwise."""
        ...


class Addresses(Protocol):
    """Where declared things are; raises ConfigurationError naming what was not given to this process."""

    def resource(self, name: str, /) -> str: ...
    def setting(self, name: str, /) -> str: ...
    def secret(self, name: str, /) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How one delivery ended, for logs and metrics. `job`, `id`, `key` are None where the message named none.

    `latency` is from send to start and `duration` of the job itself, both in seconds; `duration` is None when it did
    not run. `detail` adds what only some endings have.
    """

    delivery: Delivery
    decision: Decision
    job: str | None = None
    id: str | None = None
    key: str | None = None
    trace: str | None = None
    payload_hash: str | None = None
    attempt: int = 0
    latency: float = 0.0
    duration: float | None = None
    detail: str = ""


class Journal(Protocol):
    """Logs and metrics. Its methods do not raise."""

    def enqueued(self, messages: Sequence[Outgoing], /) -> None: ...
    def started(self, run: Run, /) -> None: ...
    def ended(self, run: Run, /) -> None: ...


class Silent:
    """A journal that keeps nothing."""

    def enqueued(self, messages: Sequence[Outgoing], /) -> None: ...
    def started(self, run: Run, /) -> None: ...
    def ended(self, run: Run, /) -> None: ...
