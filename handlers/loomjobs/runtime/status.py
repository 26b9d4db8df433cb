"""What has become of a job: its execution record, read."""

from __future__ import annotations

import time
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, TypeAlias, TypeVar, overload

from loomjobs.core import record as states
from loomjobs.core.call import call
from loomjobs.core.errors import InvalidOption, LoomjobsError
from loomjobs.core.job import Job
from loomjobs.core.record import Record, record_id
from loomjobs.core.result import decode_result
from loomjobs.runtime.ports import Store

P = TypeVar("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

State: TypeAlias = Literal["unknown", "queued", "running", "waiting", "succeeded", "dead", "cancelled", "expired"]

_STATES: dict[str, State] = {
    states.QUEUED: "queued",
    states.INPROGRESS: "running",
    states.WAITING: "waiting",
    states.COMPLETED: "succeeded",
    states.DYING: "dead",
    states.DEAD: "dead",
    states.CANCELLED: "cancelled",
    states.EXPIRED: "expired",
}

_EVERY = timedelta(milliseconds=500)
_store: ContextVar[Store | None] = ContextVar("store", default=None)


class NoResult(LoomjobsError):
    """The job has not succeeded, so there is no result."""


@dataclass(frozen=True, slots=True)
class Status(Generic[R_co]):
    """`unknown` also means enqueued and not yet started; sent with `track=` or `unique_for=`, that is `queued`.

    - `attempts`: failed ones, and the one that runs or succeeded.
    - `why`: the reason of a death. `error`: the newest failure, masked as in the logs.
    - `progress`: what the job last said with `ctx.progress`: done, total.
    """

    job: Job[Any, Any]
    key: str
    state: State
    attempts: int
    why: str = ""
    stored: str | None = None
    error: str = ""
    progress: tuple[int, int] | None = None

    @property
    def is_over(self) -> bool:
        """It ended, one way or the other."""
        return self.state in ("succeeded", "dead", "cancelled", "expired")

    def result(self) -> R_co:
        """The return value; None where it was too large to keep (256 bytes). Raises NoResult unless it succeeded."""
        if self.state != "succeeded":
            raise NoResult(f"{self.job.name} {self.key} is {self.state}")
        value: R_co = decode_result(self.stored, self.job)
        return value


@contextmanager
def reading(store: Store) -> Generator[None]:
    """Read from this store for the block."""
    token = _store.set(store)
    try:
        yield
    finally:
        _store.reset(token)


@overload
def status(job: Job[P, Coroutine[Any, Any, R]], payload: P, /) -> Status[R]: ...
@overload
def status(job: Job[P, R], payload: P, /) -> Status[R]: ...
@overload
def status(job: Job[Any, Coroutine[Any, Any, R]], /, *, key: str) -> Status[R]: ...
@overload
def status(job: Job[Any, R], /, *, key: str) -> Status[R]: ...
def status(job: Job[Any, Any], payload: Any = None, /, *, key: str | None = None) -> Status[Any]:
    """The state of the job with this payload's key, or with `key` itself: of an EACH_ENQUEUE job the `id` that
    `enqueue` returned, since its payload has no key. Raises InvalidOption."""
    return status_of(job, _key(job, payload, key))


def status_of(job: Job[Any, Any], key: str, /) -> Status[Any]:
    item = reader().read(record_id(job.name, key))
    record = None if item is None else Record.of(item)
    if record is None or record.is_released:
        return Status(job, key, "unknown", 0)
    state = state_of(record.status)
    attempts = record.attempts + (record.status in (states.COMPLETED, states.INPROGRESS))
    return Status(job, key, state, attempts, record.why, record.result, _newest(record), record.progress)


@overload
def wait(
    job: Job[P, Coroutine[Any, Any, R]], payload: P, /, *, timeout: timedelta, every: timedelta = ...
) -> Status[R]: ...
@overload
def wait(job: Job[P, R], payload: P, /, *, timeout: timedelta, every: timedelta = ...) -> Status[R]: ...
@overload
def wait(
    job: Job[Any, Coroutine[Any, Any, R]], /, *, key: str, timeout: timedelta, every: timedelta = ...
) -> Status[R]: ...
@overload
def wait(job: Job[Any, R], /, *, key: str, timeout: timedelta, every: timedelta = ...) -> Status[R]: ...
def wait(
    job: Job[Any, Any],
    payload: Any = None,
    /,
    *,
    timeout: timedelta,
    key: str | None = None,
    every: timedelta = _EVERY,
) -> Status[Any]:
    """The status once the job is over, looked up `every` half second: for tests and scripts, not for request handlers.

    Raises TimeoutError, with the last state, after `timeout`; InvalidOption as `status` does.
    """
    key = _key(job, payload, key)
    until = time.monotonic() + timeout.total_seconds()
    while not (now := status_of(job, key)).is_over:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"{job.name} {key} is {now.state} after {timeout}")
        time.sleep(min(left, every.total_seconds()))
    return now


def _key(job: Job[Any, Any], payload: Any, key: str | None) -> str:
    if key is not None and payload is not None:
        raise InvalidOption(f"{job.name}: give a payload or key=, not both")
    found = call(job, payload).key if key is None else key
    if not found:
        raise InvalidOption(
            f"{job.name}: with EACH_ENQUEUE every enqueue has a key of its own, so a payload has no status. Pass key= "
            "with the id that enqueue returned."
        )
    return found


def state_of(status: str) -> State:
    """A record's status in the words of `Status`."""
    return _STATES.get(status, "unknown")


def _newest(record: Record) -> str:
    if not record.history:
        return ""
    last = record.history[-1]
    return f"{last.get('kind', '')}: {last.get('message', '')}"


def reader() -> Store:
    """The records of this context, else the process's own, found on first use from its environment."""
    chosen = _store.get()
    if chosen is not None:
        return chosen
    from loomjobs.aws.connect import process_store  # goes up, like the default transport of `sending`

    return process_store()
