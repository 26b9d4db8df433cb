"""Batches on the in-memory backend: counted once whatever happens, and told once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomjobs import (
    EACH_ENQUEUE,
    Batch,
    JobContext,
    Permanent,
    Queue,
    Retry,
    Workload,
    batch_status,
    call,
    enqueue,
    job,
)
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.errors import InvalidOption, NotSent, StoreUnavailable, UndeclaredSend
from loomjobs.core.fan import Member
from loomjobs.core.outgoing import Sent
from loomjobs.core.registry import isolated
from loomjobs.local.backend import Backend, Killed
from loomjobs.runtime.sending import bound
from loomjobs.runtime.status import reading

SOURCE = Queue("source", workload=Workload.BULK, job_timeout=timedelta(minutes=2), batch_size=1)
CHILDREN = Queue("children", workload=Workload.BULK, job_timeout=timedelta(seconds=10))
ORDERED = Queue("ordered", workload=Workload.BULK, job_timeout=timedelta(seconds=10), fifo=True)
END = Queue("end", workload=Workload.BULK, job_timeout=timedelta(seconds=10))


@dataclass(frozen=True)
class Child:
    number: int
    group: str = "g"


@dataclass(frozen=True)
class Whole:
    name: str


class World:
    """A batch of `many` children, which do as `behave` says, and what was told of it."""

    def __init__(self, *, queue: Queue = CHILDREN, key: Any = "number", attempts: int = 2) -> None:
        self.ran: Counter[int] = Counter()
        self.told: list[str] = []
        self.behave: Callable[[Child, JobContext], None] = lambda child, ctx: None
        self.start: Callable[[JobContext], None] = lambda ctx: None

        def end(whole: Whole, ctx: JobContext) -> None:
            self.told.append(whole.name)

        def child(one: Child, ctx: JobContext) -> None:
            self.behave(one, ctx)
            self.ran[one.number] += 1

        def source(whole: Whole, ctx: JobContext) -> None:
            self.start(ctx)

        group = {"group": "group"} if queue.fifo else {}
        with isolated():
            self.end = job("test.end", queue=END, key="name")(end)
            self.child = job(
                "test.child", queue=queue, key=key, sends=[self.end], retry=Retry(attempts=attempts), **group
            )(child)
            self.source = job("test.source", queue=SOURCE, key="name", sends=[self.child, self.end])(source)
        self.backend = Backend(Catalogue((self.end, self.child, self.source)))

    def batch(self, name: str = "b") -> Batch:
        done, failed = call(self.end, Whole(f"{name} done")), call(self.end, Whole(f"{name} failed"))
        return Batch(name, on_complete=done, on_failure=failed)

    def fan_out(self, many: int, name: str = "b", *, group: Callable[[int], str] = str) -> None:
        with self.batch(name) as batch:
            batch.add(self.child, (Child(number, group(number)) for number in range(many)), cap=10_000)

    @contextmanager
    def here(self) -> Iterator[None]:
        with bound(self.backend.producer), reading(self.backend.store):
            yield

    def drain(self) -> None:
        for _ in range(20_000):
            if not self.backend.step() and not self.backend.advance_to_next():
                return
        raise AssertionError(f"{self.backend.pending()} messages are left")

    def double(self, queue: str, share: float = 1.0, *, seed: int = 0) -> None:
        """SQS delivers some of what waits a second time."""
        messages = self.backend.queues[queue].messages
        rolls = random.Random(seed)
        messages += [replace(each, id=f"{each.id}-again") for each in list(messages) if rolls.random() < share]


@pytest.mark.parametrize("many", [0, 1, 99, 100, 101, 500, 1_234])
def test_a_batch_completes_once(many: int) -> None:
    world = World()
    with world.here():
        world.fan_out(many)
        world.drain()
        found = batch_status("b")
    assert world.ran == Counter(range(many))
    assert world.told == ["b done"]
    assert (found.sent, found.total, found.done, found.pending, found.failures) == (many, many, many, 0, ())
    assert found.completed


@pytest.mark.parametrize("key", ["number", EACH_ENQUEUE])
@pytest.mark.parametrize("queue", [CHILDREN, ORDERED])
def test_doubled_messages_count_once(key: Any, queue: Queue) -> None:
    world = World(key=key, queue=queue)
    with world.here():
        world.fan_out(250)
        world.double(queue.name)
        world.drain()
        world.double("end")
        world.drain()
        assert batch_status("b").done == 250
    assert world.ran == Counter(range(250))
    assert world.told == ["b done"]


def test_children_may_end_before_the_fan_out_does() -> None:
    world = World()
    with world.here():
        batch = world.batch()
        for first in (0, 130, 260):
            batch.add(world.child, (Child(number) for number in range(first, first + 130)), cap=1_000)
            world.drain()
            assert world.told == []
            assert batch_status("b").done == first + 130
        batch.close()
        world.drain()
    assert world.told == ["b done"]


def test_failures_are_told_once_with_who_failed_and_a_redrive_completes_it_later() -> None:
    world = World()
    broken = {7, 150}

    def behave(child: Child, ctx: JobContext) -> None:
        if child.number in broken:
            raise Permanent("no")

    world.behave = behave
    with world.here():
        world.fan_out(200)
        world.drain()
        found = batch_status("b")
        assert world.told == ["b failed"]
        assert (found.done, found.pending, found.completed) == (198, 0, False)
        assert found.failures == ("test.child 7 permanent", "test.child 150 permanent")
        broken.clear()
        dead, source = world.backend.dead["children"], world.backend.queues["children"]
        world.backend.clock.advance(timedelta(minutes=1))
        for message in dead.messages:
            source.send(message.body, now=world.backend.clock())
        world.drain()
        assert batch_status("b").failures == ()
    assert world.told == ["b failed", "b done"]


def test_retries_and_exhaustion_are_counted_at_their_end() -> None:
    world = World(attempts=3)
    tries: Counter[int] = Counter()

    def behave(child: Child, ctx: JobContext) -> None:
        tries[child.number] += 1
        if child.number % 10 == 0 or tries[child.number] < 2:
            raise RuntimeError("again")

    world.behave = behave
    with world.here():
        world.fan_out(120)
        world.drain()
        found = batch_status("b")
    assert (found.done, len(found.failures)) == (108, 12)
    assert {why.rsplit(" ", 1)[1] for why in found.failures} == {"exhausted"}
    assert world.told == ["b failed"]


def test_a_child_that_cannot_be_read_has_failed() -> None:
    world = World()
    with world.here():
        world.fan_out(3)
        first = world.backend.queues["children"].messages[0]
        first.body = first.body.replace('"number":0', '"number":"zero"')
        world.drain()
        assert batch_status("b").failures == ("test.child bad-payload",)
    assert world.told == ["b failed"]


# -- the fan-out breaks off, and is repeated ------------------------------------------------------
def test_a_fan_out_that_runs_out_of_time_goes_on_where_it_was() -> None:
    world, runs = World(), list[int]()

    def start(ctx: JobContext) -> None:
        runs.append(0)

        def slow() -> Iterator[Child]:
            for number in range(2_600):
                if number >= 500 * len(runs):
                    world.backend.clock.advance(timedelta(seconds=0.12))  # 60 s a page
                yield Child(number)

        with world.batch() as batch:
            batch.add(world.child, slow(), cap=10_000)

    world.start = start
    with world.here():
        enqueue(world.source, Whole("s"))
        world.drain()
        assert batch_status("b").total == 2_600
    assert len(runs) > 2
    assert world.ran == Counter(range(2_600))
    assert world.told == ["b done"]


@pytest.mark.parametrize("at", range(12))
@pytest.mark.parametrize("after", [False, True])
def test_wherever_the_fan_out_is_killed_its_next_run_completes_it(at: int, after: bool) -> None:
    from tests.runtime.test_unique import Steps, producer

    world = World(key=EACH_ENQUEUE)
    with world.here():
        steps = Steps(at, after=after)
        killed = producer(world.backend, steps)
        with suppress(Killed), bound(killed), reading(killed._unique.store()):  # type: ignore[union-attr]
            world.fan_out(620)
        if at % 2:
            world.drain()
        world.fan_out(620)
        world.drain()
        assert batch_status("b").done == 620
    assert world.ran == Counter(range(620))
    assert world.told == ["b done"]


def test_a_closed_batch_that_is_repeated_does_nothing() -> None:
    world = World()
    with world.here():
        world.fan_out(10)
        world.drain()
        world.fan_out(10)
        world.drain()
        with pytest.raises(InvalidOption, match="is closed with 10 children"):
            world.fan_out(11)
    assert world.ran == Counter(range(10))
    assert world.told == ["b done"]


def test_more_than_the_cap_is_an_error_and_the_batch_stays_open() -> None:
    world = World()
    with world.here():
        wrong = pytest.raises(InvalidOption, match=r"more than 700 children .* raise cap=, or mend the query")
        with wrong, world.batch() as b:
            b.add(world.child, (Child(number) for number in range(10**9)), cap=700)
        world.drain()
        found = batch_status("b")
    assert (found.sent, found.total, world.told) == (500, None, [])


def test_a_run_that_offers_less_than_was_sent_is_an_error() -> None:
    world = World()
    with world.here():
        world.batch().add(world.child, (Child(number) for number in range(600)), cap=1_000)
        with pytest.raises(InvalidOption, match="600 children were sent before, and this run has offered 3"):
            world.fan_out(3)


def test_what_raises_leaves_it_open() -> None:
    world = World()

    def broken() -> Iterator[Child]:
        yield from (Child(number) for number in range(750))
        raise RuntimeError("the query broke")

    with world.here():
        with pytest.raises(RuntimeError, match="the query broke"), world.batch() as batch:
            batch.add(world.child, broken(), cap=1_000)
        assert batch_status("b").total is None
        world.fan_out(750)
        world.drain()
    assert world.ran == Counter(range(750))
    assert world.told == ["b done"]


# -- declarations ---------------------------------------------------------------------------------
def test_the_jobs_of_its_end_stand_in_the_childs_sends() -> None:
    world = World()
    with world.here(), pytest.raises(UndeclaredSend, match=r"test.end sends test.child"):
        Batch("b", on_complete=call(world.child, Child(1))).add(world.end, [Whole("x")], cap=1)


@pytest.mark.parametrize("key", ["", "x" * 513, "é" * 300])
def test_a_key_is_a_text_that_fits(key: str) -> None:
    with pytest.raises(InvalidOption, match="give a text of 1 to 512 bytes"):
        Batch(key)


def test_what_follows_cannot_look_at_records() -> None:
    world = World()
    unique = call(world.end, Whole("x"), unique_for=timedelta(hours=1))
    with world.here(), pytest.raises(InvalidOption, match="leave unique_for= and track= out"):
        Batch("b", on_complete=unique).close()


def test_there_has_to_be_one() -> None:
    world = World()
    with world.here(), pytest.raises(InvalidOption, match="there is no batch 'b'"):
        batch_status("b")


# -- crashes and outages of workers ----------------------------------------------------------------
@given(st.lists(st.integers(0, 40), max_size=8), st.booleans())
@settings(max_examples=60)
def test_workers_that_die_between_an_end_and_its_mark_lose_and_double_nothing(kills: list[int], doubles: bool) -> None:
    world = World()
    write, count = world.backend.store.write, [0]

    def dying(one: Any) -> Any:
        if one.id.startswith("batch"):
            count[0] += 1
            if count[0] in kills:
                if count[0] % 2:
                    write(one)
                raise Killed
        return write(one)

    with world.here():
        world.fan_out(130)
        if doubles:
            world.double("children", 0.3)
        world.backend.store.write = dying  # type: ignore[method-assign]
        world.drain()
        assert batch_status("b").done == 130
    assert world.ran == Counter(range(130))
    assert world.told == ["b done"]


def test_a_store_that_does_not_take_the_mark_brings_the_message_back() -> None:
    world = World()
    write, refused = world.backend.store.write, [0]

    def refusing(one: Any) -> Any:
        if one.id.startswith("batch") and refused[0] < 5:
            refused[0] += 1
            raise StoreUnavailable("away")
        return write(one)

    with world.here():
        world.fan_out(30)
        world.backend.store.write = refusing  # type: ignore[method-assign]
        world.drain()
    assert world.ran == Counter(range(30))
    assert world.told == ["b done"]
    assert any("its message comes back" in trouble for trouble in world.backend.journal.troubles)


def test_an_end_that_its_queue_does_not_take_is_sent_with_the_next_delivery() -> None:
    world = World()
    sender = world.backend.producer._sender
    refusals = [Sent("refused", "no right")] * 3

    class Refusing:
        def send(self, queue: str, messages: Any, /) -> Any:
            if queue == "end" and refusals:
                return [refusals.pop() for _ in messages]
            return sender.send(queue, messages)

    with world.here():
        world.fan_out(20)
        world.backend.producer._sender = Refusing()
        world.drain()
    assert world.told == ["b done"]
    assert not refusals


# -- found by trying to break it --------------------------------------------------------------------
def test_on_fifo_sqs_swallows_no_child_for_a_message_that_is_none() -> None:
    world = World(queue=ORDERED)
    with world.here():
        world.backend.producer.enqueue(call(world.child, Child(1)))
        with world.batch() as batch:
            batch.add(world.child, [Child(0), Child(1), Child(1)], cap=10)
        world.drain()
    assert world.told == ["b done"]
    assert world.ran == Counter([0, 1])


def test_the_job_that_closes_may_have_to_send_the_end() -> None:
    world = World()
    world.start = lambda ctx: world.fan_out(0)
    with isolated():

        @job("test.other", queue=SOURCE, key="name", sends=[world.child])
        def other(whole: Whole, ctx: JobContext) -> None:
            with pytest.raises(UndeclaredSend, match=r"test.other sends test.end"):
                world.fan_out(0)

    backend = world.backend = Backend(Catalogue((world.end, world.child, world.source, other)))
    with world.here():
        for each in (world.source, other):
            backend.producer.enqueue(call(each, Whole("s")))
        world.drain()
    assert world.told == ["b done"]


def test_a_close_that_breaks_off_before_the_number_is_known_completes_nothing_too_early() -> None:
    world = World()
    write = world.backend.store.write

    def refusing(one: Any) -> Any:
        if "total" in one.sets:
            raise StoreUnavailable("away")
        return write(one)

    with world.here():
        world.backend.store.write = refusing  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable):
            world.fan_out(150)
        world.backend.store.write = write  # type: ignore[method-assign]
        world.fan_out(220)
        for _ in range(17):
            world.backend.deliver("children")
        assert world.told == []
        world.drain()
    assert world.ran == Counter(range(220))
    assert world.told == ["b done"]


def test_pages_beyond_the_end_do_not_stand_for_those_within_it() -> None:
    world = World()
    with world.here():
        world.batch().add(world.child, [], cap=1)
        for number in range(200, 400):  # of a run that died before its cursor moved, and offered more
            member = Member.of("b", number)
            world.backend.producer.enqueue(replace(call(world.child, Child(number)), batch=str(member), id=member.id))
        world.drain()
        world.fan_out(200)
        assert world.told == []
        world.drain()
    assert world.told == ["b done"]


def test_a_batch_that_broke_off_takes_nothing_more_and_a_new_one_goes_on() -> None:
    world = World(key=EACH_ENQUEUE)
    sender = world.backend.producer._sender
    with world.here():
        batch = world.batch()
        world.backend.producer._sender = _Refusing()
        with pytest.raises(NotSent):
            batch.add(world.child, [Child(number) for number in range(20)], cap=100)
        world.backend.producer._sender = sender
        for again in (batch.close, lambda: batch.add(world.child, [Child(0)], cap=1)):
            with pytest.raises(InvalidOption, match="go on with a new one of the same key"):
                again()
        world.fan_out(30)
        world.drain()
    assert world.ran == Counter(range(30))
    assert world.told == ["b done"]


class _Refusing:
    def send(self, queue: str, messages: Any, /) -> Any:
        return [Sent("refused", "no right") for _ in messages]


def test_keys_that_look_like_parts_of_others_are_batches_of_their_own() -> None:
    world = World()
    with world.here():
        for name in ("a:1", "a", "a:calls", "1:a"):
            with world.batch(name) as batch:
                batch.add(world.child, (Child(number) for number in range(150)), cap=150)
        world.drain()
    assert sorted(world.told) == ["1:a done", "a done", "a:1 done", "a:calls done"]


def test_a_run_however_short_comes_a_page_further() -> None:
    world = World()
    with isolated():

        @job("test.short", queue=SOURCE, key="name", timeout=timedelta(seconds=3), sends=[world.child, world.end])
        def short(whole: Whole, ctx: JobContext) -> None:
            world.fan_out(1_200)

    world.backend = Backend(Catalogue((world.end, world.child, short)))
    with world.here():
        enqueue(short, Whole("s"))
        world.drain()
    assert world.told == ["b done"]
    assert world.ran == Counter(range(1_200))


def test_offering_nothing_where_something_was_sent_is_an_error() -> None:
    world = World()
    with world.here():
        world.batch().add(world.child, (Child(number) for number in range(500)), cap=500)
        with pytest.raises(InvalidOption, match="this run has offered 0"):
            world.fan_out(0)


def test_failures_with_long_keys_fit_their_page() -> None:
    world = World()
    with world.here():
        world.fan_out(1)
        (message,) = world.backend.queues["children"].messages
        message.body = message.body.replace('"key":"0"', f'"key":"{"k" * 5_000}"')
        world.behave = _refuse
        world.drain()
        (why,) = batch_status("b").failures
    assert len(why) == 300


def _refuse(child: Child, ctx: JobContext) -> None:
    raise Permanent("no")


def test_a_place_that_is_none_harms_no_neighbour() -> None:
    world = World()
    body = '{"job": "test.child", "payload": {"number": 1, "group": "g"}, "batch": "b#0.' + "9" * 5_000 + '"}'
    world.backend.queues["children"].send(body, now=world.backend.clock())
    world.backend.producer.enqueue(call(world.child, Child(2)))
    world.drain()
    assert world.ran == Counter([1, 2])
