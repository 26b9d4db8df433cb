"""Jobs of one delivery: claimed and recorded together, one at a time where they must be, suspects alone at the end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from loomjobs import Defer, JobContext, Permanent, Transient, call
from loomjobs.core.delivery import Delivery
from loomjobs.core.plan import receive_limit
from loomjobs.core.write import Write
from loomjobs.local.backend import Killed
from loomjobs.runtime.ports import Answer
from tests.runtime.world import FIFO, SIDE, STANDARD, Work, World, fail


class Calls:
    """Counts what a store is asked: `batches` of many writes, and single ones."""

    def __init__(self, world: World) -> None:
        self.batches: list[list[str]] = []
        self.singles: list[str] = []
        store = world.backend.store
        many, one = type(store).write_many, type(store).write

        def write_many(writes: Sequence[Write], /) -> Sequence[Answer]:
            self.batches.append([str(write.sets["status"]) for write in writes])
            return [one(store, write) for write in writes]

        def write(write: Write, /) -> Any:
            self.singles.append(str(write.sets.get("status", "")))
            return one(store, write)

        assert many is not None
        store.write_many = write_many  # type: ignore[method-assign]
        store.write = write  # type: ignore[method-assign]


def test_jobs_side_by_side_are_claimed_in_one_call() -> None:
    world = World(SIDE)
    calls = Calls(world)
    world.enqueue(*"abcde")
    world.drain()
    assert calls.batches[0] == ["INPROGRESS"] * 5
    assert sorted(world.effects) == list("abcde")
    assert calls.singles == []


def test_an_ending_rides_with_the_next_claim() -> None:
    world = World()
    calls = Calls(world)
    world.enqueue(*"abc")
    world.drain()
    assert calls.batches == [
        ["INPROGRESS"],
        ["COMPLETED", "INPROGRESS"],
        ["COMPLETED", "INPROGRESS"],
        ["COMPLETED"],
    ]


def test_a_job_starts_only_when_the_ending_before_it_is_durable() -> None:
    world = World()
    seen: list[dict[str, str]] = []
    world.behave = lambda work, ctx: seen.append({i["id"][10:]: i["status"] for i in world.backend.store})
    world.enqueue(*"abc")
    world.drain()
    assert seen == [
        {"a": "INPROGRESS"},
        {"a": "COMPLETED", "b": "INPROGRESS"},
        {"a": "COMPLETED", "b": "COMPLETED", "c": "INPROGRESS"},
    ]


def test_a_second_message_of_one_job_in_a_batch_waits_for_the_first() -> None:
    world = World(SIDE)
    world.enqueue("a", "b", "a")
    assert world.deliver() == ["Acknowledge"] * 3
    assert sorted(world.effects) == ["a", "b"]
    assert [run.decision.why for run in world.backend.runs()].count("duplicate") == 1  # type: ignore[union-attr]


def test_a_wave_holds_one_job_of_a_group_and_keeps_its_order() -> None:
    world = World(FIFO)
    world.enqueue("a1", "a2", group="a")
    world.enqueue("b1", group="b")
    world.drain()
    assert world.effects.index("a1") < world.effects.index("a2")


def test_on_fifo_records_behind_a_failed_one_are_handed_back_at_once_and_uncharged() -> None:
    world = World(FIFO)
    world.behave = lambda work, ctx: fail(Transient("no")) if work.name == "a1" and ctx.attempt == 1 else None
    world.enqueue("a1", "a2", "a3", group="a")
    world.enqueue("b1", group="b")
    assert world.deliver() == ["RetryIn", "DeferFor", "DeferFor", "Acknowledge"]
    assert world.effects == ["b1"]
    assert world.backend.journal.counts == [("GroupsBlocked", None)]
    world.drain()
    assert world.effects == ["b1", "a1", "a2", "a3"]
    assert world.state("a2") == ("COMPLETED", 0)


def test_siblings_of_a_poisoned_head_run_after_it_is_dead_and_none_dies_unattempted() -> None:
    world = World(FIFO, attempts=3)
    world.behave = lambda work, ctx: fail(ValueError("poison")) if work.name == "a1" else None
    world.enqueue(*(f"a{n}" for n in range(1, 11)))
    world.drain()
    assert world.effects == [f"a{n}" for n in range(2, 11)]
    assert world.dead() == ["exhausted"]


def test_a_crash_of_a_wave_is_charged_to_nobody_and_then_to_the_one_that_crashed_alone() -> None:
    world = World(SIDE, attempts=3)

    def behave(work: Work, ctx: JobContext) -> None:
        if work.name == "poison":
            raise Killed

    world.behave = behave
    world.enqueue("a", "b", "poison", "c", "d")
    world.drain()
    assert sorted(set(world.effects)) == ["a", "b", "c", "d"]
    assert world.state("poison") == ("DEAD", 3)
    assert world.dead() == ["crashed"]
    for name in "abcd":
        assert world.state(name) == ("COMPLETED", 0)


def deleted_when(world: World, name: str) -> list[int]:
    """How many messages had been deleted each time that `name` started."""
    seen: list[int] = []
    before = world.behave

    def behave(work: Work, ctx: JobContext) -> None:
        if work.name == name:
            seen.append(5 - world.backend.pending())
        before(work, ctx)

    world.behave = behave
    return seen


@pytest.mark.parametrize("queue", [STANDARD, SIDE])
def test_before_a_suspect_starts_everything_that_ended_is_acknowledged(queue: Any) -> None:
    world = World(queue, attempts=4)
    crashes = [2]

    def behave(work: Work, ctx: JobContext) -> None:
        if work.name == "poison" and crashes[0]:
            crashes[0] -= 1
            raise Killed

    world.behave = behave
    seen = deleted_when(world, "poison")
    world.enqueue("a", "b", "c", "d", "poison")
    world.drain()
    assert seen == [0, 4, 4]
    assert sorted(set(world.effects)) == ["a", "b", "c", "d", "poison"]


def test_a_suspect_that_found_no_time_twice_goes_first() -> None:
    world = World(attempts=4)
    killed, order = [True], []

    def behave(work: Work, ctx: JobContext) -> None:
        order.append(work.name)
        if work.name == "poison" and killed[0]:
            killed[0] = False
            raise Killed
        if work.name != "poison":
            world.backend.clock.advance(timedelta(seconds=58))  # nothing is left of the invocation after it

    world.behave = behave
    world.enqueue("poison")
    world.deliver()
    for name in "abc":
        world.backend.clock.advance(timedelta(seconds=80))
        world.enqueue(name)
        world.deliver()
    assert order == ["poison", "a", "b", "poison", "c"]


def test_a_fifo_group_waits_behind_its_suspect_head() -> None:
    world = World(FIFO, attempts=4)
    killed = [True]

    def behave(work: Work, ctx: JobContext) -> None:
        if work.name == "a1" and killed[0]:
            killed[0] = False
            raise Killed

    world.behave = behave
    world.enqueue("a1", "a2", "a3", group="a")
    world.drain()
    assert world.effects == ["a1", "a2", "a3"]


def test_without_the_store_one_claim_is_tried_and_everything_is_handed_back() -> None:
    world = World()
    world.enqueue(*"abcde")
    world.backend.store.faults = ["refused"] * 2
    assert world.deliver() == ["DeferFor"] * 5
    assert world.effects == []
    whys = [run.detail for run in world.backend.runs()]
    assert whys[1:] == ["the store did not answer a moment ago"] * 4
    waits = [run.decision.delay for run in world.backend.runs()]  # type: ignore[union-attr]
    assert all(30 <= wait <= 120 for wait in waits)
    world.drain()
    assert sorted(world.effects) == list("abcde")


def test_an_ending_is_tried_again_while_there_is_time() -> None:
    world = World()
    world.backend.store.faults = ["none", "refused", "refused"]
    world.enqueue("a")
    assert world.deliver() == ["Acknowledge"]
    assert world.state("a") == ("COMPLETED", 0)


def test_an_ending_that_cannot_be_recorded_is_not_acknowledged_and_runs_again() -> None:
    world = World()
    world.backend.store.faults = ["none", *["refused"] * 4]
    world.enqueue("a")
    assert world.deliver() == ["HandBack"]
    assert [run.decision.why for run in world.backend.runs()] == ["effect uncertain"]  # type: ignore[union-attr]
    world.drain()
    assert world.effects == ["a", "a"]
    assert ("EffectUncertain", "test.work") in world.backend.journal.counts


def test_a_standard_message_whose_receives_run_out_is_renewed_and_still_runs() -> None:
    world = World()
    limit = receive_limit(STANDARD)
    deferred = [limit + 5]

    def behave(work: Work, ctx: JobContext) -> None:
        if deferred[0]:
            deferred[0] -= 1
            raise Defer(timedelta(seconds=1))

    world.behave = behave
    world.enqueue("a")
    for _ in range(3 * limit):
        if not world.backend.step() and not world.backend.advance_to_next():
            break
    assert world.effects == ["a"]
    assert len(world.backend.renewed) == 1
    assert world.state("a") == ("COMPLETED", 0)
    assert world.dead() == []


def test_a_fifo_message_whose_receives_run_out_is_a_dead_letter_of_ours() -> None:
    world = World(FIFO)
    world.behave = lambda work, ctx: fail(Defer(timedelta(seconds=1)))
    world.enqueue("a")
    for _ in range(2_000):
        if not world.backend.step() and not world.backend.advance_to_next():
            break
    assert world.dead() == ["receive-budget"]
    assert world.state("a") == ("DEAD", 0)


def test_what_waits_until_its_retention_ends_is_a_dead_letter_of_ours() -> None:
    world = World()
    world.behave = lambda work, ctx: fail(Defer(timedelta(hours=8)))
    world.enqueue("a")
    world.drain()
    assert world.dead() == ["retention"]
    assert world.backend.clock.now < world.backend.clock.now.replace(year=2027)


def test_a_renewal_that_fails_leaves_the_message_where_it_is() -> None:
    world = World()

    class Broken:
        def renew(self, delivery: Delivery, seconds: float, /) -> None:
            raise OSError("no scheduler")

    object.__setattr__(world.backend.workers["standard"], "renewals", Broken())
    world.behave = lambda work, ctx: fail(Defer(timedelta(days=2)))
    world.enqueue("a")
    assert world.deliver() == ["DeferFor"]
    assert "no scheduler" in next(world.backend.runs()).detail
    assert world.backend.pending() == 1


def test_a_wait_beyond_twelve_hours_is_one_renewal() -> None:
    world = World()
    first = [True]

    def behave(work: Work, ctx: JobContext) -> None:
        if first.pop() if first else False:
            raise Defer(timedelta(days=2))

    world.behave = behave
    world.enqueue("a")
    start = world.backend.clock.now
    assert world.deliver() == ["Renewed"]
    world.drain()
    assert world.effects == ["a"]
    assert world.backend.clock.now - start >= timedelta(days=2)
    assert world.state("a") == ("COMPLETED", 0)


def test_a_permanent_failure_of_a_duplicate_delivery_makes_one_letter() -> None:
    world = World(SIDE)
    world.behave = lambda work, ctx: fail(Permanent("no"))
    world.enqueue("a", "a")
    world.drain()
    assert world.dead() == ["permanent"]


def test_work_of_two_jobs_is_independent_of_their_order_in_the_batch() -> None:
    world = World(SIDE)
    world.behave = lambda work, ctx: fail(Transient("later")) if work.name == "a" and ctx.attempt == 1 else None
    for name in "abc":
        world.backend.producer.enqueue(call(world.job, Work(name)))
    assert world.deliver() == ["RetryIn", "Acknowledge", "Acknowledge"]
