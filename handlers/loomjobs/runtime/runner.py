"""Runs one job to its end or its timeout, on the main thread, and brings back what happened."""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeAlias

from loomjobs.core.context import JobContext
from loomjobs.core.job import Job
from loomjobs.core.signals import Transient


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


Ending: TypeAlias = Returned | Raised | NeverRan


class JobTimeout(Transient):
    """The job ran longer than its timeout and was stopped."""


class _Alarm(BaseException):
    """Not an Exception, so that an author's `except Exception` cannot keep a job alive past its timeout."""


class Runner:
    """One per process: it keeps the event loop that every `async def` job shares, so that clients stay connected."""

    def __init__(self) -> None:
        self._loop: asyncio.Runner | None = None

    def run(self, job: Job[Any, Any], payload: Any, ctx: JobContext, *, seconds: float) -> Ending:
        """Call the job. Whatever it raises is its ending, not ours."""
        try:
            with _alarm(seconds):
                value = job(payload, ctx)
                if job.is_async:
                    value = self._await(value, seconds)
        except _Alarm:
            return Raised(JobTimeout(f"stopped after its timeout of {seconds:g} s"))
        except BaseException as error:  # noqa: BLE001 SystemExit or a cancelled task is this record's failure, not the batch's
            return Raised(error)
        return _never_ran(value) or Returned(value)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def _await(self, coroutine: Coroutine[Any, Any, Any], seconds: float) -> Any:
        if self._loop is None:
            self._loop = asyncio.Runner()
        return self._loop.run(_bounded(coroutine, seconds))


async def _bounded(coroutine: Coroutine[Any, Any, Any], seconds: float) -> Any:
    """Await within the timeout, then cancel what the job left running: nothing may thaw into another job."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await coroutine
    except TimeoutError:
        if not limit.expired():
            raise
    finally:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
    raise _Alarm


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
        raise _Alarm

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
