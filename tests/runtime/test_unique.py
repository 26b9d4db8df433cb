"""`unique_for=` and `track=`: not queued twice, and nothing lost wherever a producer dies."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count, product
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomjobs import EACH_ENQUEUE, Encrypted, JobContext, Queue, call, job
from loomjobs.core.call import Call, Enqueued
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.errors import InvalidOption, NotSent, UnknownOutcome
from loomjobs.core.outbox import row_of
from loomjobs.core.outgoing import Origin, Sendable, Sent
from loomjobs.core.registry import isolated
from loomjobs.core.write import Item, Write, Written
from loomjobs.local.backend import Backend, Killed
from loomjobs.local.store import MemoryStore
from loomjobs.runtime.ports import Answer, Silent
from loomjobs.runtime.producer import Producer
from loomjobs.runtime.sending import bound, rerun
from loomjobs.runtime.status import reading, status
from tests.runtime.world import FIFO, STANDARD, Work, World

HOUR = timedelta(hours=1)


class Steps:
    """Counts what a producer asks of the outside, and kills it before or after one of them."""

    def __init__(self, at: int | None = None, *, after: bool = False) -> None:
        self.at, self.after, self.count = at, after, 0

    def __call__(self, ask: Any) -> Any:
        here, self.count = self.count == self.at, self.count + 1
        if here and not self.after:
            raise Killed
        answer = ask()
        if here:
            raise Killed
        return answer


@dataclass
class SteppedStore:
    inner: MemoryStore
    step: Steps

    def write(self, write: Write, /) -> Written:
        written: Written = self.step(lambda: self.inner.write(write))
        return written

    def write_many(self, writes: Sequence[Write], /) -> Sequence[Answer]:
        return [self.step(lambda write=write: self.inner.write(write)) for write in writes]

    def read(self, id: str, /) -> Item | None:
        return self.inner.read(id)


@dataclass
class SteppedSender:
    inner: Any
    step: Steps

    def send(self, queue: str, messages: Sequence[Sendable], /) -> Sequence[Sent]:
        sent: Sequence[Sent] = self.step(lambda: self.inner.send(queue, messages))
        return sent


_ids = count()


def producer(backend: Backend, step: Steps, **more: Any) -> Producer:
    """One of several beside each other, on the backend's queues and records."""
    store = SteppedStore(backend.store, step)
    given: dict[str, Any] = {
        "clock": backend.clock,
        "token": lambda: f"id{next(_ids)}",
        "roll": lambda: 0.5,
        "journal": Silent(),
        "pause": lambda seconds: backend.clock.advance(timedelta(seconds=seconds)),
        "senders": 1,
        "store": lambda: store,
    }
    return Producer(SteppedSender(backend.producer._sender, step), **given | more)


def unique(world: World, name: str = "a", window: timedelta = HOUR) -> Call:
    return call(world.job, Work(name), unique_for=window)


def enqueue(world: World, **options: Any) -> Enqueued:
    return world.backend.producer.enqueue(call(world.job, Work("a"), **options))


def messages(world: World) -> int:
    return len(world.backend.queues[world.queue].messages)


# -- what counts as queued ----------------------------------------------------------------------
@pytest.mark.parametrize("queue", [STANDARD, FIFO])
def test_the_same_work_is_queued_once_while_it_waits_runs_and_for_the_window_after(queue: Queue) -> None:
    world = World(queue)
    first = enqueue(world, unique_for=HOUR)
    assert first.outcome == "accepted"
    again = enqueue(world, unique_for=HOUR)
    assert (again.outcome, again.id, again.key) == ("duplicate", first.id, first.key)
    during: list[Enqueued] = []
    world.behave = lambda work, ctx: during.append(enqueue(world, unique_for=HOUR))
    world.drain()
    assert [each.outcome for each in during] == ["duplicate"]
    world.backend.clock.advance(HOUR - timedelta(minutes=1))
    assert enqueue(world, unique_for=HOUR).outcome == "duplicate"
    world.backend.clock.advance(timedelta(minutes=2))
    world.behave = lambda work, ctx: None
    assert enqueue(world, unique_for=HOUR).outcome == "accepted"
    world.drain()
    assert world.effects == ["a", "a"]  # after the window it is work again
    assert messages(world) == 0


