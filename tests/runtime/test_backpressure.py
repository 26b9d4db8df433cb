"""A producer holds back when its queue is full: one reading for all threads, its own sends counted, nothing lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from loomjobs import Admit, Queue, Workload, aenqueue_many, enqueue
from loomjobs.core import limits
from loomjobs.core.call import Call, call
from loomjobs.core.errors import ConfigurationError, NotSent, QueueFull, UnknownOutcome
from loomjobs.core.reading import Reading
from loomjobs.runtime.gauge import AGE_REFRESH, READ_AGAIN
from loomjobs.runtime.pages import PAGE
from loomjobs.runtime.ports import Silent
from loomjobs.runtime.producer import Producer
from loomjobs.runtime.sending import bound
from tests.core.catalogue_fixture import Statement, declare
from tests.runtime.test_stream import MAILED, Queues, calls

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class Meter:
    """What SQS would say: `depth` messages, all visible, after `pause` s. `error` is raised instead."""

    def __init__(self, depth: int = 0, *, pause: float = 0.0) -> None:
        self.now = NOW
        self.depth = depth
        self.age: timedelta | None = None
        self.pause = pause
        self.error: Exception | None = None
        self.reads: list[tuple[str, bool]] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def read(self, queue: str, /, *, age: bool) -> Reading:
        self.reads.append((queue, age))
        at, depth = self.now, self.depth
        self.meanwhile()
        time.sleep(self.pause)
        if self.error is not None:
            raise self.error
        return Reading(visible=depth, in_flight=0, delayed=0, at=at, age=self.age if age else None)


class Troubles(Silent):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def trouble(self, what: str, /) -> None:
        self.heard.append(what)


def producer(queues: Any, meter: Meter, *, senders: int = 8, journal: Silent | None = None) -> Producer:
    ids = iter(range(1_000_000))
    return Producer(
        queues,
        clock=lambda: meter.now,
        token=lambda: f"id{next(ids)}",
        roll=lambda: 0.5,
        journal=journal or Silent(),
        pause=lambda seconds: None,
        senders=senders,
        depths=meter,
    )


def job_on(name: str = "imports", *, fifo: bool = False, **policy: Any) -> Any:
    admit = Admit(**{"depth": 100, "on_error": "open"} | policy)
    return declare(f"{name}.work", Queue(name, workload=Workload.BULK, fifo=fifo, admit=admit))


def one(job: Any, key: str = "k", **options: Any) -> Call:
    return call(job, Statement("g", date(2026, 1, 1)), key=key, **options)


def accepted(made: Producer, job: Any, most: int = 1_000) -> int:
    """How many are let in, one after the other, until the queue is full."""
    for number in range(most):
        try:
            made.enqueue(one(job, str(number)))
        except QueueFull:
            return number
    return most


# -- the reading -------------------------------------------------------------------------------------


def test_a_burst_within_one_reading_is_held_by_its_own_sends() -> None:
    """B069: a stale reading."""
    queues, meter = Queues(), Meter(40)
    assert accepted(producer(queues, meter), job_on()) == 60
    assert len(queues.keys) == 60
    assert meter.reads == [("imports", False)]


def test_a_new_reading_takes_the_place_of_what_was_counted() -> None:
    meter, job = Meter(100), job_on()
    made = producer(Queues(), meter)
    assert accepted(made, job) == 0
    meter.depth, meter.now = 95, NOW + 9 * SECOND
    assert accepted(made, job) == 0
    meter.now = NOW + 10 * SECOND
    assert accepted(made, job) == 5
    assert len(meter.reads) == 2


def test_what_is_sent_while_it_is_read_may_be_missing_from_it_and_still_counts() -> None:
    meter, job = Meter(90), job_on()
    made = producer(Queues(), meter)
    assert accepted(made, job, 3) == 3

    def meanwhile() -> None:
        meter.meanwhile = lambda: None
        thread = threading.Thread(target=accepted, args=(made, job, 2))
        thread.start()
        thread.join()

    meter.now, meter.depth, meter.meanwhile = NOW + 10 * SECOND, 93, meanwhile
    assert accepted(made, job) == 5  # 93, and the two


def test_what_the_queue_did_not_take_is_not_counted() -> None:
    queues, meter = Queues(lambda message: "refused"), Meter(99)
    made = producer(queues, meter)
    for _ in range(5):
        with pytest.raises(NotSent, match="1 rejected") as caught:
            made.enqueue(one(job_on()))
        assert not isinstance(caught.value, QueueFull)


def test_what_may_have_arrived_is_counted() -> None:
    made = producer(Queues(lambda message: "unknown"), Meter(99))
    with pytest.raises(UnknownOutcome):
        made.enqueue(one(job_on()))
    with pytest.raises(QueueFull):
        made.enqueue(one(job_on()))


def test_what_the_sender_raises_is_not_left_under_way() -> None:
    class Broken:
        def send(self, queue: str, messages: Sequence[Any], /) -> Any:
            raise ConfigurationError("no such queue")

    made = producer(Broken(), Meter(99))
    for _ in range(3):
        with pytest.raises(ConfigurationError):
            made.enqueue(one(job_on()))


def test_of_fifty_threads_one_reads_and_all_decide_by_it() -> None:
    meter, job = Meter(80, pause=0.05), job_on()
    made = producer(Queues(), meter)
    start, full = threading.Barrier(50), []

    def send(number: int) -> None:
        start.wait()
        try:
            made.enqueue(one(job, str(number)))
        except QueueFull as error:
            full.append(error)

    in_threads(send, 50)
    assert len(meter.reads) == 1
    assert len(full) == 30


def test_while_one_reads_again_the_others_go_on_with_what_is_known() -> None:
    meter, job = Meter(0), job_on(depth=1_000_000)
    made = producer(Queues(), meter)
    made.enqueue(one(job))
    reading, go_on = threading.Event(), threading.Event()

    def meanwhile() -> None:
        reading.set()
        assert go_on.wait(10)

    meter.now, meter.meanwhile = NOW + 11 * SECOND, meanwhile
    reader = threading.Thread(target=made.enqueue, args=(one(job),))
    reader.start()
    assert reading.wait(10)
    assert accepted(made, job, 20) == 20  # on this thread, which does not wait
    go_on.set()
    reader.join()
    assert len(meter.reads) == 2


def test_a_reading_that_is_about_to_be_replaced_turns_nobody_away() -> None:
    meter, job = Meter(100, pause=0.05), job_on()
    made = producer(Queues(), meter)
    assert accepted(made, job) == 0
    meter.depth, meter.now = 0, NOW + 11 * SECOND
    let_in: list[int] = []
    in_threads(lambda number: let_in.append(accepted(made, job, 1)), 30)
    assert sum(let_in) == 30
    assert len(meter.reads) == 2


def test_queues_and_producers_share_nothing() -> None:
    meter = Meter(99)
    made = producer(Queues(), meter)
    assert (accepted(made, job_on("imports")), accepted(made, job_on("exports"))) == (1, 1)
    assert accepted(producer(Queues(), meter), job_on("imports")) == 1
    assert [queue for queue, _ in meter.reads] == ["imports", "exports", "imports"]


def test_a_queue_without_a_policy_is_not_read() -> None:
    meter = Meter(10**6)
    assert producer(Queues(), meter).enqueue_many(calls(MAILED, 30)).accepted == 30
    assert meter.reads == []


def test_the_age_is_asked_once_a_minute_and_serves_between() -> None:
    meter, job = Meter(5), job_on(depth=None, age=timedelta(minutes=30))
    made = producer(Queues(), meter)
    meter.age = timedelta(minutes=31)
    for seconds in range(0, 130, 10):
        meter.now = NOW + seconds * SECOND
        if seconds == 70:
            meter.age = timedelta(minutes=1)
        assert accepted(made, job, 1) == (0 if seconds < 120 else 1)
    assert [number for number, (_, age) in enumerate(meter.reads) if age] == [0, 6, 12]
    assert timedelta(minutes=1) == AGE_REFRESH


# -- errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("on_error", "let_in"), [("open", 7), ("closed", 0)])
def test_where_it_cannot_be_read_the_policy_says_what_follows_and_the_journal_hears_of_it(
    on_error: str, let_in: int
) -> None:
    """B069: the attribute call throttled."""
    meter, journal = Meter(), Troubles()
    meter.error = OSError("Throttling")
    made = producer(Queues(), meter, journal=journal)
    assert accepted(made, job_on(on_error=on_error), 7) == let_in
    assert len(meter.reads) == 1
    assert len(journal.heard) == 1
    assert journal.heard[0].startswith("how full queue imports is could not be read; the last reading serves for")
    assert f"on_error='{on_error}': OSError: Throttling" in journal.heard[0]


def test_a_closed_queue_names_what_went_wrong_and_when_to_come_back() -> None:
    meter = Meter()
    meter.error = OSError("AccessDenied")
    with pytest.raises(
        QueueFull, match=r"could not be read \(OSError: AccessDenied\), and on_error='closed'"
    ) as caught:
        producer(Queues(), meter).enqueue(one(job_on(on_error="closed")))
    assert (caught.value.reading, caught.value.retry_after) == (None, 15 * SECOND)


def test_the_last_reading_serves_for_three_times_its_refresh_and_then_the_policy_decides() -> None:
    meter, job = Meter(98), job_on(on_error="closed")
    made = producer(Queues(), meter)
    assert accepted(made, job, 1) == 1
    meter.error = OSError("down")
    meter.now = NOW + 29 * SECOND
    assert accepted(made, job, 2) == 1  # 98, and two of its own
    meter.now = NOW + 30 * SECOND
    assert accepted(made, job, 2) == 0
    meter.error, meter.depth, meter.now = None, 0, NOW + 31 * SECOND
    assert accepted(made, job, 2) == 2


def test_a_failed_reading_is_not_repeated_for_every_call_but_soon() -> None:
    meter, job = Meter(), job_on()
    meter.error = OSError("down")
    made = producer(Queues(), meter)
    accepted(made, job, 50)
    assert len(meter.reads) == 1
    meter.now += READ_AGAIN
    accepted(made, job, 50)
    assert len(meter.reads) == 2


def test_a_queue_that_cannot_be_found_is_no_matter_of_policy() -> None:
    meter = Meter()
    meter.error = ConfigurationError("which environment?")
    made = producer(Queues(), meter)
    for _ in range(2):
        with pytest.raises(ConfigurationError):
            made.enqueue(one(job_on()))


# -- what the caller gets ----------------------------------------------------------------------------


def test_a_delaying_queue_sends_later_and_says_so() -> None:
    queues, job = Queues(), job_on(full="delay", delay=timedelta(minutes=5))
    made = producer(queues, Meter(100))
    assert made.enqueue(one(job)).outcome == "delayed"
    assert made.enqueue(one(job, delay=timedelta(minutes=9))).outcome == "delayed"
    assert made.enqueue_many([one(job)]).accepted == 1
    assert asyncio.run(made.aenqueue(one(job))).outcome == "delayed"
    assert [message.delay for batch in queues.batches for message in batch] == [300, 540, 300, 300]
    assert producer(queues, Meter(0)).enqueue(one(job)).outcome == "accepted"


@pytest.mark.parametrize("senders", [1, 8])
def test_a_stream_stops_reading_where_its_queue_is_full_and_accounts_for_every_call(senders: int) -> None:
    queues, meter, read = Queues(longest=0.002), Meter(0), []

    def stream() -> Iterator[Call]:
        for each in calls(job_on(depth=300), 100_000):
            read.append(each.key)
            yield each

    with pytest.raises(QueueFull) as caught:
        producer(queues, meter, senders=senders).enqueue_many(stream())
    report = caught.value.report
    assert report.accepted == len(queues.keys) == 300
    unsent = [each.key for each in report.unsent]
    assert sorted([*queues.keys, *unsent], key=int) == read
    assert len(unsent) <= (2 * senders + 1) * limits.SQS_BATCH_ENTRIES + 1
    assert caught.value.queue == "imports"
    assert caught.value.retry_after == 15 * SECOND


def test_what_was_not_sent_can_be_sent_when_there_is_room() -> None:
    queues, meter = Queues(), Meter(95)
    made, stream = producer(queues, meter), calls(job_on(), 30)
    with pytest.raises(QueueFull) as caught:
        made.enqueue_many(stream)
    meter.depth, meter.now = 0, NOW + caught.value.retry_after
    made.enqueue_many([*caught.value.report.unsent, *stream])
    assert sorted(map(int, queues.keys)) == list(range(30))


def test_a_batch_goes_whole_so_a_queue_is_overfilled_by_nine_at_most() -> None:
    queues = Queues()
    assert producer(queues, Meter(99)).enqueue_many(calls(job_on(), 10)).accepted == 10


def test_order_within_a_fifo_group_holds_across_a_refusal() -> None:
    queues, meter = Queues(longest=0.002), Meter(0)
    with pytest.raises(QueueFull) as caught:
        producer(queues, meter).enqueue_many(calls(job_on(fifo=True, depth=200), 1_000, groups=7))
    unsent = {int(each.key or "") for each in caught.value.report.unsent}
    for group in range(7):
        sent = [int(key) for key in queues.keys if int(key) % 7 == group]
        assert sent == sorted(sent)
        assert all(number > max(sent) for number in unsent if number % 7 == group)


def test_each_task_of_an_event_loop_gets_its_own_answer() -> None:
    queues = Queues()

    async def all_of() -> list[Any]:
        made = producer(queues, Meter(80))
        return await asyncio.gather(*(made.aenqueue(each) for each in calls(job_on(), 60)), return_exceptions=True)

    answers = asyncio.run(all_of())
    full = [each for each in answers if isinstance(each, QueueFull)]
    assert (len(queues.keys), len(full)) == (20, 40)
    assert all(len(each.report.unsent) == 1 for each in full)


def test_the_event_loop_is_free_while_a_queue_is_read() -> None:
    meter = Meter(0, pause=0.1)

    async def main() -> int:
        made, beats = producer(Queues(), meter), 0
        task = asyncio.create_task(made.aenqueue(one(job_on())))
        while not task.done():
            await asyncio.sleep(0.005)
            beats += 1
        return beats

    assert asyncio.run(main()) >= 5


def test_pages_of_an_asyncio_program_report_all_of_them() -> None:
    queues = Queues()

    async def main() -> None:
        with bound(producer(queues, Meter(0))):
            await aenqueue_many(calls(job_on(depth=PAGE + 50), 5 * PAGE))

    with pytest.raises(QueueFull) as caught:
        asyncio.run(main())
    report = caught.value.report
    assert report.accepted == len(queues.keys) == PAGE + 50
    assert report.accepted + len(report.unsent) == 2 * PAGE
    assert caught.value.retry_after == 15 * SECOND


def test_an_unknown_outcome_weighs_more_than_a_full_queue() -> None:
    queues = Queues(lambda message: "unknown" if message.key == "3" else "accepted")
    with pytest.raises(UnknownOutcome, match="1 with unknown outcome"):
        producer(queues, Meter(99), senders=1).enqueue_many(calls(job_on(), 40))


def test_nothing_is_sent_to_a_full_queue_and_other_queues_go_on() -> None:
    queues, job = Queues(), job_on()
    with bound(producer(queues, Meter(100))):
        with pytest.raises(QueueFull):
            enqueue(job, Statement("g", date(2026, 1, 1)))
        enqueue(MAILED, Statement("g", date(2026, 1, 1)))
    assert [batch[0].call.job.queue.name for batch in queues.batches] == ["mail"]


def in_threads(target: Callable[[int], object], count: int) -> None:
    threads = [threading.Thread(target=target, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_what_is_due_in_days_is_not_judged_by_todays_depth() -> None:
    limited, days = job_on(), timedelta(days=2)
    mixed = [one(limited, "a", delay=days), one(limited, "b"), one(limited, "c", delay=days)]
    with pytest.raises(QueueFull) as caught:
        producer(Queues(), Meter(100), senders=1).enqueue_many(mixed)
    assert caught.value.report.accepted == 2
    assert caught.value.report.unsent == (mixed[1],)
