"""Tasks that enqueue at the same time share requests, and each gets its own answer; pages of an asyncio program."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import date
from typing import Any

import pytest

from loomjobs import aenqueue, aenqueue_many
from loomjobs.core.call import Call, Report, call
from loomjobs.core.errors import ConfigurationError, NotSent, PayloadTooLarge, UnknownOutcome
from loomjobs.core.outgoing import Sent
from loomjobs.runtime.pages import PAGE
from loomjobs.runtime.sending import bound
from tests.core.catalogue_fixture import Statement
from tests.runtime.test_stream import MAILED, POST, WRITE, Queues, calls, producer


async def all_of(queues: Queues, many: Sequence[Call], *, senders: int = 8) -> list[Any]:
    one = producer(queues, senders=senders)
    return await asyncio.gather(*(one.aenqueue(each) for each in many), return_exceptions=True)


def test_a_thousand_tasks_need_a_hundred_requests_and_no_more_senders_than_asked() -> None:
    queues = Queues(longest=0.002)
    answers = asyncio.run(all_of(queues, list(calls(WRITE, 1_000))))
    assert [each.key for each in answers] == [str(number) for number in range(1_000)]
    assert len(queues.batches) == 100
    assert queues.most_at_once <= 8
    assert len({each.id for each in answers}) == 1_000


def test_a_lone_message_does_not_wait_for_company() -> None:
    queues = Queues()
    asyncio.run(all_of(queues, list(calls(WRITE, 1))))
    assert [len(batch) for batch in queues.batches] == [1]


def test_what_comes_while_all_senders_are_busy_shares_the_next_requests() -> None:
    queues = Queues(longest=0.02)

    async def trickle() -> None:
        one = producer(queues, senders=2)
        async with asyncio.TaskGroup() as group:
            for each in calls(WRITE, 200):
                group.create_task(one.aenqueue(each))
                await asyncio.sleep(0.0002)

    asyncio.run(trickle())
    assert sorted(map(int, queues.keys)) == list(range(200))
    assert len(queues.batches) < 100


def test_a_fifo_group_keeps_its_order() -> None:
    queues = Queues(longest=0.004)
    asyncio.run(all_of(queues, list(calls(POST, 600, groups=17))))
    seen: dict[str, list[int]] = defaultdict(list)
    for batch in queues.batches:
        for message in batch:
            seen[message.group or ""].append(int(message.key))
    assert len(seen) == 17
    assert all(numbers == sorted(numbers) for numbers in seen.values())


def test_each_task_gets_its_own_failure() -> None:
    queues = Queues(lambda message: {"3": "unknown", "4": "refused", "5": "again"}.get(message.key, "accepted"))
    answers = asyncio.run(all_of(queues, list(calls(WRITE, 10))))
    assert [type(each).__name__ for each in answers] == (
        ["Enqueued"] * 3 + ["UnknownOutcome", "NotSent", "NotSent"] + ["Enqueued"] * 4
    )
    assert isinstance(answers[3], UnknownOutcome)
    assert [each.key for each in answers[3].report.unknown] == ["3"]
    assert isinstance(answers[4], NotSent)
    assert [each.call.key for each in answers[4].report.rejected] == ["4"]
    assert isinstance(answers[5], NotSent)
    assert [each.key for each in answers[5].report.unsent] == ["5"]


def test_a_queue_that_cannot_be_found_fails_its_tasks_only() -> None:
    class Half(Queues):
        def send(self, queue: str, messages: Sequence[Any], /) -> Sequence[Sent]:
            if queue == MAILED.queue.name:
                raise ConfigurationError("no such queue here")
            return super().send(queue, messages)

    answers = asyncio.run(all_of(Half(), [*calls(WRITE, 2), *calls(MAILED, 2)]))
    assert [type(each).__name__ for each in answers] == ["Enqueued"] * 2 + ["ConfigurationError"] * 2


def test_a_message_that_is_too_large_fails_before_it_could_spoil_a_request() -> None:
    queues = Queues()
    big = call(WRITE, Statement("c" * 1_100_000, date(2026, 1, 1)), key="big")
    answers = asyncio.run(all_of(queues, [*calls(WRITE, 2), big]))
    assert [type(each) for each in answers][2] is PayloadTooLarge
    assert queues.keys == ["0", "1"]


def test_what_is_cancelled_before_its_request_is_not_sent_and_spoils_nobodys() -> None:
    gate = threading.Event()

    class Held(Queues):
        def send(self, queue: str, messages: Sequence[Any], /) -> Sequence[Sent]:
            assert gate.wait(10)
            return super().send(queue, messages)

    queues = Held()

    async def cancelling() -> list[Any]:
        one = producer(queues, senders=1)
        tasks = [asyncio.create_task(one.aenqueue(each)) for each in calls(WRITE, 20)]
        await asyncio.sleep(0.05)  # the first ten are in a request
        for task in (tasks[2], tasks[15]):
            task.cancel()
        await asyncio.sleep(0)
        gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(cancelling())
    assert [place for place, each in enumerate(answers) if isinstance(each, asyncio.CancelledError)] == [2, 15]
    assert queues.keys == [str(number) for number in range(20) if number != 15]


def test_queues_take_turns_so_that_a_flood_of_one_does_not_starve_another() -> None:
    queues = Queues()
    asyncio.run(all_of(queues, [*calls(WRITE, 300), *calls(MAILED, 10)], senders=1))
    order = [batch[0].call.job.queue.name for batch in queues.batches]
    assert order.index(MAILED.queue.name) <= 2


def test_one_producer_serves_many_event_loops_one_after_the_other_and_at_once() -> None:
    queues = Queues(longest=0.001)
    one = producer(queues)

    def program(start: int) -> None:
        async def main() -> None:
            await asyncio.gather(*(one.aenqueue(call(WRITE, each.payload, key=f"{start}/{each.key}")) for each in many))

        many = list(calls(WRITE, 50))
        asyncio.run(main())

    threads = [threading.Thread(target=program, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    program(9)
    assert len(queues.keys) == len(set(queues.keys)) == 250


# -- aenqueue_many -----------------------------------------------------------------------------------


async def stream(count: int) -> AsyncIterator[Call]:
    for one in calls(WRITE, count):
        await asyncio.sleep(0)
        yield one


def test_an_asynchronous_iterable_is_sent_page_by_page_with_bounded_memory() -> None:
    queues = Queues()
    most = 0

    async def watched() -> AsyncIterator[Call]:
        nonlocal most
        read = 0
        async for one in stream(2 * PAGE + 7):
            read += 1
            most = max(most, read - len(queues.keys))
            yield one

    async def main() -> Report:
        with bound(producer(queues)):
            return await aenqueue_many(watched())

    assert asyncio.run(main()).accepted == 2 * PAGE + 7
    assert sorted(map(int, queues.keys)) == list(range(2 * PAGE + 7))
    assert most <= PAGE


def test_payloads_and_ordinary_iterables_are_taken_too_and_read_in_the_callers_thread() -> None:
    queues = Queues()
    readers: set[threading.Thread] = set()

    def payloads() -> Iterator[Statement]:
        for number in range(25):
            readers.add(threading.current_thread())
            yield Statement(f"c{number}", date(2026, 1, 1))

    async def main() -> Report:
        with bound(producer(queues)):
            await aenqueue(WRITE, Statement("first", date(2026, 1, 1)))
            return await aenqueue_many(WRITE, payloads())

    assert asyncio.run(main()) == Report(accepted=25)
    assert readers == {threading.current_thread()}


def test_a_failure_in_a_later_page_reports_all_pages() -> None:
    queues = Queues(lambda message: "refused" if message.key == f"{PAGE + 3}" else "accepted")

    async def main() -> None:
        with bound(producer(queues, senders=1)):
            await aenqueue_many(stream(3 * PAGE))

    with pytest.raises(NotSent) as caught:
        asyncio.run(main())
    report = caught.value.report
    assert [each.call.key for each in report.rejected] == [f"{PAGE + 3}"]
    assert report.accepted == PAGE + 9
    assert report.accepted + len(report.rejected) + len(report.unsent) == 2 * PAGE  # all that was read


def test_what_the_iterable_raises_comes_through_after_what_was_read_is_sent() -> None:
    queues = Queues()

    async def broken() -> AsyncIterator[Call]:
        async for one in stream(47):
            yield one
        raise OSError("the cursor is gone")

    async def main() -> None:
        with bound(producer(queues)):
            await aenqueue_many(broken())

    with pytest.raises(OSError, match="the cursor is gone") as caught:
        asyncio.run(main())
    assert len(queues.keys) == 47
    assert caught.value.__notes__ == ["Of the calls before this, 47 accepted."]
