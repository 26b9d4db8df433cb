"""Many messages by several threads: in order within FIFO groups, with bounded memory, and with nothing unaccounted."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from random import Random
from typing import Any

import pytest

from loomjobs.core import limits
from loomjobs.core.call import Call, call
from loomjobs.core.errors import ConfigurationError, NotSent, UnknownOutcome
from loomjobs.core.outgoing import Outgoing, Sent
from loomjobs.runtime.ports import Silent
from loomjobs.runtime.producer import Producer
from tests.core.catalogue_fixture import LEDGER, MAIL, Statement, declare

WRITE = declare("billing.write")
MAILED = declare("mail.send", MAIL)
POST = declare("ledger.post", LEDGER)


class Queues:
    """Takes what it is given, after a random while. `answer` decides per message."""

    def __init__(self, answer: Callable[[Outgoing], str] = lambda message: "accepted", *, longest: float = 0.0) -> None:
        self.batches: list[list[Outgoing]] = []
        self.most_at_once = 0
        self._answer = answer
        self._longest = longest
        self._at_once = 0
        self._lock = threading.Lock()
        self._random = Random(1)

    def send(self, queue: str, messages: Sequence[Any], /) -> Sequence[Sent]:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            pause = self._random.random() * self._longest
        time.sleep(pause)
        with self._lock:
            self._at_once -= 1
            self.batches.append(list(messages))
        return [Sent(self._answer(each), "because") for each in messages]  # type: ignore[arg-type]

    @property
    def keys(self) -> list[str]:
        return [message.key for batch in self.batches for message in batch]


def producer(queues: Any, *, senders: int = 8) -> Producer:
    ids = iter(range(1_000_000))
    return Producer(
        queues,
        clock=lambda: datetime(2026, 1, 1, tzinfo=UTC),
        token=lambda: f"id{next(ids)}",
        roll=lambda: 0.5,
        journal=Silent(),
        pause=lambda seconds: None,
        senders=senders,
    )


def calls(job: Any, count: int, *, groups: int = 1) -> Iterator[Call]:
    for number in range(count):
        yield call(job, Statement(f"g{number % groups}", date(2026, 1, 1)), key=f"{number}")


def test_all_are_sent_ten_to_a_request_and_by_no_more_threads_than_asked() -> None:
    queues = Queues(longest=0.002)
    assert producer(queues).enqueue_many(calls(WRITE, 1_234)).accepted == 1_234
    assert sorted(map(int, queues.keys)) == list(range(1_234))
    assert len(queues.batches) == 124
    assert 2 <= queues.most_at_once <= 8


def test_what_fits_one_request_is_sent_by_the_caller() -> None:
    threads: list[threading.Thread] = []

    class Here(Queues):
        def send(self, queue: str, messages: Sequence[Any], /) -> Sequence[Sent]:
            threads.append(threading.current_thread())
            return super().send(queue, messages)

    assert producer(Here()).enqueue_many(calls(WRITE, 10)).accepted == 10
    assert threads == [threading.current_thread()]


def test_a_fifo_group_keeps_its_order_whatever_each_request_takes() -> None:
    queues = Queues(longest=0.004)
    producer(queues).enqueue_many(calls(POST, 2_000, groups=23))
    seen: dict[str, list[int]] = defaultdict(list)
    for batch in queues.batches:
        for message in batch:
            seen[message.group or ""].append(int(message.key))
    assert len(seen) == 23
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert queues.most_at_once >= 2


def test_memory_holds_a_batch_a_sender_and_a_batch_a_queue() -> None:
    read, most = 0, 0
    queues = Queues(longest=0.001)

    def stream() -> Iterator[Call]:
        nonlocal read, most
        for number, one in enumerate(calls(WRITE, 3_000)):
            read = number + 1
            most = max(most, read - len(queues.keys))
            yield one

    producer(queues, senders=4).enqueue_many(stream())
    assert most <= (4 + 1) * limits.SQS_BATCH_ENTRIES + 1


def test_large_messages_are_packed_by_their_bytes() -> None:
    queues = Queues()
    big = [call(WRITE, Statement("c" * 400_000, date(2026, 1, 1)), key=f"{n}") for n in range(7)]
    assert producer(queues).enqueue_many(big).accepted == 7
    assert sorted(len(batch) for batch in queues.batches) == [1, 2, 2, 2]
    assert all(sum(each.size for each in batch) <= limits.SQS_MESSAGE_BYTES for batch in queues.batches)


@pytest.mark.parametrize("senders", [1, 8])
def test_after_a_failure_every_call_that_was_read_is_accounted_for(senders: int) -> None:
    queues = Queues(lambda message: "refused" if message.key == "25" else "accepted", longest=0.002)
    read: list[Call] = []

    def stream() -> Iterator[Call]:
        for one in calls(WRITE, 5_000):
            read.append(one)
            yield one

    with pytest.raises(NotSent) as caught:
        producer(queues, senders=senders).enqueue_many(stream())
    report = caught.value.report
    assert [(each.call.key, each.reason) for each in report.rejected] == [("25", "because")]
    assert report.accepted + len(report.rejected) + len(report.unsent) == len(read) < 5_000
    assert {each.key for each in report.unsent}.isdisjoint(queues.keys)


def test_an_unknown_outcome_weighs_more_than_a_refusal() -> None:
    queues = Queues(lambda message: {"3": "unknown", "4": "refused"}.get(message.key, "accepted"))
    with pytest.raises(UnknownOutcome, match="8 accepted, 1 rejected, 1 with unknown outcome: because") as caught:
        producer(queues).enqueue_many(calls(WRITE, 10))
    assert [each.key for each in caught.value.report.unknown] == ["3"]


def test_what_the_callers_iterator_raises_comes_through_after_the_calls_before_it_are_sent() -> None:
    queues = Queues()

    def stream() -> Iterator[Call]:
        yield from calls(WRITE, 47)
        raise OSError("the file ends here")

    with pytest.raises(OSError, match="the file ends here") as caught:
        producer(queues).enqueue_many(stream())
    assert len(queues.keys) == 47
    assert caught.value.__notes__ == ["Of the calls before this, 47 accepted."]


def test_a_queue_that_cannot_be_found_stops_the_stream_and_says_how_far_it_came() -> None:
    class Half(Queues):
        def send(self, queue: str, messages: Sequence[Any], /) -> Sequence[Sent]:
            if queue == MAILED.queue.name:
                raise ConfigurationError("no such queue here")
            return super().send(queue, messages)

    queues = Half()
    with pytest.raises(ConfigurationError, match="no such queue") as caught:
        producer(queues).enqueue_many([*calls(WRITE, 20), *calls(MAILED, 3)])
    assert len(queues.keys) == 20
    assert caught.value.__notes__ == ["Of the calls before this, 20 accepted, 3 not sent."]


def test_no_thread_is_left_behind() -> None:
    before = threading.active_count()
    producer(Queues(longest=0.001)).enqueue_many(calls(WRITE, 200))
    assert threading.active_count() == before