def test_on_fifo_sqs_does_not_drop_what_the_window_lets_through() -> None:
    world = World(FIFO)
    minute = timedelta(minutes=1)
    for _ in range(3):
        assert enqueue(world, unique_for=minute).outcome == "accepted"
        world.drain()
        world.backend.clock.advance(minute + timedelta(seconds=1))
    assert world.effects == ["a"] * 3


def test_a_dead_job_may_be_queued_again_at_once() -> None:
    world = World(attempts=1)

    def fail(work: Work, ctx: JobContext) -> None:
        raise RuntimeError

    world.behave = fail
    enqueue(world, unique_for=HOUR)
    world.drain()
    world.behave = lambda work, ctx: None
    world.backend.clock.advance(timedelta(seconds=1))
    assert enqueue(world, unique_for=HOUR).outcome == "accepted"
    world.drain()
    assert world.effects == ["a"]


def test_a_retry_and_a_delay_count_as_queued() -> None:
    world = World()
    assert enqueue(world, unique_for=HOUR, delay=timedelta(days=20)).outcome == "delayed"
    world.backend.clock.advance(timedelta(days=19))
    assert enqueue(world, unique_for=HOUR).outcome == "duplicate"
    world.drain()
    assert world.effects == ["a"]


def test_a_message_that_is_gone_blocks_nobody_for_longer_than_a_queue_keeps_it() -> None:
    world = World()
    enqueue(world, unique_for=HOUR)
    world.backend.queues[world.queue].messages.clear()  # purged
    world.backend.clock.advance(timedelta(days=7))
    assert enqueue(world, unique_for=HOUR).outcome == "duplicate"
    world.backend.clock.advance(timedelta(days=1, seconds=1))
    assert enqueue(world, unique_for=HOUR).outcome == "accepted"
    world.drain()
    assert world.effects == ["a"]


def test_what_was_sent_without_it_counts_too_once_it_runs() -> None:
    world = World()
    enqueue(world)
    world.drain()
    assert enqueue(world, unique_for=HOUR).outcome == "duplicate"
    world.backend.clock.advance(2 * HOUR)
    assert enqueue(world, unique_for=HOUR).outcome == "accepted"


def test_a_key_of_its_own_makes_enqueues_of_each_enqueue_jobs_the_same_work() -> None:
    ran: list[str] = []
    with isolated():

        @job("test.refresh", queue=STANDARD, key=EACH_ENQUEUE)
        def refresh(work: Work, ctx: JobContext) -> None:
            ran.append(work.name)

    backend = Backend(Catalogue((refresh,)))
    with pytest.raises(InvalidOption, match="Say which are: key=, beside unique_for="):
        call(refresh, Work("a"), unique_for=HOUR)
    outcomes = [
        backend.producer.enqueue(call(refresh, Work(name), key="all", unique_for=HOUR)).outcome for name in "abc"
    ]
    assert outcomes == ["accepted", "duplicate", "duplicate"]
    backend.deliver("standard")
    assert ran == ["a"]


@pytest.mark.parametrize("window", [timedelta(0), -HOUR, timedelta(days=31)])
def test_a_window_is_within_what_records_are_kept_for(window: timedelta) -> None:
    with pytest.raises(InvalidOption, match="is not between 0 and the 30 days that records are kept"):
        unique(World(), window=window)


def test_a_cancelled_job_stays_cancelled() -> None:
    from loomjobs.runtime.cancelling import cancel_of

    world = World()
    enqueue(world, unique_for=HOUR)
    done = cancel_of(world.job, "a", store=world.backend.store, clock=world.backend.clock)
    assert done.outcome == "cancelled"
    world.backend.clock.advance(2 * HOUR)
    assert enqueue(world, unique_for=HOUR).outcome == "duplicate"
    world.drain()
    assert world.effects == []


# -- many ---------------------------------------------------------------------------------------
def test_duplicates_of_one_stream_are_counted_and_not_sent() -> None:
    world = World()
    report = world.backend.producer.enqueue_many(unique(world, name) for name in "abcabcabcabcaaaaddddddddddddd")
    assert (report.accepted, report.duplicate) == (4, 25)
    assert report.summary == "4 accepted, 25 duplicates"
    assert messages(world) == 4
    world.drain()
    assert sorted(world.effects) == ["a", "b", "c", "d"]


def test_unique_and_other_calls_share_a_request() -> None:
    world = World()
    mixed = [unique(world, "a"), call(world.job, Work("b")), unique(world, "a"), call(world.job, Work("b"))]
    report = world.backend.producer.enqueue_many(mixed)
    assert (report.accepted, report.duplicate, messages(world)) == (3, 1, 3)


