"""Breakers, rates and locks in the executor: who waits, what is written, and what is free again afterwards."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from loomjobs import Defer, JobContext, Permanent, Queue, Rate, Service, Transient, Workload, call
from loomjobs.local.backend import Killed
from tests.runtime.world import FIFO, SIDE, STANDARD, Work, World, fail

API = Service("api", breaker=True)
SECOND = timedelta(seconds=1)


def items(world: World, prefix: str) -> dict[str, Any]:
    return {id: item for id, item in world.backend.store.items.items() if id.startswith(prefix)}


# -- rates ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("queue", [STANDARD, SIDE])
def test_a_rate_spreads_the_starts_and_a_job_meets_its_limiter_about_twice(queue: Queue) -> None:
    world = World(queue, rate=Rate(30, per=timedelta(minutes=1)))
    starts: list[Any] = []
    world.behave = lambda work, ctx: starts.append(world.backend.clock.now)
    world.enqueue(*(f"j{n}" for n in range(60)))
    world.drain()
    assert len(world.effects) == 60
    for first in starts:
        inside = [start for start in starts if first <= start < first + timedelta(minutes=1)]
        assert len(inside) <= 31 + 5  # those of the slots, and what the ten seconds of grace may bring
    deliveries = len(list(world.backend.runs()))
    assert deliveries <= 2.2 * 60
    assert all(world.state(f"j{n}") == ("COMPLETED", 0) for n in range(60))


def test_a_duplicate_of_a_finished_job_is_told_so_although_its_rate_is_used_up() -> None:
    world = World(rate=Rate(1, per=timedelta(minutes=10)))
    world.enqueue("a", "a", "b")
    world.drain()
    whys = [getattr(run.decision, "why", "") for run in world.backend.runs()]
    assert whys.count("duplicate") == 1
    assert world.effects == ["a", "b"]


def test_a_rate_per_key_holds_back_nobody_else() -> None:
    world = World(rate=Rate(1, per=timedelta(minutes=1), key="group"))
    world.enqueue("a1", "a2", "a3", group="a")
    world.enqueue("b1", group="b")
    world.deliver()
    assert world.effects == ["a1", "b1"]
    world.drain()
    assert world.effects == ["a1", "b1", "a2", "a3"]


def test_a_failure_takes_a_slot_again() -> None:
    world = World(rate=Rate(60, per=timedelta(minutes=1)), attempts=4)
    world.behave = lambda work, ctx: fail(Transient("no")) if ctx.attempt < 4 else None
    world.enqueue("a")
    world.drain()
    assert world.state("a") == ("COMPLETED", 3)
    assert "slot" not in world.backend.store.items["test.work#a"]


def test_a_crashed_job_of_a_limited_rate_runs_again() -> None:
    world = World(rate=Rate(1, per=timedelta(minutes=5)))
    killed = [True]

    def behave(work: Work, ctx: JobContext) -> None:
        if killed:
            killed.clear()
            raise Killed

    world.behave = behave
    world.enqueue("a")
    world.drain()
    assert world.effects == ["a"]


# -- locks ------------------------------------------------------------------------------------------
def test_a_lock_lets_one_of_its_key_run_at_a_time_and_is_free_on_every_path() -> None:
    world = World(SIDE, exclusive="group", attempts=3)
    running: list[str] = []

    def behave(work: Work, ctx: JobContext) -> None:
        held = [item for id, item in items(world, "~lock").items() if item.get("until", 0) > 0]
        assert len(held) <= 1
        running.append(work.name)
        if work.name == "b" and ctx.attempt == 1:
            raise Transient("no")
        if work.name == "c" and running.count("c") == 1:
            raise Defer(SECOND)
        if work.name == "d":
            raise Permanent("no")

    world.behave = behave
    world.enqueue(*"abcde")
    world.drain()
    assert sorted(world.effects) == ["a", "b", "c", "e"]
    assert world.dead() == ["permanent"]
    now = int(world.backend.clock.now.timestamp() * 1000)
    assert all(item.get("until", 0) <= now for item in items(world, "~lock").values())


def test_a_lock_of_a_killed_worker_ends_with_its_lease() -> None:
    world = World(exclusive="group")
    killed = [True]

    def behave(work: Work, ctx: JobContext) -> None:
        if killed:
            killed.clear()
            raise Killed

    world.behave = behave
    world.enqueue("a", "b")
    world.drain()
    assert sorted(world.effects) == ["a", "b"]


def test_another_group_is_not_held_back() -> None:
    world = World(SIDE, exclusive="group")
    world.enqueue("a1", "a2", group="a")
    world.enqueue("b1", group="b")
    world.deliver()
    assert sorted(world.effects) == ["a1", "b1"]


# -- breakers ---------------------------------------------------------------------------------------
def outage(world: World, until: timedelta) -> list[Any]:
    """The service fails until so long after the start; every call to it is noted."""
    start = world.backend.clock.now
    calls: list[Any] = []

    def behave(work: Work, ctx: JobContext) -> None:
        calls.append(world.backend.clock.now - start)
        if world.backend.clock.now < start + until:
            raise Transient("the service is down")

    world.behave = behave
    return calls


@pytest.mark.parametrize("queue", [STANDARD, SIDE, FIFO])
def test_an_outage_costs_few_attempts_and_loses_nothing(queue: Queue) -> None:
    world = World(queue, uses=[API], attempts=6)
    calls = outage(world, timedelta(minutes=20))
    names = [f"j{n}" for n in range(40)]
    for name in names:
        world.enqueue(name, group=name)
    world.drain(rounds=5_000)
    assert sorted(world.effects) == sorted(names)
    assert world.dead() == []
    during = [at for at in calls if at < timedelta(minutes=20)]
    assert len(during) < 30  # a threshold of failures in a row, then a probe now and then
    # what opened it is charged; a probe's failure is the outage's, and no job's
    assert sum(world.state(name)[1] for name in names) == 5
    deferred = [item for item in items(world, "test.work").values() if "which still fails" in item.get("dfr_why", "")]
    assert len(during) > 5
    assert deferred != []


def test_one_job_outlives_an_outage_longer_than_its_attempts() -> None:
    world = World(uses=[API], attempts=6)
    calls = outage(world, timedelta(hours=5))
    world.enqueue(*(f"j{n}" for n in range(5)))
    world.drain(rounds=5_000)
    assert len(world.effects) == 5
    assert len(calls) > 30


def test_while_the_breaker_is_open_nothing_is_written_to_the_records() -> None:
    world = World(uses=[API], attempts=6)
    outage(world, timedelta(minutes=20))
    world.enqueue(*(f"j{n}" for n in range(5)))
    world.deliver()  # five failures in a row open it
    before = {id: dict(item) for id, item in items(world, "test.work").items()}
    world.enqueue("late")
    world.deliver()
    assert items(world, "test.work") == before
    assert world.backend.journal.counts[0][0] == "BreakerOpen"


def test_after_an_outage_the_backlog_comes_back_gradually() -> None:
    world = World(uses=[API], attempts=6)
    calls = outage(world, timedelta(minutes=5))
    names = [f"j{n}" for n in range(400)]
    world.enqueue(*names)
    for _ in range(20_000):
        if not world.backend.step():
            if not world.backend.advance_to_next():
                break
        else:
            world.backend.clock.advance(SECOND)
    assert sorted(world.effects) == sorted(names)
    after = sorted(at for at in calls if at >= timedelta(minutes=5))
    first = [at for at in after if at < after[0] + timedelta(seconds=60)]
    third = [at for at in after if after[0] + timedelta(seconds=120) <= at < after[0] + timedelta(seconds=180)]
    assert len(first) < len(third) or len(after) == len(first)


def test_only_the_services_own_errors_open_it() -> None:
    world = World(uses=[API], attempts=1)
    world.behave = lambda work, ctx: fail(Permanent("bad payload"))
    world.enqueue(*(f"j{n}" for n in range(15)))
    world.drain()
    assert world.dead() == ["permanent"] * 15
    assert world.backend.journal.counts == []


def test_one_breaker_is_shared_by_the_jobs_that_use_the_service() -> None:
    from loomjobs.core.catalogue import Catalogue
    from loomjobs.core.declare import job
    from loomjobs.core.registry import isolated
    from loomjobs.local.backend import Backend

    other_queue = Queue("other", workload=Workload.BULK, job_timeout=timedelta(seconds=10))
    ran: list[str] = []

    def down(work: Work, ctx: JobContext) -> None:
        raise Transient("down")

    def up(work: Work, ctx: JobContext) -> None:
        ran.append(work.name)

    with isolated():
        one = job("test.one", queue=STANDARD, key="name", uses=[API])(down)
        two = job("test.two", queue=other_queue, key="name", uses=[API])(up)
    backend = Backend(Catalogue((one, two)))
    for number in range(5):
        backend.producer.enqueue(call(one, Work(str(number))))
    backend.deliver("standard")
    backend.producer.enqueue(call(two, Work("x")))
    backend.deliver("other")
    assert ran == []


class Valve:
    def __init__(self) -> None:
        self.shut_for: list[float] = []
        self.broken = False

    def shut(self, seconds: float, /) -> None:
        if self.broken:
            raise OSError("denied")
        self.shut_for.append(seconds)


def with_valve(world: World) -> Valve:
    valve = Valve()
    object.__setattr__(world.backend.workers[world.queue], "valve", valve)
    return valve


def open_for_long(world: World) -> None:
    """Five failures, and then a probe that fails: the circuit stays open for a minute."""
    outage(world, timedelta(hours=1))
    world.enqueue(*(f"j{n}" for n in range(5)))
    world.deliver()
    world.backend.clock.advance(timedelta(seconds=31))
    world.enqueue("probe")
    for _ in range(50):
        world.deliver()
        if world.backend.workers[world.queue].brakes.shut_for() >= 55:
            return
        world.backend.advance_to_next()
    raise AssertionError("the circuit did not open for long")


def test_a_queue_that_only_waits_for_an_open_circuit_is_switched_off() -> None:
    world = World(uses=[API], attempts=9)
    valve = with_valve(world)
    open_for_long(world)
    world.backend.clock.advance(timedelta(seconds=61))
    open_again = 0
    while not valve.shut_for and open_again < 200:
        open_again += 1
        world.enqueue(f"more{open_again}")
        world.deliver()
        world.backend.clock.advance(timedelta(seconds=7))
    assert valve.shut_for != []
    assert 60 <= valve.shut_for[0] <= 600
    assert ("ValveShut", None) in world.backend.journal.counts


def test_a_valve_that_does_not_shut_changes_nothing() -> None:
    world = World(uses=[API], attempts=9)
    valve = with_valve(world)
    valve.broken = True
    outage(world, timedelta(minutes=30))
    world.enqueue(*(f"j{n}" for n in range(20)))
    world.drain(rounds=5_000)
    assert len(world.effects) == 20
    assert any("was not switched off" in what for what in world.backend.journal.troubles)


def test_a_queue_with_other_work_is_not_switched_off() -> None:
    world = World()
    valve = with_valve(world)
    world.enqueue("a", "b")
    world.drain()
    assert valve.shut_for == []
