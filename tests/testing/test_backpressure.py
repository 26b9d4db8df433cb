"""Full queues in the `jobs` fixture, on its virtual clock, and what they mean to a job that sends."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from loomjobs import (
    Admit,
    JobContext,
    MissedRuns,
    Overlap,
    Queue,
    QueueFull,
    Retry,
    Transient,
    Workload,
    call,
    cron,
    enqueue,
    enqueue_many,
    job,
    schedule,
    status,
)
from loomjobs.core import names
from loomjobs.core.registry import isolated
from loomjobs.core.tick_job import Firing
from loomjobs.testing import Jobs, memory

TEN = timedelta(seconds=10)
OUTER = Queue("outer", workload=Workload.BULK)


@dataclass(frozen=True)
class Order:
    id: str


class Shop:
    """`place` sends to `ship`, whose queue has the policy; `commit` does it in a transaction."""

    def __init__(self, **policy: Any) -> None:
        self.hold = False
        self.placed = 0
        shipping = Queue("shipping", workload=Workload.BULK, admit=Admit(**{"depth": 3, "on_error": "open"} | policy))

        def ship(order: Order, ctx: JobContext) -> None:
            if self.hold:
                raise Transient("the ramp is full")

        def place(order: Order, ctx: JobContext) -> None:
            self.placed += 1
            ctx.enqueue(self.ship, order)

        def commit(order: Order, ctx: JobContext) -> None:
            ctx.commit(enqueue=[call(self.ship, order)])

        self.ship: Any = job("shop.ship", queue=shipping, key="id", retry=Retry(attempts=50))(ship)
        self.place = job("shop.place", queue=OUTER, key="id", sends=[self.ship], retry=Retry(attempts=2))(place)
        self.commit = job("shop.commit", queue=OUTER, key="id", sends=[self.ship])(commit)
        schedule(
            self.ship,
            cron("0 2 1 * ? *"),
            payload=lambda tick: Order(f"{tick.at:%Y-%m}"),
            why="ship the month",
            missed=MissedRuns.SKIP,
            overlap=Overlap.ALLOW,
        )


def shop(**policy: Any) -> Generator[tuple[Shop, Jobs]]:
    with isolated():
        made = Shop(**policy)
        with memory() as jobs:
            yield made, jobs


@pytest.fixture
def rejecting() -> Any:
    yield from shop()


@pytest.fixture
def aged() -> Any:
    yield from shop(depth=None, age=timedelta(minutes=5))


@pytest.fixture
def delaying() -> Any:
    yield from shop(full="delay", delay=timedelta(minutes=5))


def test_a_full_queue_rejects_until_a_newer_reading_has_room(rejecting: tuple[Shop, Jobs]) -> None:
    made, jobs = rejecting
    for number in range(3):
        enqueue(made.ship, Order(f"{number}"))
    with pytest.raises(QueueFull, match="3 messages of at most 3") as caught:
        enqueue(made.ship, Order("3"))
    assert TEN <= caught.value.retry_after <= 2 * TEN
    jobs.drain()
    jobs.clock.advance(caught.value.retry_after)
    assert enqueue(made.ship, Order("3")).outcome == "accepted"


def test_many_report_what_was_not_sent(rejecting: tuple[Shop, Jobs]) -> None:
    made, jobs = rejecting
    orders = iter([Order(f"{number}") for number in range(100)])
    with pytest.raises(QueueFull) as caught:
        enqueue_many(made.ship, orders)
    report = caught.value.report
    assert report.accepted + len(report.unsent) + len(list(orders)) == 100
    assert len(jobs.enqueued(made.ship)) == report.accepted == 10


def test_a_delaying_queue_takes_everything_later(delaying: tuple[Shop, Jobs]) -> None:
    made, jobs = delaying
    outcomes = [enqueue(made.ship, Order(f"{number}")).outcome for number in range(5)]
    assert outcomes == ["accepted"] * 3 + ["delayed"] * 2
    jobs.assert_enqueued(made.ship, times=2, delay=timedelta(minutes=5))
    assert len(jobs.drain()) == 5


def test_messages_that_wait_for_their_next_attempt_are_depth_and_grow_old(aged: tuple[Shop, Jobs]) -> None:
    made, jobs = aged
    made.hold = True
    enqueue(made.ship, Order("stuck"))
    jobs.drain(until=timedelta(seconds=1))
    jobs.clock.advance(timedelta(minutes=6))
    with pytest.raises(QueueFull, match=r"its oldest message is 0:06:\d\d old, of at most 0:05:00"):
        enqueue(made.ship, Order("next"))


def test_a_job_that_meets_a_full_queue_waits_without_an_attempt_and_nothing_dies(
    rejecting: tuple[Shop, Jobs],
) -> None:
    """Two attempts would be used up in a minute: a backlog elsewhere must not fill this queue's dead letters."""
    made, jobs = rejecting
    made.hold = True
    for number in range(3):
        enqueue(made.ship, Order(f"held-{number}"))
    enqueue(made.place, Order("1"))
    jobs.drain(until=timedelta(minutes=10))
    assert made.placed > 5
    assert status(made.place, Order("1")).state == "waiting"
    assert status(made.place, Order("1")).attempts == 0
    made.hold = False
    jobs.drain()
    assert status(made.place, Order("1")).state == "succeeded"
    assert status(made.ship, Order("1")).state == "succeeded"
    assert not jobs.backend.dead["outer"].messages


def test_what_a_job_commits_is_sent_whatever_the_depth(rejecting: tuple[Shop, Jobs]) -> None:
    """It was promised in the transaction: holding it back would only fill the outbox."""
    made, jobs = rejecting
    made.hold = True
    for number in range(5):
        enqueue(made.commit, Order(f"{number}"))
    jobs.drain(until=timedelta(seconds=1))
    assert len(jobs.backend.queues["shipping"].messages) == 5


def test_ticks_are_sent_whatever_the_depth(rejecting: tuple[Shop, Jobs]) -> None:
    made, jobs = rejecting
    made.hold = True
    for number in range(3):
        enqueue(made.ship, Order(f"{number}"))
    jobs.tick(made.ship, datetime(2026, 2, 1, 2, tzinfo=UTC))
    assert jobs.enqueued(made.ship)[-1] == Order("2026-02")
    tick = jobs.backend.catalogue.find(names.TICK_JOB)
    assert tick is not None
    jobs.backend.producer.enqueue(call(tick, Firing("shop.ship", datetime(2026, 3, 1, 2, tzinfo=UTC))))
    jobs.backend.deliver(names.TICKS)
    assert jobs.enqueued(made.ship)[-1] == Order("2026-03")
