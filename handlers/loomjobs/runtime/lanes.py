"""Where the jobs of one delivery batch run: one after the other on the main thread, or side by side."""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Hashable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Protocol

from loomjobs.core.context import JobContext
from loomjobs.core.job import Job
from loomjobs.runtime.runner import GRACE, Alarm, Ending, Raised, Runner, bounded, call, new_loop, timed_out

_WAKE = object()
"""In the place of an ending: look at the timeouts again."""
_AGAIN = 0.2
"""Seconds between two interruptions of one job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A claimed job, ready to run for at most `seconds`. `place` names it in `ended`."""

    place: Hashable
    job: Job[Any, Any]
    payload: Any = field(repr=False)
    ctx: JobContext
    seconds: float


class Lanes(Protocol):
    """`size` jobs at a time. `stuck` says that a job was given up on but still runs in this process."""

    size: int

    @property
    def stuck(self) -> bool: ...

    def start(self, start: Start, /) -> None: ...

    def interrupt(self, place: Hashable, /) -> None:
        """Stop a running job as its timeout would; called from beside it."""
        ...

    def ended(self, *, linger: float) -> list[tuple[Hashable, Ending]]:
        """Wait for one of those started, and then at most `linger` seconds for the others: endings that come close
        together are recorded together. May be empty when a job ended that was given up on before."""
        ...


class MainLane:
    """Runs a job at once, on the caller's thread, where its timeout is hard (SIGALRM).

    A size above 1 takes several claims before the first job runs, as side by side execution does: for the in-memory
    backend, which has to repeat exactly.
    """

    stuck = False

    def __init__(self, runner: Runner, *, size: int = 1) -> None:
        self.size = size
        self._runner = runner
        self._starts: list[Start] = []

    def start(self, start: Start, /) -> None:
        self._starts.append(start)

    def interrupt(self, place: Hashable, /) -> None:
        self._runner.interrupt()

    def ended(self, *, linger: float) -> list[tuple[Hashable, Ending]]:
        start = self._starts.pop(0)
        return [(start.place, self._runner.run(start.job, start.payload, start.ctx, seconds=start.seconds))]


@dataclass(slots=True)
class _Run:
    """`until` is when to look at it next, `gives_up_at` when it counts as unstoppable; both of the monotonic clock.

    Behind `guard` either the run is over, or an interruption is on its way to its thread: never both.
    """

    start: Start
    until: float
    gives_up_at: float = 0.0
    thread: threading.Thread | None = None
    guard: threading.Lock = field(default_factory=threading.Lock)
    over: bool = False

    def interrupt(self) -> None:
        with self.guard:
            if self.thread is not None and self.thread.ident is not None and not self.over:
                _raise_in(self.thread.ident)

    def end(self) -> None:
        """After this no interruption arrives any more: one that was sent before is taken here."""
        while True:
            try:
                with self.guard:
                    self.over = True
                for _ in range(200 if self.gives_up_at else 0):
                    pass
            except Alarm:
                continue
            return


@dataclass(slots=True)
class _Lane:
    """One thread and its inbox. A lane whose thread cannot be stopped is left behind."""

    inbox: SimpleQueue[_Run] = field(default_factory=SimpleQueue)
    thread: threading.Thread | None = None


class ThreadLanes:
    """Threads for `def` jobs, one event loop for all `async def` jobs; both live as long as the process.

    A job past its timeout is asked to stop (cancelled, or an exception in its thread). One that does not is reported
    as timed out and makes `stuck` true: the process has to end before its next invocation.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._ends: SimpleQueue[tuple[Hashable, Ending]] = SimpleQueue()
        self._runs: dict[Hashable, _Run] = {}
        self._idle: list[_Lane] = []
        self._busy: dict[Hashable, _Lane] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stuck = False

    @property
    def stuck(self) -> bool:
        return self._stuck

    def start(self, start: Start, /) -> None:
        run = self._runs[start.place] = _Run(start, monotonic() + start.seconds)
        if start.job.is_async:
            run.until += GRACE + 0.5  # the loop's own timeout and clearing up come first
            asyncio.run_coroutine_threadsafe(self._await(start), self._event_loop())
            return
        lane = self._idle.pop() if self._idle else self._lane()
        self._busy[start.place] = lane
        run.thread = lane.thread
        lane.inbox.put(run)

    def interrupt(self, place: Hashable, /) -> None:
        run = self._runs.get(place)
        if run is not None:
            run.until = 0.0
            self._ends.put((_WAKE, timed_out(0)))

    def ended(self, *, linger: float) -> list[tuple[Hashable, Ending]]:
        found: list[tuple[Hashable, Ending]] = []
        while not found:
            wait = min(run.until for run in self._runs.values()) - monotonic()
            try:
                place, ending = self._ends.get(timeout=max(0.0, wait))
                found += self._overdue() if place is _WAKE else [(place, ending)]
            except Empty:
                found += self._overdue()
        until = monotonic() + linger
        with suppress(Empty):
            while len(found) < len(self._runs):
                found.append(self._ends.get(timeout=max(0.0, until - monotonic())))
        return [each for each in found if self._forget(each[0])]

    def _forget(self, place: Hashable) -> bool:
        """False for one that was given up on before and ended after all."""
        run, lane = self._runs.pop(place, None), self._busy.pop(place, None)
        if lane is not None and run is not None:
            self._idle.append(lane)
        return run is not None

    def _overdue(self) -> list[tuple[Hashable, Ending]]:
        """Interrupt what is past its timeout, several times (a destructor may swallow it), and then give up on it."""
        given_up: list[tuple[Hashable, Ending]] = []
        now = monotonic()
        for place, run in list(self._runs.items()):
            if run.until > now:
                continue
            run.gives_up_at = run.gives_up_at or now + GRACE
            if now < run.gives_up_at:
                run.interrupt()
                run.until = min(now + _AGAIN, run.gives_up_at)
            else:
                self._stuck = True
                self._busy.pop(place, None)
                given_up.append((place, timed_out(run.start.seconds)))
        return given_up

    def _lane(self) -> _Lane:
        lane = _Lane()
        lane.thread = threading.Thread(target=self._serve, args=(lane.inbox,), daemon=True, name="loomjobs-lane")
        lane.thread.start()
        return lane

    def _serve(self, inbox: SimpleQueue[_Run]) -> None:
        while True:
            run = inbox.get()
            start = run.start
            ending: Ending = timed_out(start.seconds)
            try:
                ending = copy_context().run(call, start.job, start.payload, start.ctx)
            except Alarm:
                pass
            finally:
                run.end()
                self._ends.put((start.place, ending))

    async def _await(self, start: Start) -> None:
        try:
            ending, is_clean = await bounded(start.job, start.payload, start.ctx, start.seconds)
            self._stuck = self._stuck or not is_clean
        except BaseException as error:  # noqa: BLE001 whatever a job raises is its ending
            ending = Raised(error)
        self._ends.put((start.place, ending))

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = new_loop()
            threading.Thread(target=_run_for_ever, args=(self._loop,), daemon=True, name="loomjobs-loop").start()
        return self._loop


def _run_for_ever(loop: asyncio.AbstractEventLoop) -> None:
    """A task that raises SystemExit ends a loop's run: the other jobs go on in the next one."""
    while True:
        with suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()


def _raise_in(ident: int) -> None:
    """Raise in a running thread. It arrives at the next bytecode, so not inside a blocking call."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(Alarm))
