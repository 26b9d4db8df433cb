"""Deadlines and cancelling in the executor: what ends without a run, and who wins a race."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from loomjobs import Defer, JobContext, Queue, Transient, cancel
from loomjobs.core.call import call
from loomjobs.core.decision import DeadLetter
from loomjobs.core.letter import read_report
from loomjobs.local.backend import Killed
from loomjobs.runtime.cancelling import telling_time
from loomjobs.runtime.status import reading
from tests.runtime.world import FIFO, SIDE, STANDARD, Work, World, fail

HOUR = timedelta(hours=1)


def whys(world: World) -> list[str]:
    return [getattr(run.decision, "why", "") for run in world.backend.runs()]


def send(world: World, name: str, **options: Any) -> None:
    world.backend.producer.enqueue(call(world.job, Work(name), **options))


def stop(world: World, name: str) -> str:
    with reading(world.backend.store), telling_time(world.backend.clock):
        return cancel(world.job, Work(name)).outcome


# -- deadlines --------------------------------------------------------------------------------------
@pytest.mark.parametrize("queue", [STANDARD, SIDE, FIFO])
def test_a_job_that_is_late_ends_as_expired_without_a_run_or_a_dead_letter(queue: Queue) -> None:
    world = World(queue)
    send(world, "late", expires=HOUR)
    send(world, "b")
    world.backend.clock.advance(2 * HOUR)
    world.drain()
    assert world.effects == ["b"]
    assert world.state("late")[0] == "EXPIRED"
    assert world.dead() == []
    assert "expired" in whys(world)
    assert world.backend.pending() == 0


def test_a_duplicate_of_an_expired_job_is_told_so() -> None:
    world = World()
    send(world, "late", expires=HOUR)
    world.backend.clock.advance(2 * HOUR)
    world.drain()
    send(world, "late")
    world.drain()
    assert world.effects == []
    assert whys(world) == ["expired", "expired"]


def test_the_declared_deadline_counts_from_the_enqueue() -> None:
    world = World(expires=HOUR)
    send(world, "a")
    world.backend.clock.advance(timedelta(minutes=59))
    world.deliver()
    send(world, "b")
    world.backend.clock.advance(timedelta(minutes=61))
    world.drain()
    assert world.effects == ["a"]


def test_a_job_that_failed_and_then_is_late_is_a_dead_letter_with_its_failure() -> None:
    world = World(attempts=50)
    world.behave = lambda work, ctx: fail(Transient("down"))
    send(world, "a", expires=HOUR)
    world.drain()
    (letter,) = world.backend.dead["standard"].messages
    report = read_report(dict(letter.attributes))
    assert report is not None
    assert (report["reason"], "down" in report["error"]) == ("deadline", True)
    assert report["attempts"] >= 1


def test_a_deferred_job_that_is_late_and_never_failed_expires() -> None:
    world = World()
    world.behave = lambda work, ctx: fail(Defer(timedelta(minutes=40)))
    send(world, "a", expires=HOUR)
    world.drain()
    assert world.state("a")[0] == "EXPIRED"
    assert world.dead() == []


def test_a_run_that_began_in_time_may_end_after_its_deadline() -> None:
    world = World()
    world.behave = lambda work, ctx: world.backend.clock.advance(timedelta(seconds=8))
    send(world, "a", expires=timedelta(seconds=5))
    world.drain()
    assert world.effects == ["a"]


def test_a_crash_on_the_way_of_a_late_dead_letter_is_resumed() -> None:
    world = World(attempts=50)
    crashes = [True]

    def behave(work: Work, ctx: JobContext) -> None:
        if crashes:
            crashes.clear()
            raise Killed

    world.behave = behave
    send(world, "a", expires=timedelta(seconds=20))
    world.drain()
    assert world.effects == []
    assert world.dead() == ["deadline"]


def test_the_deadline_travels_to_what_a_job_sends() -> None:
    world = World(sends=["test.work"])
    seen: list[Any] = []

    def behave(work: Work, ctx: JobContext) -> None:
        seen.append(ctx.deadline)
        if work.name == "a":
            ctx.enqueue(world.job, Work("child"))

    world.behave = behave
    start = world.backend.clock.now
    send(world, "a", expires=HOUR)
    world.drain()
    assert seen == [start + HOUR, start + HOUR]


# -- cancelling -------------------------------------------------------------------------------------
@pytest.mark.parametrize("queue", [STANDARD, SIDE, FIFO])
def test_a_job_can_be_cancelled_before_it_arrives_and_while_it_is_queued(queue: Queue) -> None:
    world = World(queue)
    assert stop(world, "early") == "cancelled"
    send(world, "early")
    send(world, "queued")
    assert stop(world, "queued") == "cancelled"
    world.drain()
    assert world.effects == []
    assert whys(world) == ["cancelled", "cancelled"]


def test_a_job_can_be_cancelled_while_it_waits_for_its_retry() -> None:
    world = World(attempts=9)
    world.behave = lambda work, ctx: fail(Transient("no"))
    send(world, "a")
    world.deliver()
    assert stop(world, "a") == "cancelled"
    world.drain()
    assert world.state("a")[0] == "CANCELLED"
    assert whys(world)[-1] == "cancelled"


def test_a_running_job_is_told_and_completion_wins() -> None:
    world = World()
    told: list[str] = []
    world.behave = lambda work, ctx: told.append(stop(world, work.name))
    send(world, "a")
    world.drain()
    assert told == ["requested"]
    assert world.state("a")[0] == "COMPLETED"
    assert stop(world, "a") == "too-late"
    send(world, "a")
    world.drain()
    assert whys(world)[-1] == "duplicate"


@pytest.mark.parametrize("end", [Transient("no"), ValueError("no"), Defer(HOUR), KeyboardInterrupt()])
def test_a_running_job_that_was_told_and_does_not_complete_is_cancelled_and_not_tried_again(end: BaseException) -> None:
    world = World()

    def behave(work: Work, ctx: JobContext) -> None:
        stop(world, work.name)
        raise end

    world.behave = behave
    send(world, "a")
    assert world.deliver() == ["Acknowledge"]
    assert whys(world) == ["cancelled"]
    assert world.state("a")[0] == "CANCELLED"
    assert world.backend.pending() == 0


def test_a_job_that_looks_at_the_flag_and_gives_up_is_cancelled() -> None:
    world = World(attempts=1)

    def behave(work: Work, ctx: JobContext) -> None:
        stop(world, work.name)
        if ctx.cancelled:
            raise RuntimeError("gave up")

    world.behave = behave
    send(world, "a")
    world.drain()
    assert world.state("a")[0] == "CANCELLED"
    assert world.dead() == []


def test_a_crashed_job_that_was_told_is_taken_over_by_nobody() -> None:
    world = World()

    def behave(work: Work, ctx: JobContext) -> None:
        stop(world, work.name)
        raise Killed

    world.behave = behave
    send(world, "a")
    world.drain()
    assert world.state("a")[0] == "CANCELLED"
    assert world.effects == []


def test_secrets_and_payload_values_are_not_in_the_dead_letters_report() -> None:
    world = World(attempts=1)
    world.behave = lambda work, ctx: fail(ValueError(f"no {work.group} with token=abcdef123456"))
    world.backend.producer.enqueue(call(world.job, Work("a", "customer-secret-group")))
    world.drain()
    (letter,) = world.backend.dead["standard"].messages
    report = read_report(dict(letter.attributes))
    assert report is not None
    assert "customer-secret-group" not in report["error"]
    assert "abcdef123456" not in report["error"]
    assert "customer-secret-group" in letter.body


def test_the_innermost_frame_of_a_deep_stack_is_kept() -> None:
    world = World(attempts=1)

    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        raise ValueError("innermost")

    def behave(work: Work, ctx: JobContext) -> None:
        deep(60)

    world.behave = behave
    send(world, "a")
    world.drain()
    (run,) = world.backend.runs()
    assert isinstance(run.decision, DeadLetter)
    assert run.decision.failure is not None
    assert run.decision.failure.stack.rstrip().endswith("ValueError: innermost")
