"""What broke the executor once: hostile messages, payloads, errors and moments."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from loomjobs import EACH_ENQUEUE, Defer, JobContext, Permanent, Queue, Transient, Workload, job
from loomjobs.core.call import fifo_id
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.classify import retry_after
from loomjobs.core.delivery import Attribute, Delivery
from loomjobs.core.plan import receive_limit
from loomjobs.core.registry import isolated
from loomjobs.core.renewal import renewed_body
from loomjobs.local.backend import Backend, Killed
from loomjobs.runtime.lanes import Start, ThreadLanes
from loomjobs.runtime.runner import Raised, Returned, Runner
from loomjobs.testing import context
from tests.runtime.world import FIFO, SIDE, STANDARD, Work, World, fail, killing

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def put(world: World, body: Any, **options: Any) -> None:
    """A message as a foreign producer sends it."""
    text = body if isinstance(body, str) else json.dumps(body)
    fifo = {"group": "g", "dedup": fifo_id(text)} if world.queue == "ordered" else {}
    world.backend.queues[world.queue].send(text, now=world.backend.clock.now, **fifo | options)


# -- what arrives -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("²", 0.0),
        ("9" * 5_000, 86_400.0),
        ("0" * 6_000, 0.0),
        ("007", 7.0),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", 0.0),
        ("Mon, 01 Jan 2026 99999999999999999999:00:00 GMT", 0.0),
    ],
)
def test_a_retry_after_of_any_spelling_is_a_number(text: str, seconds: float) -> None:
    assert retry_after(text, NOW) == seconds


@pytest.mark.parametrize(
    "member",
    [
        {"enqueued_at": "0001-01-01T00:00:00+14:00"},
        {"expires": "0001-01-01T00:00:00+14:00"},
        {"expires": "9999-12-31T23:59:59-14:00"},
        {"redrives": 10**40},
        {"hops": 10**9},
        {"payload_version": 10**30},
    ],
)
@pytest.mark.parametrize("queue", [STANDARD, SIDE])
def test_a_member_out_of_all_bounds_is_a_dead_letter_and_its_neighbours_run(queue: Queue, member: Any) -> None:
    world = World(queue)
    put(world, {"job": "test.work", "payload": {"name": "bad"}} | member)
    world.enqueue("a")
    world.drain()
    assert world.dead() == ["bad-envelope"]
    assert world.effects == ["a"]


@dataclass(frozen=True)
class Odd:
    name: str

    def __post_init__(self) -> None:
        {"key": KeyError("x"), "zero": ZeroDivisionError(), "gone": Permanent("x")}.get(self.name, "")
        if self.name == "key":
            raise KeyError(self.name)
        if self.name == "zero":
            raise ZeroDivisionError
        if self.name == "gone":
            raise Permanent("x")


@pytest.mark.parametrize("name", ["key", "zero", "gone"])
def test_whatever_a_payloads_type_raises_is_a_bad_payload(name: str) -> None:
    def run(payload: Odd, ctx: JobContext) -> None: ...

    with isolated():
        declared = job("test.odd", queue=STANDARD, key="name")(run)
    backend = Backend(Catalogue((declared,)))
    backend.queues["standard"].send(json.dumps({"job": "test.odd", "payload": {"name": name}}), now=backend.clock.now)
    ((_, decision),) = backend.deliver("standard")
    assert getattr(decision, "reason", None) == "bad-payload"


@pytest.mark.parametrize(
    "error", [Transient("x", after=timedelta.max), Defer(timedelta.max), Defer(timedelta(days=-1))]
)
def test_a_wait_for_ever_is_a_wait_and_no_error(error: BaseException) -> None:
    world = World()
    world.behave = lambda work, ctx: fail(error)
    world.enqueue("a")
    assert world.deliver()[0] in ("Renewed", "DeferFor")


def test_a_fault_of_ours_stays_with_its_delivery() -> None:
    world = World(SIDE)
    worker = world.backend.workers["side"]
    complete = worker.ledger.completing

    def broken(record: Any, *, result: Any) -> Any:
        if record.id.endswith("#b"):
            raise ZeroDivisionError("ours")
        return complete(record, result=result)

    worker.ledger.completing = broken  # type: ignore[method-assign]
    world.enqueue("a", "b", "c")
    assert world.deliver() == ["Acknowledge", "HandBack", "Acknowledge"]
    assert any("ours" in what for what in world.backend.journal.troubles)


# -- take-overs and halts ---------------------------------------------------------------------------
@pytest.mark.parametrize("reverse", [False, True])
def test_a_crashed_run_is_not_taken_over_by_work_of_the_same_key_and_another_payload(reverse: bool) -> None:
    world = World()
    killing(world, 1)
    world.enqueue("a", group="first")
    world.deliver()
    ran: list[str] = []
    world.behave = lambda work, ctx: ran.append(work.group)
    world.enqueue("a", group="second")
    messages = world.backend.queues["standard"].messages
    if reverse:
        messages.reverse()
    world.backend.clock.now = max(message.visible_at for message in messages)
    world.drain()
    assert ran == ["first"]
    assert world.dead() == ["key-conflict"]


def redriven(world: World) -> None:
    (letter,) = world.backend.dead["ordered"].messages
    world.backend.queues["ordered"].send(
        letter.body, now=world.backend.clock.now, group="g", dedup="again", attributes=letter.attributes
    )


@pytest.mark.parametrize("how", ["plain", "commit", "killed before the lift", "store fails the lift"])
def test_a_redriven_head_lifts_its_halt_on_every_way_to_success(how: str) -> None:
    from loomjobs.core.errors import StoreUnavailable

    world = World(FIFO, on_dead="halt", attempts=1)
    world.behave = lambda work, ctx: fail(Permanent("no"))
    world.enqueue("a")
    world.deliver()
    world.backend.clock.advance(timedelta(hours=1))
    redriven(world)
    world.enqueue("b")
    world.behave = (lambda work, ctx: ctx.commit()) if how == "commit" else (lambda work, ctx: None)
    store, armed = world.backend.store, [how.endswith("lift")]

    def write(write: Any, /) -> Any:
        if write.id.startswith("~halt") and armed[0]:
            armed[0] = False
            raise Killed if how.startswith("killed") else StoreUnavailable("injected")
        return type(store).write(store, write)

    store.write = write  # type: ignore[method-assign]
    world.drain()
    assert world.state("a")[0] == "COMPLETED"
    assert world.state("b")[0] == "COMPLETED"


@pytest.mark.parametrize("kind", ["bad-payload", "key-conflict"])
def test_a_message_that_is_no_work_halts_the_group_of_a_halting_job_too(kind: str) -> None:
    world = World(FIFO, on_dead="halt")
    world.enqueue("done", group="other")
    world.deliver()
    payload = {"nam": 1} if kind == "bad-payload" else {"name": "done", "group": "changed"}
    put(world, {"job": "test.work", "payload": payload})
    world.enqueue("next")
    for _ in range(10):
        world.backend.step() or world.backend.advance_to_next()
    assert world.dead() == [kind]
    assert world.effects == ["done"]


def test_a_message_that_has_to_wait_holds_up_nothing_ahead_of_it_in_its_group() -> None:
    world = World(FIFO)
    world.enqueue("a")
    put(world, {"job": "test.work", "payload": {"name": "n"}, "payload_version": 2})
    world.enqueue("c")
    assert world.deliver() == ["Acknowledge", "DeferFor", "DeferFor"]
    assert world.effects == ["a"]


# -- the receive budget -----------------------------------------------------------------------------
def renewing(kind: Any, **members: Any) -> Delivery:
    attributes = {"loom": Attribute("String", '{"id": "first"}')} if kind == "redriven" else {}
    return Delivery(
        message_id="m1", body=json.dumps({"job": "a.b", "payload": {}} | members), receipt="r", queue="q",
        sent_at=NOW, received_at=NOW, attributes=attributes,
    )  # fmt: skip


def test_a_renewed_message_keeps_its_identity_and_that_it_was_redriven() -> None:
    assert json.loads(renewed_body(renewing("foreign")))["id"] == "m1"
    again = json.loads(renewed_body(renewing("redriven")))
    assert (again["id"], again["redrives"]) == ("first", 1)
    ours = renewing("ours", id="x")
    assert renewed_body(ours) == ours.body
    assert renewed_body(Delivery(message_id="m", body="[", receipt="", queue="q", sent_at=NOW, received_at=NOW)) == "["


def test_a_foreign_message_without_identity_ends_although_it_is_renewed() -> None:
    def run(payload: Work, ctx: JobContext) -> None:
        raise ValueError("always")

    with isolated():
        each = job("test.each", queue=STANDARD, key=EACH_ENQUEUE)(run)
    backend = Backend(Catalogue((each,)))
    body = json.dumps({"job": "test.each", "payload": {"name": "a"}})
    backend.queues["standard"].send(body, now=backend.clock.now)
    backend.queues["standard"].messages[0].receives = receive_limit(STANDARD) - 2
    for _ in range(60):
        backend.step() or backend.advance_to_next()
    assert len(backend.dead["standard"].messages) == 1
    (record,) = [item for id, item in backend.store.items.items() if not id.startswith("~")]
    assert (record["status"], record["n"]) == ("DEAD", 5)


class Broken:
    def renew(self, delivery: Delivery, seconds: float, /) -> None:
        raise OSError("no scheduler")


@pytest.mark.parametrize("wait", [timedelta(days=2), timedelta(seconds=1)])
def test_a_message_that_cannot_be_renewed_is_a_dead_letter_of_ours_and_never_lost(wait: timedelta) -> None:
    world = World()
    object.__setattr__(world.backend.workers["standard"], "renewals", Broken())
    world.behave = lambda work, ctx: fail(Defer(wait))
    world.enqueue("a")
    if wait < timedelta(days=1):
        world.backend.queues["standard"].messages[0].receives = receive_limit(STANDARD) - 3
    world.drain(rounds=3_000)
    assert world.dead() in (["retention"], ["receive-budget"])
    assert world.state("a")[0] == "DEAD"


@pytest.mark.parametrize("queue", [STANDARD, FIFO])
def test_an_outage_of_the_store_for_a_day_takes_no_job_away(queue: Queue) -> None:
    world = World(queue)
    store, end = world.backend.store, world.backend.clock.now + timedelta(days=1)

    def write(write: Any, /) -> Any:
        from loomjobs.core.errors import StoreUnavailable

        if world.backend.clock.now < end:
            raise StoreUnavailable("down")
        return type(store).write(store, write)

    store.write = write  # type: ignore[method-assign]
    world.enqueue("a")
    world.drain(rounds=5_000)
    assert world.effects == ["a"]
    assert world.dead() == []


# -- lanes ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Nothing:
    """No fields."""


def declared(function: Any) -> Any:
    with isolated():
        return job("test.lane", queue=SIDE, key=EACH_ENQUEUE)(function)


async def slow(payload: Nothing, ctx: JobContext) -> None:
    for _ in range(20):
        await asyncio.sleep(0.02)
        TICKS.append("slow")


async def quick(payload: Nothing, ctx: JobContext) -> int:
    await asyncio.sleep(0.1)
    return 7


TICKS: list[str] = []


@pytest.mark.parametrize("interrupted", [False, True])
def test_an_async_job_that_was_stopped_does_not_go_on_in_the_next_one(interrupted: bool) -> None:
    runner = Runner()
    if interrupted:
        threading.Timer(0.05, runner.interrupt).start()
    ending = runner.run(declared(slow), Nothing(), context(), seconds=10 if interrupted else 0.05)
    assert isinstance(ending, Raised)
    TICKS.clear()
    assert runner.run(declared(quick), Nothing(), context(), seconds=5) == Returned(7)
    assert TICKS == []
    runner.close()


async def exits(payload: Nothing, ctx: JobContext) -> None:
    async def child() -> None:
        sys.exit(3)

    await asyncio.gather(child())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_task_that_exits_is_its_jobs_failure_and_nobody_elses() -> None:
    runner = Runner()
    ending = runner.run(declared(exits), Nothing(), context(), seconds=2)
    assert isinstance(ending, Raised)
    assert isinstance(ending.error, SystemExit)
    assert runner.run(declared(quick), Nothing(), context(), seconds=5) == Returned(7)
    runner.close()
    lanes = ThreadLanes(2)
    for place, function in (("exits", exits), ("quick", quick)):
        lanes.start(Start(place=place, job=declared(function), payload=Nothing(), ctx=context(), seconds=3.0))
    found: dict[Any, Any] = {}
    while len(found) < 2:
        found |= dict(lanes.ended(linger=0.0))
    assert found["quick"] == Returned(7)
    assert isinstance(found["exits"], Raised)
    assert not lanes.stuck


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_a_job_left_running_and_cannot_be_cancelled_takes_nothing_of_its_result() -> None:
    async def stubborn(payload: Nothing, ctx: JobContext) -> str:
        async def deaf() -> None:
            until = time.monotonic() + 3
            while time.monotonic() < until:
                try:
                    await asyncio.sleep(0.05)
                except asyncio.CancelledError:
                    continue

        asyncio.create_task(deaf())  # noqa: RUF006 that is the fault under test
        await asyncio.sleep(0.01)
        return "done"

    runner = Runner()
    assert runner.run(declared(stubborn), Nothing(), context(), seconds=1.0) == Returned("done")
    lanes = ThreadLanes(1)
    lanes.start(Start(place=1, job=declared(stubborn), payload=Nothing(), ctx=context(), seconds=1.0))
    assert lanes.ended(linger=0.0) == [(1, Returned("done"))]
    assert lanes.stuck


def test_an_ending_of_a_batch_that_broke_off_is_nobodys_in_the_next() -> None:
    """The second batch's job must not be completed with the first one's result."""
    from dataclasses import replace

    from loomjobs.runtime.batch import Batch

    release = threading.Event()
    side = Queue("threads", workload=Workload.BULK, parallel=2, batch_size=2, job_timeout=timedelta(seconds=20))
    world = World(side)
    worker = replace(world.backend.workers["threads"], lanes=ThreadLanes(2))

    def behave(work: Any, ctx: JobContext) -> None:
        if work.name == "old":
            release.wait(5)
        else:
            time.sleep(0.3)

    world.behave = behave

    def batch(name: str) -> Batch:
        world.enqueue(name)
        (message,) = world.backend.queues["threads"].receive(1, now=world.backend.clock.now)
        delivery = Delivery(
            message_id=message.id, body=message.body, receipt="same", queue="threads",
            sent_at=world.backend.clock.now, received_at=world.backend.clock.now,
        )  # fmt: skip
        until = world.backend.clock.now + timedelta(seconds=60)
        return Batch(worker, [delivery], until=until, longest=timedelta(seconds=20))

    broken = batch("old")
    broken._collect = lambda: fail(RuntimeError("broke off"))  # type: ignore[method-assign]
    with pytest.raises(Killed):
        broken.decide()  # it ends the process: a job is still running
    release.set()
    ((_, decision),) = batch("new").decide()
    assert getattr(decision, "why", "") == "succeeded"
    assert world.backend.store.items["test.work#new"]["data"] == '"new"'
