"""Cancelling a job by its payload or key, on the records of this process."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar, overload

from loomjobs.core.call import call
from loomjobs.core.cancel import ROUNDS, Already, Ask, Asked, End, TooLate, next_step
from loomjobs.core.defaults import RECORD_TTL
from loomjobs.core.errors import InvalidOption, StoreUnavailable
from loomjobs.core.job import Job
from loomjobs.core.key import EACH_ENQUEUE
from loomjobs.core.record import Record, record_id
from loomjobs.runtime.ports import Clock, Store
from loomjobs.runtime.status import State, reader, state_of

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What a cancel came to.

    - `cancelled`: it will not run; its message is acknowledged when it arrives.
    - `requested`: it runs. `ctx.cancelled` tells the run, which may still complete; it is not tried again.
    - `too-late`: it has ended, as `state` says.
    """

    job: Job[Any, Any]
    key: str
    outcome: Literal["cancelled", "requested", "too-late"]
    state: State


@contextmanager
def telling_time(clock: Clock) -> Generator[None]:
    """Cancel by this clock for the block; the wall clock otherwise."""
    token = _clock.set(clock)
    try:
        yield
    finally:
        _clock.reset(token)


@overload
def cancel(job: Job[P, Any], payload: P, /) -> Cancelled: ...
@overload
def cancel(job: Job[Any, Any], /, *, key: str) -> Cancelled: ...
def cancel(job: Job[Any, Any], payload: Any = None, /, *, key: str | None = None) -> Cancelled:
    """Cancel the job with this payload's key, or with `key` itself; also before it is enqueued or has arrived.

    A key that is cancelled stays so until its record's TTL is over: enqueueing it again runs nothing. An
    `EACH_ENQUEUE` job is cancelled by the `id` that `enqueue` returned: `cancel(job, key=enqueued.id)`.
    Raises InvalidOption where no key can be told, StoreUnavailable when it is not known what it came to: do it again.
    """
    if key is None:
        return cancel_of(job, _key(job, payload), store=reader(), clock=_clock.get())
    if payload is not None:
        raise InvalidOption(f"{job.name}: cancel takes a payload or key=, not both")
    if not key:
        raise InvalidOption(f"{job.name}: key= is empty; pass the key, or the payload alone")
    return cancel_of(job, key, store=reader(), clock=_clock.get())


def cancel_of(job: Job[Any, Any], key: str, /, *, store: Store, clock: Clock) -> Cancelled:
    """The same by the key itself, on these records. A record that changes meanwhile is looked at again."""
    id = record_id(job.name, key)
    item = store.read(id)
    for _ in range(ROUNDS):
        now = int(clock().timestamp() * 1000)
        old = None if item is None else Record.of(item)
        match next_step(id, old, now=now, expires=now // 1000 + RECORD_TTL):
            case End(write):
                outcome = Cancelled(job, key, "cancelled", "cancelled")
            case Ask(write):
                outcome = Cancelled(job, key, "requested", "running")
            case Asked():
                return Cancelled(job, key, "requested", "running")
            case Already():
                return Cancelled(job, key, "cancelled", "cancelled")
            case TooLate(status):
                return Cancelled(job, key, "too-late", state_of(status))
        written = store.write(write)
        if written.applied:
            return outcome
        item = written.item if written.item is not None else store.read(id)
    raise StoreUnavailable(f"{job.name} {key}: its record changed {ROUNDS} times during the cancel; cancel it again")


def _key(job: Job[Any, Any], payload: Any) -> str:
    if job.options.key is EACH_ENQUEUE:
        raise InvalidOption(
            f"{job.name}: with EACH_ENQUEUE a payload names no single one. Pass key= with the id that enqueue returned."
        )
    key = call(job, payload).key
    assert key is not None
    return key


def _utc_now() -> datetime:
    return datetime.now(UTC)


_clock: ContextVar[Clock] = ContextVar("clock", default=_utc_now)
