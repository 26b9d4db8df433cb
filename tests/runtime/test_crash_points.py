"""A worker dies at every point of a job's way: nothing is lost, and the effect happens once, or as documented."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomjobs import EACH_ENQUEUE, JobContext, Permanent, Queue, Transient, call, job
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.letter import Letter
from loomjobs.core.registry import isolated
from loomjobs.core.write import Write, Written
from loomjobs.local.backend import Backend, Killed
from tests.runtime.world import FIFO, SIDE, STANDARD, Work, World, fail, killing


@pytest.fixture(params=[STANDARD, SIDE, FIFO], ids=["standard", "side-by-side", "fifo"])
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


def test_before_the_claims_answer_a_lost_reply_runs_the_job_once(world: World) -> None:
    world.backend.store.faults = ["reply-lost"]
    world.enqueue("a")
    world.drain()
    assert (world.effects, world.state("a")[0]) == (["a"], "COMPLETED")


def test_a_claim_that_was_refused_by_the_store_runs_nothing_and_comes_back(world: World) -> None:
    world.backend.store.faults = ["refused", "refused"]
    world.enqueue("a")
    world.drain()
    assert (world.effects, world.state("a")) == (["a"], ("COMPLETED", 0))


def test_after_the_claim_before_the_start_the_job_runs_later_and_the_crash_is_charged(world: World) -> None:
    killing(world, 2)
    world.enqueue("a")
    world.drain()
    # side by side the first crash is charged to nobody: it could have been a neighbour's
    charged = 1 if world.queue == "side" else 2
    assert (world.effects, world.state("a")) == (["a"], ("COMPLETED", charged))


def test_a_job_that_always_kills_its_worker_is_dead_after_its_attempts_and_its_neighbours_are_not() -> None:
    world = World(attempts=3)

    def behave(work: Work, ctx: JobContext) -> None:
        if work.name == "poison":
            raise Killed

    world.behave = behave
    world.enqueue("a", "b", "poison", "c", "d")
    world.drain()
    assert sorted(world.effects) == ["a", "b", "c", "d"]
    assert world.state("poison") == ("DEAD", 3)
    assert world.dead() == ["crashed"]


def test_after_the_effect_before_the_record_the_effect_is_repeated_as_documented(world: World) -> None:
    killing(world, 1, after_effect=True)
    world.enqueue("a")
    world.drain()
    assert (world.effects, world.state("a")[0]) == (["a", "a"], "COMPLETED")


def test_when_the_records_answer_was_lost_the_effect_is_not_repeated(world: World) -> None:
    world.backend.store.faults = ["none", "reply-lost"]
    world.enqueue("a")
    world.drain()
    assert (world.effects, world.state("a")[0]) == (["a"], "COMPLETED")


def test_after_the_record_before_the_acknowledgement_the_effect_is_not_repeated(world: World) -> None:
    world.enqueue("a")
    source = world.backend.queues[world.queue]
    world.backend.queues[world.queue].delete = lambda receipt: None  # type: ignore[method-assign]
    world.backend.deliver(world.queue)
    del source.delete  # type: ignore[misc]
    world.drain()
    assert (world.effects, world.state("a")[0], world.backend.pending()) == (["a"], "COMPLETED", 0)


def dying(world: World, point: str) -> None:
    """Kill the worker once on the way of a dead letter: `sending`, `sent` or `buried`."""
    world.behave = lambda work, ctx: fail(Permanent("no"))
    letters, store = world.backend.workers[world.queue].letters, world.backend.store
    armed = [True]

    def kill() -> None:
        if armed.pop():
            armed.append(False)
            raise Killed

    class Letters:
        def park(self, letter: Letter, /) -> None:
            if point == "sending" and armed[0]:
                kill()
            letters.park(letter)
            if point == "sent" and armed[0]:
                kill()

    def write(write: Write, /) -> Written:
        written = type(store).write(store, write)
        if point == "buried" and armed[0] and write.sets.get("status") == "DEAD":
            kill()
        return written

    store.write = write  # type: ignore[method-assign]
    object.__setattr__(world.backend.workers[world.queue], "letters", Letters())


@pytest.mark.parametrize(("point", "letters"), [("sending", 1), ("sent", 2), ("buried", 1)])
def test_a_crash_on_the_way_to_the_dead_letter_queue_is_resumed_and_the_job_does_not_run_again(
    world: World, point: str, letters: int
) -> None:
    runs: list[str] = []
    dying(world, point)
    refuse = world.behave

    def behave(work: Work, ctx: JobContext) -> None:
        runs.append(work.name)
        refuse(work, ctx)

    world.behave = behave
    world.enqueue("a")
    world.drain()
    assert runs == ["a"]
    assert (world.state("a"), world.effects) == (("DEAD", 1), [])
    # on FIFO a second hand-off has the same deduplication id; on standard queues it is a second letter of one message
    assert len(world.dead()) == (1 if world.queue == "ordered" else letters)
    assert set(world.dead()) == {"permanent"}


def test_a_native_redrive_of_a_dead_letter_runs_the_job_again_from_its_first_attempt(world: World) -> None:
    world.behave = lambda work, ctx: fail(Permanent("no"))
    world.enqueue("a")
    world.drain()
    (letter,) = world.backend.dead[world.queue].messages
    world.behave = lambda work, ctx: None
    world.backend.clock.advance(timedelta(hours=1))
    world.backend.queues[world.queue].send(
        letter.body, now=world.backend.clock.now, group=letter.group, dedup="redrive", attributes=letter.attributes
    )
    world.drain()
    assert (world.effects, world.state("a")) == (["a"], ("COMPLETED", 0))


def test_a_late_finisher_records_nothing_and_releases_nothing() -> None:
    world = World()
    slow: list[Any] = []

    def behave(work: Work, ctx: JobContext) -> None:
        if not slow:
            slow.append(work)
            world.backend.clock.advance(timedelta(hours=2))  # its lease lapses while it runs
            world.drain()  # another worker takes over and finishes

    world.behave = behave
    world.enqueue("a")
    world.drain()
    assert world.effects == ["a", "a"]
    assert world.state("a")[0] == "COMPLETED"
    assert "lost the claim" in [getattr(run.decision, "why", "") for run in world.backend.runs()]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), seed=st.integers(0, 10_000), queue=st.sampled_from([STANDARD, SIDE, FIFO]))
def test_whatever_happens_every_job_ends_as_done_or_dead_and_none_is_lost(
    data: st.DataObject, seed: int, queue: Queue
) -> None:
    world = World(queue, attempts=4, seed=seed)
    fates = st.sampled_from(["ok", "ok", "ok", "transient", "permanent", "unknown", "kill"])

    def behave(work: Work, ctx: JobContext) -> None:
        match data.draw(fates):
            case "transient":
                raise Transient("busy")
            case "permanent":
                raise Permanent("no")
            case "unknown":
                raise ValueError("odd")
            case "kill":
                raise Killed

    world.behave = behave
    names = [f"j{n}" for n in range(data.draw(st.integers(1, 8)))]
    world.enqueue(*names)
    if not queue.fifo:
        world.enqueue(*names[:2])  # the same work twice
    world.backend.store.faults = data.draw(
        st.lists(st.sampled_from(["none", "none", "refused", "reply-lost"]), max_size=8)
    )
    world.drain()
    ends = {name: world.state(name)[0] for name in names}
    assert set(ends.values()) <= {"COMPLETED", "DEAD"}
    assert {name for name, end in ends.items() if end == "COMPLETED"} <= set(world.effects)
    dead = [each.body for each in world.backend.dead[world.queue].messages]
    for name, end in ends.items():
        if end == "DEAD":
            assert any(f'"key":"{name}"' in body for body in dead)


def test_each_enqueue_of_one_payload_is_work_of_its_own() -> None:
    ran: list[str] = []

    def run(work: Work, ctx: JobContext) -> None:
        ran.append(ctx.key)

    with isolated():
        each = job("test.each", queue=STANDARD, key=EACH_ENQUEUE)(run)
    backend = Backend(Catalogue((each,)))
    for _ in range(3):
        backend.producer.enqueue(call(each, Work("a")))
    backend.deliver("standard")
    assert len(set(ran)) == 3
