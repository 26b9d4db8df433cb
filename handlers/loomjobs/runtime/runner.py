"""Runs one job to its end or its timeout, on the main thread, and brings back what happened."""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from loomjobs.core.context import JobContext
from loomjobs.core.job import Job
from loomjobs.core.signals import Transient
from loomjobs.runtime.caller import correlated
from loomjobs.runtime.context import RunContext, running
from loomjobs.runtime.remote import Remote


@dataclass(frozen=True, slots=True)
class Returned:
    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    error: BaseException


@dataclass(frozen=True, slots=True)
class NeverRan:
    """A plain function gave back a coroutine or generator: nothing of it ran. `kind` names what it was."""

    kind: str


@dataclass(frozen=True, slots=True)
class Unread:
    """Its payload, which is beside its message, could not be read: nothing of the job ran."""

    error: Exception


Ending: TypeAlias = Returned | Raised | NeverRan | Unread


class JobTimeout(Transient):
    """The job ran longer than its timeout and was stopped."""


GRACE = 1.0
"""Seconds that a job beyond its timeout, or what it left running, is given to end by itself."""


class Alarm(BaseException):
    """Not an Exception, so that an author's `except Exception` cannot keep a job alive past its timeout."""


class Runner:
    """Runs on the main thread. One per process: it keeps the event loop that every `async def` job shares, so that
    clients stay connected."""

    def __init__(self) -> None:
        self._loop: asyncio.Runner | None = None

    def run(self, job: Job[Any, Any], payload: Any, ctx: JobContext, *, seconds: float) -> Ending:
        """Call the job. Whatever it raises is its ending, not ours."""
        if job.is_async:
            return self._run_async(job, payload, ctx, seconds)
        try:
            with _alarm(seconds):
                return call(job, payload, ctx)
        except Alarm:
            return timed_out(seconds)

    def _run_async(self, job: Job[Any, Any], payload: Any, ctx: JobContext, seconds: float) -> Ending:
        """The loop's own timeout comes first; the alarm is for code that blocks the loop."""
        if self._loop is None:
            self._loop = asyncio.Runner(loop_factory=new_loop)
        try:
            with _alarm(seconds + GRACE + 0.5):
                ending, is_clean = self._loop.run(bounded(job, payload, ctx, seconds))
        except Alarm:
            ending, is_clean = timed_out(seconds), False
        except BaseException as error:  # noqa: BLE001 SystemExit of a task ends the loop's run, and is this job's failure
            ending, is_clean = Raised(error), False
        if not is_clean:
            self._abandon()
        return ending

    def _abandon(self) -> None:
        """Never run this loop again: what is left in it must not go on beside another job. One second to let it end."""
        loop, self._loop = self._loop, None
        with suppress(BaseException), _alarm(1.0):
            if loop is not None:
                loop.close()

    def interrupt(self) -> None:
        """Stop the running job as its timeout would; for a thread beside the main one."""
        ident = threading.main_thread().ident
        if ident is not None and signal.getsignal(signal.SIGALRM) not in (signal.SIG_DFL, signal.SIG_IGN, None):
            signal.pthread_kill(ident, signal.SIGALRM)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()
            self._loop = None


def timed_out(seconds: float) -> Raised:
    return Raised(JobTimeout(f"stopped after its timeout of {seconds:g} s"))


def call(job: Job[Any, Any], payload: Any, ctx: JobContext) -> Ending:
    """A plain job's ending; only Alarm goes through."""
    token = running.set(ctx if isinstance(ctx, RunContext) else None)
    try:
        if isinstance(payload, Remote):
            try:
                payload = payload.read()
            except Exception as error:  # noqa: BLE001 sorted like any ending
                return Unread(error)
        with correlated(ctx.correlation_id):
            value = job(payload, ctx)
    except Alarm:
        raise
    except BaseException as error:  # noqa: BLE001 SystemExit or a cancelled task is this record's failure, not the batch's
        return Raised(error)
    finally:
        running.reset(token)
    return _never_ran(value) or Returned(value)


async def bounded(job: Job[Any, Any], payload: Any, ctx: JobContext, seconds: float) -> tuple[Ending, bool]:
    """An `async def` job's ending within its timeout, and whether nothing of it is left running.

    What it left is cancelled, since nothing may thaw into another job; of jobs side by side each cancels its own only.
    """
    token = running.set(ctx if isinstance(ctx, RunContext) else None)
    _making.set(ctx)
    limit = asyncio.timeout(seconds)
    ending: Ending
    try:
        with correlated(ctx.correlation_id):
            async with limit:
                ending = await _awaited(job, payload, ctx)
    except TimeoutError as error:
        ending = timed_out(seconds) if limit.expired() else Raised(error)
    except Alarm:
        raise
    except BaseException as error:  # noqa: BLE001 as above
        ending = Raised(error)
    finally:
        running.reset(token)
    mine = asyncio.current_task()
    left = {task for task in asyncio.all_tasks() if task is not mine and _parent_run.get(task) is ctx}
    for task in left:
        task.cancel()
    stubborn = (await asyncio.wait(left, timeout=GRACE))[1] if left else set[asyncio.Task[Any]]()
    return ending, not stubborn


async def _awaited(job: Job[Any, Any], payload: Any, ctx: JobContext) -> Ending:
    if isinstance(payload, Remote):
        try:
            payload = await asyncio.to_thread(payload.read)
        except Exception as error:  # noqa: BLE001 as above
            return Unread(error)
    value = await job(payload, ctx)
    return _never_ran(value) or Returned(value)


_making: ContextVar[JobContext | None] = ContextVar("loomjobs_making", default=None)
_parent_run: WeakKeyDictionary[asyncio.Task[Any], JobContext | None] = WeakKeyDictionary()
"""The run whose code made a task: tasks inherit the context variables of their maker."""


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop that remembers which run made which task."""
    loop = asyncio.new_event_loop()

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        _parent_run[task] = _making.get()
        return task

    loop.set_task_factory(make)
    return loop


def _never_ran(value: Any) -> NeverRan | None:
    if inspect.iscoroutine(value):
        value.close()  # else Python warns later, in another job's log
        return NeverRan("a coroutine")
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        return NeverRan("a generator")
    return NeverRan("an awaitable") if inspect.isawaitable(value) else None


@contextmanager
def _alarm(seconds: float) -> Generator[None]:
    """Raise in the running code after `seconds`, and again each second while it does not give up.

    Signals reach only the main thread, which is where Lambda runs a handler. Elsewhere (a test's thread) there is no
    hard timeout, and the invocation's own still holds.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
