"""Lanes: jobs side by side, their timeouts, and what cannot be stopped."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from loomjobs import EACH_ENQUEUE, JobContext, Queue, Workload, job
from loomjobs.core.registry import isolated
from loomjobs.runtime import lanes as lanes_module
from loomjobs.runtime.lanes import Start, ThreadLanes
from loomjobs.runtime.runner import Ending, JobTimeout, Raised, Returned
from loomjobs.testing import context

QUEUE = Queue("side", workload=Workload.BULK, parallel=4, job_timeout=timedelta(seconds=10))


@dataclass(frozen=True)
class Nothing:
    """A payload without fields."""


def start(place: str, function: Callable[..., Any], *, seconds: float = 5.0) -> Start:
    with isolated():
        declared = job("test.lane", queue=QUEUE, key=EACH_ENQUEUE)(function)
    return Start(place=place, job=declared, payload=Nothing(), ctx=context(), seconds=seconds)


def all_of(lanes: ThreadLanes, count: int) -> dict[Any, Ending]:
    found: dict[Any, Ending] = {}
    while len(found) < count:
        found |= dict(lanes.ended(linger=0.0))
    return found


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """How soon a thread is interrupted is the machine's affair, where others use it too."""
    monkeypatch.setattr("loomjobs.runtime.lanes.GRACE", 60)


def test_plain_jobs_run_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=5)

    def meet(payload: Nothing, ctx: JobContext) -> str:
        together.wait()
        return threading.current_thread().name

    lanes = ThreadLanes(3)
    for place in "abc":
        lanes.start(start(place, meet))
    assert all_of(lanes, 3) == dict.fromkeys("abc", Returned("loomjobs-lane"))
    assert not lanes.stuck


def test_async_jobs_share_one_event_loop() -> None:
    loops: set[int] = set()

    async def meet(payload: Nothing, ctx: JobContext) -> int:
        loops.add(id(asyncio.get_running_loop()))
        await asyncio.sleep(0.01)
        return 1

    lanes = ThreadLanes(3)
    for place in "abc":
        lanes.start(start(place, meet))
    assert all_of(lanes, 3) == dict.fromkeys("abc", Returned(1))
    lanes.start(start("d", meet))
    assert all_of(lanes, 1) == {"d": Returned(1)}
    assert len(loops) == 1


def test_a_lane_is_used_again() -> None:
    threads: set[int] = set()

    def note(payload: Nothing, ctx: JobContext) -> None:
        threads.add(threading.get_ident())

    lanes = ThreadLanes(2)
    for place in "abc":
        lanes.start(start(place, note))
        all_of(lanes, 1)
    assert len(threads) == 1


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), MemoryError(), asyncio.CancelledError()])
def test_what_a_job_raises_is_its_ending_and_the_lane_lives_on(error: BaseException) -> None:
    def fail(payload: Nothing, ctx: JobContext) -> None:
        raise error

    async def afail(payload: Nothing, ctx: JobContext) -> None:
        raise error

    lanes = ThreadLanes(1)
    for place, function in (("plain", fail), ("async", afail), ("again", fail)):
        lanes.start(start(place, function))
        (ending,) = all_of(lanes, 1).values()
        assert isinstance(ending, Raised)
        assert ending.error is error


def seven(payload: Nothing, ctx: JobContext) -> int:
    return 7


@pytest.mark.usefixtures("patient")
def test_a_busy_job_is_stopped_after_its_timeout() -> None:
    def spin(payload: Nothing, ctx: JobContext) -> None:
        while True:
            pass

    lanes = ThreadLanes(1)
    lanes.start(start("a", spin, seconds=0.05))
    ending = all_of(lanes, 1)["a"]
    assert isinstance(ending, Raised)
    assert isinstance(ending.error, JobTimeout)
    assert not lanes.stuck
    lanes.start(start("b", seven))
    assert all_of(lanes, 1) == {"b": Returned(7)}


@pytest.mark.usefixtures("patient")
def test_an_async_job_is_stopped_after_its_timeout_with_what_it_left_running() -> None:
    left: list[str] = []

    async def hang(payload: Nothing, ctx: JobContext) -> None:
        async def background() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                left.append("cancelled")
                raise

        asyncio.create_task(background())  # noqa: RUF006 that is the fault under test
        await asyncio.sleep(60)

    lanes = ThreadLanes(1)
    lanes.start(start("a", hang, seconds=0.05))
    ending = all_of(lanes, 1)["a"]
    assert isinstance(ending, Raised)
    assert isinstance(ending.error, JobTimeout)
    assert not lanes.stuck


@pytest.mark.parametrize("is_async", [False, True])
def test_a_job_that_cannot_be_stopped_is_given_up_on_and_the_others_end(
    is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes_module, "GRACE", 0.05)
    released = threading.Event()

    def deaf(payload: Nothing, ctx: JobContext) -> str:
        released.wait(20)  # a blocking call: nothing reaches the thread in it
        return "too late"

    async def adeaf(payload: Nothing, ctx: JobContext) -> str:
        return deaf(payload, ctx)

    def quick(payload: Nothing, ctx: JobContext) -> int:
        time.sleep(0.02)
        return 1

    lanes = ThreadLanes(2)
    lanes.start(start("deaf", adeaf if is_async else deaf, seconds=0.05))
    lanes.start(start("quick", quick))
    found = all_of(lanes, 2)
    assert found["quick"] == Returned(1)
    assert isinstance(found["deaf"], Raised)
    assert isinstance(found["deaf"].error, JobTimeout)
    assert lanes.stuck
    released.set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("patient")
def test_a_job_that_ends_as_its_timeout_strikes_has_one_ending() -> None:
    """The race between the end and the interruption, many times over: every job ends once, no lane is lost."""
    lanes = ThreadLanes(4)

    def brief(payload: Nothing, ctx: JobContext) -> int:
        time.sleep(0.0099)
        return 1

    for round_ in range(25):
        for place in range(4):
            lanes.start(start(f"{round_}-{place}", brief, seconds=0.01))
        found = all_of(lanes, 4)
        assert set(found) == {f"{round_}-{place}" for place in range(4)}
        for ending in found.values():
            assert ending == Returned(1) or (isinstance(ending, Raised) and isinstance(ending.error, JobTimeout))
    assert not lanes.stuck