def test_tasks_are_told_of_their_own_duplicates() -> None:
    world = World()

    async def run() -> list[Enqueued]:
        return await asyncio.gather(*(world.backend.producer.aenqueue(unique(world)) for _ in range(25)))

    outcomes = [each.outcome for each in asyncio.run(run())]
    assert (outcomes.count("accepted"), outcomes.count("duplicate"), messages(world)) == (1, 24, 1)


class Locked(MemoryStore):
    """As DynamoDB does, one write of an item at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def write(self, write: Write, /) -> Written:
        with self.lock:
            return super().write(write)


def test_of_fifty_producers_at_the_same_time_one_sends() -> None:
    world = World()
    world.backend.store = Locked()
    gate = threading.Barrier(50)

    def go(_: int) -> str:
        one = producer(world.backend, Steps(), pause=lambda seconds: threading.Event().wait(seconds / 10))
        gate.wait()
        return one.enqueue(unique(world)).outcome

    with ThreadPoolExecutor(50) as pool:
        outcomes = list(pool.map(go, range(50)))
    assert (outcomes.count("accepted"), outcomes.count("duplicate"), messages(world)) == (1, 49, 1)


# -- crashes and outages ------------------------------------------------------------------------
STEPS = 3  # reserve, send, confirm
CRASHES = list(product(range(STEPS), [False, True]))


@pytest.mark.parametrize("queue", [STANDARD, FIFO])
@pytest.mark.parametrize("first", CRASHES)
@pytest.mark.parametrize("second", [None, *CRASHES, (STEPS, False), (STEPS, True)])
@pytest.mark.parametrize("between", [timedelta(0), timedelta(seconds=20), timedelta(hours=2)])
def test_wherever_producers_die_a_later_enqueue_loses_nothing_and_the_effect_is_one(
    first: tuple[int, bool], second: tuple[int, bool] | None, between: timedelta, queue: Queue
) -> None:
    world = World(queue)
    for at, after in [first] if second is None else [first, second]:
        with suppress(Killed):
            producer(world.backend, Steps(at, after=after)).enqueue(unique(world, window=timedelta(days=1)))
        world.backend.clock.advance(between)
    outcome = producer(world.backend, Steps()).enqueue(unique(world, window=timedelta(days=1))).outcome
    assert outcome == "duplicate" or messages(world) > 0
    world.drain()
    assert world.effects == ["a"]
    assert enqueue(world, unique_for=timedelta(days=1)).outcome == "duplicate"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(STEPS))
def test_a_worker_may_be_done_before_its_producer_confirms(at: int, after: bool) -> None:
    world = World()
    with pytest.raises(Killed):
        producer(world.backend, Steps(at, after=after)).enqueue(unique(world))
    world.drain()
    again = producer(world.backend, Steps()).enqueue(unique(world))
    assert (again.outcome == "duplicate") == bool(world.effects)
    world.drain()
    assert world.effects == ["a"]


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.integers(0, 30), st.booleans()), max_size=6))
@settings(max_examples=150, deadline=None)
def test_any_mix_of_crashes_waits_and_deliveries_ends_in_one_effect(moves: Any) -> None:
    world = World()
    for at, after, seconds, delivers in moves:
        with suppress(Killed):
            producer(world.backend, Steps(at, after=after)).enqueue(unique(world, window=timedelta(days=1)))
        world.backend.clock.advance(timedelta(seconds=seconds))
        if delivers:
            world.deliver()
    producer(world.backend, Steps()).enqueue(unique(world, window=timedelta(days=1)))
    world.drain()
    assert world.effects == ["a"]


@dataclass
class Answers:
    """A sender that gives these answers instead of sending."""

    answers: list[Sent]

    def send(self, queue: str, messages: Sequence[Sendable], /) -> Sequence[Sent]:
        return [self.answers.pop(0) for _ in messages]


def test_what_the_queue_did_not_take_may_be_queued_again_at_once() -> None:
    world = World()
    broken = producer(world.backend, Steps())
    broken._sender = Answers([Sent("refused", "no right")])
    with pytest.raises(NotSent, match="no right"):
        broken.enqueue(unique(world))
    with reading(world.backend.store):
        assert status(world.job, Work("a")).state == "unknown"
    before = world.backend.clock.now
    assert enqueue(world, unique_for=HOUR).outcome == "accepted"
    assert world.backend.clock.now == before  # it waited for nothing


def test_an_unknown_outcome_keeps_its_place_for_ten_seconds_and_is_then_sent_again() -> None:
    world = World()
    broken = producer(world.backend, Steps())
    broken._sender = Answers([Sent("unknown", "no answer")])
    with pytest.raises(UnknownOutcome):
        broken.enqueue(unique(world))
    before = world.backend.clock.now
    assert enqueue(world, unique_for=HOUR).outcome == "accepted"
    assert timedelta(seconds=9.9) < world.backend.clock.now - before < timedelta(seconds=10.5)


def test_records_that_do_not_answer_send_nothing_and_say_so() -> None:
    world = World()
    world.backend.store.faults = ["refused", "refused"]
    with pytest.raises(NotSent, match="nothing was sent: the store refused"):
        enqueue(world, unique_for=HOUR)
    assert messages(world) == 0
    world.backend.store.faults = ["reply-lost"]
    assert enqueue(world, unique_for=HOUR).outcome == "accepted"  # it finds its own reservation


def test_a_confirmation_that_is_lost_costs_a_second_message_at_most() -> None:
    world = World()
    world.backend.store.faults = ["none", "refused"]
    assert enqueue(world, unique_for=HOUR).outcome == "accepted"
    assert any("lapses" in trouble for trouble in world.backend.journal.troubles)
    assert enqueue(world, unique_for=HOUR).outcome == "accepted"
    world.drain()
    assert world.effects == ["a"]


def test_an_error_of_the_transport_leaves_no_reservation_behind() -> None:
    world = World()
    world.backend.queues, kept = {}, world.backend.queues
    broken = producer(world.backend, Steps())
    broken._sender = Answers([])
    with pytest.raises(IndexError):
        broken.enqueue(unique(world))
    world.backend.queues = kept
    before = world.backend.clock.now
    enqueue(world, unique_for=HOUR)
    assert world.backend.clock.now == before


# -- what is recorded, and where it cannot be -----------------------------------------------------
def test_a_tracked_job_is_queued_before_it_starts_and_is_sent_whatever_stands() -> None:
    world = World()
    with reading(world.backend.store):
        assert status(world.job, Work("a")).state == "unknown"
        enqueue(world, track=True)
        assert status(world.job, Work("a")).state == "queued"
        world.drain()
        assert status(world.job, Work("a")).state == "succeeded"
    assert enqueue(world, track=True).outcome == "accepted"
    world.drain()
    assert world.effects == ["a"]


def test_an_outbox_cannot_look_at_records() -> None:
    world = World()
    for options in ({"unique_for": HOUR}, {"track": True}):
        message = world.backend.producer.address(call(world.job, Work("a"), **options), origin=Origin())  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match="which an outbox does not"):
            row_of(message, now=world.backend.clock())


def test_what_has_ended_is_run_again_on_purpose() -> None:
    world = World()
    with bound(world.backend.producer), reading(world.backend.store):
        enqueue(world)
        world.drain()
        assert rerun(world.job, Work("a")).outcome == "accepted"
        assert rerun(world.job, Work("a")).outcome == "duplicate"
        world.drain()
        assert world.effects == ["a", "a"]
        assert status(world.job, Work("a")).attempts == 1


def test_every_enqueue_of_an_each_enqueue_job_runs_so_there_is_nothing_to_rerun() -> None:
    with isolated():

        @job("test.each", queue=STANDARD, key=EACH_ENQUEUE)
        def each(work: Work, ctx: JobContext) -> None: ...

    with pytest.raises(InvalidOption, match="enqueue it again"):
        rerun(each, Work("a"))


def test_a_full_queue_leaves_no_reservation_behind() -> None:
    from dataclasses import replace

    from loomjobs import Admit, QueueFull

    world = World(replace(STANDARD, admit=Admit(depth=5, refresh=timedelta(seconds=10), on_error="closed")))
    world.enqueue(*"bcdef")
    with pytest.raises(QueueFull) as caught:
        enqueue(world, unique_for=HOUR)
    assert caught.value.report.duplicate == 0
    world.drain()
    world.backend.clock.advance(timedelta(seconds=60))
    before = world.backend.clock.now
    assert enqueue(world, unique_for=HOUR).outcome == "accepted"
    assert enqueue(world, unique_for=HOUR).outcome == "duplicate"
    assert world.backend.clock.now == before


@dataclass(frozen=True)
class Payment:
    name: str
    iban: Annotated[str, Encrypted()]


def test_a_job_with_encrypted_fields_is_reserved_runs_and_may_be_followed_by_another() -> None:
    ran: list[str] = []
    with isolated():

        @job("test.book", queue=STANDARD, key="name")
        def book(payment: Payment, ctx: JobContext) -> None:
            ran.append(f"book {payment.iban}")

        @job("test.pay", queue=STANDARD, key="name", sends=[book])
        def pay(payment: Payment, ctx: JobContext) -> None:
            ran.append(f"pay {payment.iban}")

    backend = Backend(Catalogue((pay, book)))
    payment = Payment("a", "DE89370400440532013000")
    one = call(pay, payment, unique_for=HOUR, then=call(book, payment))
    assert backend.producer.enqueue(one).outcome == "accepted"
    assert backend.producer.enqueue(one).outcome == "duplicate"
    assert all("DE89" not in message.body for message in backend.queues["standard"].messages)
    while backend.step() or backend.advance_to_next():
        pass
    assert ran == ["pay DE89370400440532013000", "book DE89370400440532013000"]


# -- found by trying to break it --------------------------------------------------------------------
class Refusing:
    def send(self, queue: str, messages: Sequence[Sendable], /) -> Sequence[Sent]:
        return [Sent("refused", "no right") for _ in messages]


@pytest.mark.parametrize("ending", ["COMPLETED", "CANCELLED"])
def test_a_rerun_that_was_not_sent_leaves_the_record_as_it_was(ending: str) -> None:
    from loomjobs.runtime.cancelling import cancel_of

    world = World()
    enqueue(world, delay=timedelta(minutes=5))
    if ending == "CANCELLED":
        cancel_of(world.job, "a", store=world.backend.store, clock=world.backend.clock)
    else:
        world.drain()
    before = dict(world.backend.store.items["test.work#a"])
    sender, world.backend.producer._sender = world.backend.producer._sender, Refusing()
    with bound(world.backend.producer), pytest.raises(NotSent):
        rerun(world.job, Work("a"))
    world.backend.producer._sender = sender
    after = dict(world.backend.store.items["test.work#a"])
    assert {name: value for name, value in after.items() if name != "epoch"} == {
        name: value for name, value in before.items() if name != "epoch"
    }
    enqueue(world)
    world.drain()
    assert world.effects == ([] if ending == "CANCELLED" else ["a"])


@pytest.mark.parametrize("dies", [False, True])
def test_a_reservation_without_a_message_is_no_key_conflict(dies: bool) -> None:
    world = World()
    if dies:
        with pytest.raises(Killed):
            producer(world.backend, Steps(1)).enqueue(call(world.job, Work("a", "other"), track=True))
    else:
        broken = producer(world.backend, Steps())
        broken._sender = Refusing()
        with pytest.raises(NotSent):
            broken.enqueue(call(world.job, Work("a", "other"), track=True))
    enqueue(world)
    world.drain()
    assert world.effects == ["a"]


def test_producers_that_want_the_same_work_in_another_order_do_not_wait_for_each_other() -> None:
    world = World()
    world.backend.store = Locked()
    keys = [f"k{number}" for number in range(10)]
    calls = [unique(world, key) for key in (*keys, *reversed(keys))]
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        threading.Event().wait(seconds / 10)

    report = producer(world.backend, Steps(), senders=4, pause=pause).enqueue_many(calls)
    assert (report.accepted, report.duplicate, messages(world)) == (10, 10, 10)
    assert sum(waits) < 2


def test_on_fifo_nothing_overtakes_one_whose_record_did_not_answer() -> None:
    world = World(FIFO)
    calls = [call(world.job, Work("1st"), unique_for=HOUR), call(world.job, Work("2nd"))]
    world.backend.store.faults = ["refused", "refused"]
    with pytest.raises(NotSent) as caught:
        world.backend.producer.enqueue_many(calls)
    assert [one.payload.name for one in caught.value.report.unsent] == ["1st", "2nd"]
    assert messages(world) == 0
    assert world.backend.producer.enqueue_many(caught.value.report.unsent).accepted == 2
    world.drain()
    assert world.effects == ["1st", "2nd"]
