"""`then=`: what follows a job is sent when it has succeeded, once in effect, wherever its worker dies."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from loomjobs import EACH_ENQUEUE, JobContext, Permanent, Queue, Retry, Workload, call, correlation, job
from loomjobs.core.call import Call
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.errors import InvalidOption, PayloadTooLarge, UndeclaredSend
from loomjobs.core.follow import Follow
from loomjobs.core.outgoing import Sent
from loomjobs.core.registry import isolated
from loomjobs.local.backend import Backend, Killed

FIRST = Queue("first", workload=Workload.BULK, job_timeout=timedelta(seconds=10))
NEXT = Queue("next", workload=Workload.BULK, job_timeout=timedelta(seconds=10), fifo=True)


@dataclass(frozen=True)
class Work:
    name: str
    group: str = "g"


class World:
    def __init__(self) -> None:
        self.ran: list[str] = []
        self.deadlines: list[datetime | None] = []
        self.behave: Callable[[Work, JobContext], None] = lambda work, ctx: None

        def run(work: Work, ctx: JobContext) -> None:
            self.behave(work, ctx)
            self.ran.append(work.name)
            self.deadlines.append(ctx.deadline)

        with isolated():
            self.last = job("test.last", queue=NEXT, key=EACH_ENQUEUE, group="group", expires=timedelta(hours=6))(run)
            self.first = job(
                "test.first", queue=FIRST, key="name", retry=Retry(attempts=2), sends=[self.last, "test.first"]
            )(run)
        self.backend = Backend(Catalogue((self.first, self.last)))

    def one(self, name: str, then: Call | None = None, **more: Any) -> Call:
        return call(self.first, Work(name), then=then, **more)

    def go(self, one: Call) -> None:
        self.backend.producer.enqueue(one)
        self.drain()

    def drain(self) -> None:
        for _ in range(500):
            if not self.backend.step() and not self.backend.advance_to_next():
                return


def test_a_chain_runs_in_order_and_each_only_after_the_one_before() -> None:
    world = World()
    world.go(world.one("a", world.one("b", world.one("c", call(world.last, Work("d"))))))
    assert world.ran == ["a", "b", "c", "d"]
    assert [run.job for run in world.backend.runs()] == ["test.first"] * 3 + ["test.last"]


def test_nothing_follows_a_failure_until_it_is_redriven() -> None:
    world = World()

    def fail(work: Work, ctx: JobContext) -> None:
        raise Permanent("no")

    world.behave = fail
    world.go(world.one("a", world.one("b")))
    assert world.ran == []
    world.behave = lambda work, ctx: None
    world.backend.clock.advance(timedelta(minutes=1))
    (dead,) = world.backend.dead["first"].messages
    world.backend.queues["first"].send(dead.body, now=world.backend.clock())
    world.drain()
    assert world.ran == ["a", "b"]


@pytest.mark.parametrize("step", ["before", "after"])
def test_a_worker_that_dies_around_the_send_repeats_it_and_the_effect_is_one(step: str) -> None:
    world = World()
    forward, killed = world.backend.producer.forward, list[bool]()

    def dying(follows: Any) -> None:
        if not killed:
            killed.append(True)
            if step == "after":
                forward(follows)
            raise Killed
        forward(follows)

    world.backend.producer.forward = dying  # type: ignore[method-assign]
    world.go(world.one("a", call(world.last, Work("b"))))
    assert killed
    assert world.ran == ["a", "b"]


def test_a_doubled_message_sends_what_follows_again_and_it_is_suppressed() -> None:
    world = World()
    chain = world.one("a", call(world.last, Work("b")))
    world.go(chain)
    world.backend.clock.advance(timedelta(minutes=10))  # beyond FIFO deduplication
    world.go(chain)
    assert world.ran == ["a", "b"]
    assert [run.job for run in world.backend.runs()] == ["test.first", "test.last"] * 2


def test_times_of_what_follows_count_from_when_it_is_sent() -> None:
    world = World()
    world.behave = lambda work, ctx: world.backend.clock.advance(timedelta(seconds=5))
    began = world.backend.clock()
    world.go(
        world.one("a", world.one("b", call(world.last, Work("c"), delay=timedelta(days=2)), delay=timedelta(days=1)))
    )
    assert world.ran == ["a", "b", "c"]
    deadline = world.deadlines[-1]
    assert deadline is not None
    assert timedelta(days=3, hours=6) <= deadline - began < timedelta(days=3, hours=6, minutes=2)


def test_an_instant_that_is_over_by_then_means_at_once() -> None:
    world = World()
    at = world.backend.clock() + timedelta(minutes=1)
    world.behave = lambda work, ctx: world.backend.clock.advance(timedelta(minutes=2))
    world.go(world.one("a", world.one("b", at=at)))
    assert world.ran == ["a", "b"]


def test_a_run_may_send_chains_and_commit_them() -> None:
    world = World()

    def run(work: Work, ctx: JobContext) -> None:
        if work.name == "a":
            ctx.commit(enqueue=[world.one("b", call(world.last, Work("c")))])

    world.behave = run
    world.go(world.one("a", world.one("z")))
    assert sorted(world.ran) == ["a", "b", "c", "z"]


def test_what_follows_is_declared() -> None:
    world = World()
    with pytest.raises(UndeclaredSend, match=r"test.last sends test.first, but does not declare it"):
        call(world.last, Work("a"), then=world.one("b"))


def test_a_chain_has_an_end() -> None:
    world = World()
    chain = world.one("0")
    for number in range(1, 14):
        chain = world.one(str(number), chain)
    world.go(chain)
    assert len(world.ran) == 14
    with pytest.raises(InvalidOption, match="more than 13 jobs in a chain"):
        world.backend.producer.enqueue(world.one("more", chain))


@pytest.mark.parametrize("options", [{"unique_for": timedelta(hours=1)}, {"track": True}])
def test_what_follows_cannot_look_at_records(options: Any) -> None:
    world = World()
    with pytest.raises(InvalidOption, match="leave unique_for= and track= out"):
        world.backend.producer.enqueue(world.one("a", world.one("b", **options)))


def test_what_follows_has_to_fit() -> None:
    world = World()
    with pytest.raises(PayloadTooLarge):
        world.backend.producer.enqueue(world.one("a", call(world.last, Work("x" * 1_050_000))))


def test_a_broken_follower_of_a_foreign_producer_does_not_bring_the_message_back_for_ever() -> None:
    world = World()
    body = json.dumps({"job": "test.first", "payload": {"name": "a", "group": "g"}, "then": {"queue": 1}})
    world.backend.queues["first"].send(body, now=world.backend.clock())
    world.drain()
    assert world.ran == ["a"]
    assert world.backend.pending() == 0
    assert any("what is to follow cannot be read" in trouble for trouble in world.backend.journal.troubles)


def test_the_wire_form_is_read_as_it_was_written() -> None:
    from loomjobs.core.follow import follow_of
    from loomjobs.core.outgoing import Origin

    world = World()
    at = datetime(2027, 1, 1, 12, 0, 0, 123_000, tzinfo=UTC)
    options: list[dict[str, Any]] = [
        {},
        {"delay": timedelta(days=3)},
        {"at": at},
        {"at": at, "expires": at + timedelta(hours=1)},
    ]
    origin = Origin(trace="00-" + "a" * 32 + "-" + "b" * 16 + "-01", tenant="t", correlation="c", hops=2)
    for more in options:
        for one in (world.one("é<aws.scheduler.x>", **more), call(world.last, Work("\x00\ufffe"), **more)):
            made = follow_of(one, id="i", origin=origin)
            again = Follow.parse(made.text())
            assert again.row(at) == made.row(at)


def test_what_follows_is_of_the_same_tenant_and_request() -> None:
    world, seen = World(), list[tuple[str | None, str | None]]()
    world.behave = lambda work, ctx: seen.append((ctx.tenant, ctx.correlation_id))
    with correlation("req-1"):
        world.go(world.one("a", world.one("b", call(world.last, Work("c"))), tenant="t1"))
    assert seen == [("t1", "req-1")] * 3


# -- found by trying to break it --------------------------------------------------------------------
def test_on_fifo_what_something_follows_is_not_swallowed_for_a_message_that_nothing_follows() -> None:
    world = World()
    with isolated():

        @job("test.lined", queue=NEXT, key="name", group="group", sends=[world.last])
        def lined(work: Work, ctx: JobContext) -> None:
            world.ran.append(work.name)

    world.backend = Backend(Catalogue((world.first, world.last, lined)))
    world.go(call(lined, Work("a")))
    world.go(call(lined, Work("a"), then=call(world.last, Work("b"))))
    assert world.ran == ["a", "b"]


def test_work_that_runs_anew_is_followed_anew() -> None:
    world = World()
    for _ in range(2):
        world.go(world.one("a", call(world.last, Work("told")), unique_for=timedelta(hours=1)))
        world.backend.clock.advance(timedelta(hours=2))
    assert world.ran == ["a", "told"] * 2


def test_characters_that_sqs_does_not_take_are_escaped_in_what_follows_too() -> None:
    world = World()
    world.go(world.one("a", call(world.last, Work("x\ufffe\uffff\x00"))))
    assert world.ran == ["a", "x\ufffe\uffff\x00"]


def test_one_that_cannot_be_sent_brings_back_its_own_message_only() -> None:
    world = World()
    sender = world.backend.producer._sender

    class Picky:
        def send(self, queue: str, messages: Any, /) -> Any:
            return [
                Sent("refused", "no") if "poison" in each.body and queue == "next" else sender.send(queue, [each])[0]
                for each in messages
            ]

    world.backend.producer._sender = Picky()
    for name in ("a", "b", "c"):
        follower = call(world.last, Work("poison" if name == "b" else f"after {name}"))
        world.backend.producer.enqueue(world.one(name, follower))
    world.backend.deliver("first")
    world.backend.deliver("next")
    assert world.ran == ["a", "b", "c", "after a", "after c"]
    assert world.backend.pending() == 1
