"""Long jobs: the heartbeat that keeps them, checkpoints, and going on in a later delivery."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from loomjobs import Continue, JobContext, Queue, Workload
from loomjobs.aws.pulse import beat_beside
from loomjobs.core.errors import BadPayload, DeclarationError
from loomjobs.core.write import Write, Written
from loomjobs.local.backend import Killed
from loomjobs.testing import context
from tests.runtime.world import FIFO, SIDE, STANDARD, Work, World, fail

LONG = Queue("long", workload=Workload.BULK, batch_size=1, job_timeout=timedelta(minutes=14))
LONG_FIFO = Queue("long-fifo", workload=Workload.BULK, batch_size=1, fifo=True, job_timeout=timedelta(minutes=14))
MINUTE = timedelta(minutes=1)


def beating(queue: Queue = LONG) -> World:
    return World(queue, heartbeat=MINUTE)


def test_a_crash_is_noticed_within_ninety_seconds_although_the_visibility_is_hours() -> None:
    world = beating()
    runs: list[Any] = []

    def behave(work: Work, ctx: JobContext) -> None:
        runs.append(world.backend.clock.now)
        if len(runs) == 1:
            world.backend.clock.advance(timedelta(minutes=10))
            runs.append(world.backend.clock.now)
            raise Killed

    world.behave = behave
    world.enqueue("a")
    world.drain()
    assert world.effects == ["a"]
    assert runs[2] - runs[1] <= timedelta(seconds=90)


def test_while_it_lives_nobody_else_gets_the_message_or_the_claim() -> None:
    world = beating()
    others: list[Any] = []

    def behave(work: Work, ctx: JobContext) -> None:
        for _ in range(13):
            world.backend.clock.advance(MINUTE)
            others.extend(world.backend.deliver("long"))

    world.behave = behave
    world.enqueue("a")
    world.drain()
    assert others == []
    assert world.state("a") == ("COMPLETED", 0)


def test_a_short_heartbeat_shows_on_a_standard_queue_and_only_extends_on_fifo() -> None:
    for queue, short in ((LONG, True), (LONG_FIFO, False)):
        world = beating(queue)
        seen: list[timedelta] = []

        def behave(work: Work, ctx: JobContext, world: World = world, seen: list[timedelta] = seen) -> None:
            (message,) = world.backend.queues[world.queue].messages
            seen.append(message.visible_at - world.backend.clock.now)

        world.behave = behave
        world.enqueue("a")
        world.drain()
        assert (seen[0] < timedelta(minutes=2)) is short


def test_two_beats_without_the_store_end_the_run_before_its_claim_lapses() -> None:
    world = beating()
    interrupted: list[str] = []

    class Lane:
        size = 1
        stuck = False

        def __getattr__(self, name: str) -> Any:
            return getattr(lane, name)

        def interrupt(self, place: str) -> None:
            interrupted.append(place)

    lane = world.backend.workers["long"].lanes
    object.__setattr__(world.backend.workers["long"], "lanes", Lane())

    def behave(work: Work, ctx: JobContext) -> None:
        if not interrupted:
            world.backend.store.faults = ["refused", "refused"]
            world.backend.clock.advance(timedelta(seconds=45))

    world.behave = behave
    world.enqueue("a")
    assert world.deliver() == ["HandBack"]
    assert len(interrupted) == 1
    assert [run.decision.why for run in world.backend.runs()] == ["lost the claim"]  # type: ignore[union-attr]


def test_one_failed_beat_changes_nothing() -> None:
    world = beating()

    def behave(work: Work, ctx: JobContext) -> None:
        world.backend.store.faults = ["refused"]
        world.backend.clock.advance(timedelta(minutes=5))

    world.behave = behave
    world.enqueue("a")
    world.drain()
    assert world.state("a") == ("COMPLETED", 0)


@pytest.mark.parametrize(
    ("queue", "heartbeat", "what"),
    [
        (LONG, timedelta(seconds=5), "does not fit"),
        (LONG, timedelta(minutes=14), "does not fit"),
        (LONG, timedelta(seconds=20, microseconds=5), "does not fit"),
        (SIDE, timedelta(seconds=20), "does not fit"),
    ],
)
def test_a_heartbeat_that_cannot_work_is_refused(queue: Queue, heartbeat: timedelta, what: str) -> None:
    with pytest.raises(DeclarationError, match=what):
        World(queue, heartbeat=heartbeat)


def test_a_heartbeat_among_jobs_side_by_side_is_refused() -> None:
    side = Queue("s", workload=Workload.BULK, parallel=2, batch_size=2, job_timeout=timedelta(minutes=5))
    with pytest.raises(DeclarationError, match="side by side"):
        World(side, heartbeat=MINUTE)


def test_beats_come_from_a_thread_until_they_are_stopped() -> None:
    beats: list[str] = []
    three = threading.Event()

    def beat() -> bool:
        beats.append(threading.current_thread().name)
        if len(beats) == 3:
            three.set()
        return True

    stop = beat_beside(timedelta(seconds=0.01), beat)
    assert three.wait(5)
    stop()
    count = len(beats)
    time.sleep(0.05)
    assert len(beats) == count
    assert set(beats) == {"loomjobs-heart"}


# -- checkpoints --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Cursor:
    page: int
    seen: tuple[str, ...] = ()


@pytest.mark.parametrize("queue", [STANDARD, FIFO, SIDE])
def test_a_job_goes_on_from_its_checkpoint_without_spending_an_attempt(queue: Queue) -> None:
    world = World(queue, attempts=2)
    pages: list[int] = []

    def behave(work: Work, ctx: JobContext) -> None:
        cursor = ctx.resume(Cursor) or Cursor(0)
        pages.append(cursor.page)
        assert ctx.attempt == 1
        if cursor.page < 20:
            ctx.checkpoint(Cursor(cursor.page + 1, ("é",)))
            raise Continue

    world.behave = behave
    world.enqueue("a")
    world.drain()
    assert pages == list(range(21))
    assert world.state("a") == ("COMPLETED", 0)
    assert world.backend.store.items["test.work#a"]["cont"] == 20


def test_a_checkpoint_survives_a_crash_and_a_failure() -> None:
    world = World(attempts=5)
    seen: list[int] = []

    def behave(work: Work, ctx: JobContext) -> None:
        at = ctx.resume(int) or 0
        seen.append(at)
        if at < 3:
            ctx.checkpoint(at + 1)
            fail(Killed() if at % 2 else ValueError("no"))

    world.behave = behave
    world.enqueue("a")
    world.drain()
    assert seen == [0, 1, 2, 3]


def test_a_checkpoint_is_durable_when_it_returns_and_ends_with_the_job() -> None:
    world = World()
    stored: list[Any] = []

    def behave(work: Work, ctx: JobContext) -> None:
        ctx.checkpoint(Cursor(7))
        stored.append(world.backend.store.items["test.work#a"]["ck"])
        assert ctx.resume(Cursor) == Cursor(7)

    world.behave = behave
    world.enqueue("a")
    world.drain()
    assert stored == ['{"page":7,"seen":[]}']


def test_a_state_that_cannot_be_kept_is_refused_where_it_is_made() -> None:
    world = World(attempts=1)
    raised: list[BaseException] = []

    def behave(work: Work, ctx: JobContext) -> None:
        try:
            ctx.checkpoint(float("nan"))
        except BadPayload as error:
            raised.append(error)

    world.behave = behave
    world.enqueue("a")
    world.drain()
    assert len(raised) == 1


def test_a_worker_that_lost_its_claim_cannot_checkpoint() -> None:
    world = World()
    order: list[str] = []

    def behave(work: Work, ctx: JobContext) -> None:
        if order:
            return
        order.append("first")
        world.backend.clock.advance(timedelta(hours=2))
        world.drain()
        ctx.checkpoint(1)
        order.append("unreached")

    world.behave = behave
    world.enqueue("a")
    world.drain()
    assert order == ["first"]
    assert "ck" not in world.backend.store.items["test.work#a"]
    assert world.state("a")[0] == "COMPLETED"


def test_the_context_of_a_unit_test_keeps_its_checkpoint() -> None:
    ctx = context()
    assert ctx.resume(int) is None
    ctx.checkpoint(5)
    assert ctx.resume(int) == 5
    assert not ctx.cancelled


def test_a_flag_to_cancel_is_seen_by_the_job_and_completion_wins() -> None:
    world = World()
    seen: list[bool] = []

    def behave(work: Work, ctx: JobContext) -> None:
        seen.append(ctx.cancelled)
        store = world.backend.store
        store.items["test.work#a"] = {**store.items["test.work#a"], "cancel": 1}
        seen.append(ctx.cancelled)  # read a moment ago
        world.backend.clock.advance(timedelta(seconds=6))
        seen.append(ctx.cancelled)

    world.behave = behave
    world.enqueue("a")
    world.drain()
    assert seen == [False, False, True]
    assert world.state("a")[0] == "COMPLETED"


# -- a halted group -----------------------------------------------------------------------------------
def halting() -> World:
    world = World(FIFO, attempts=1, on_dead="halt")
    world.behave = lambda work, ctx: fail(ValueError("no")) if work.name == "a1" else None
    return world


def rounds(world: World, count: int) -> None:
    for _ in range(count):
        if not world.backend.step():
            world.backend.advance_to_next()


def test_a_dead_head_halts_its_group_and_no_other() -> None:
    world = halting()
    world.enqueue("a1", "a2", "a3", group="a")
    world.enqueue("b1", group="b")
    rounds(world, 10)
    assert world.effects == ["b1"]
    assert world.backend.pending() == 2
    assert world.dead() == ["exhausted"]


def test_a_redrive_that_succeeds_lets_the_group_go_on_in_order() -> None:
    world = halting()
    world.enqueue("a1", "a2", "a3", group="a")
    rounds(world, 4)
    (letter,) = world.backend.dead["ordered"].messages
    world.behave = lambda work, ctx: None
    world.backend.clock.advance(timedelta(minutes=30))
    world.backend.queues["ordered"].send(letter.body, now=world.backend.clock.now, group="a", dedup="again")
    # SQS keeps the redriven one behind its siblings; the halt holds them back until it is theirs to go on
    world.backend.queues["ordered"].messages.sort(key=lambda message: message.dedup != "again")
    world.drain()
    assert world.effects == ["a1", "a2", "a3"]


def test_siblings_of_a_halted_group_die_of_their_retention_with_that_reason() -> None:
    world = halting()
    world.enqueue("a1", "a2", group="a")
    world.drain(rounds=2_000)
    assert world.dead() == ["exhausted", "retention"]
    assert world.effects == []


def test_an_unreadable_mark_halts_nothing() -> None:
    world = halting()
    store = world.backend.store
    read = store.read

    def broken(id: str, /) -> Any:
        from loomjobs.core.errors import StoreUnavailable

        if id.startswith("~halt"):
            raise StoreUnavailable("throttled")
        return read(id)

    store.read = broken  # type: ignore[method-assign]
    world.enqueue("b1", group="b")
    world.drain()
    assert world.effects == ["b1"]


def test_a_crash_before_the_mark_is_resumed_with_it() -> None:
    world = halting()
    store = world.backend.store
    armed = [True]

    def write(write: Write, /) -> Written:
        if write.id.startswith("~halt") and armed:
            armed.clear()
            raise Killed
        return type(store).write(store, write)

    store.write = write  # type: ignore[method-assign]
    world.enqueue("a1", "a2", group="a")
    rounds(world, 12)
    assert world.dead() == ["exhausted"]
    assert world.effects == []
    assert store.items["~halt#ordered#a"]["by"] == "test.work#a1"
