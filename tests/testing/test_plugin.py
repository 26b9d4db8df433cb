"""The pytest plugin for authors of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from loomjobs import (
    Defer,
    JobContext,
    MissedRuns,
    Overlap,
    Permanent,
    Queue,
    Resource,
    Retry,
    Secret,
    Setting,
    Tick,
    Transient,
    Workload,
    cron,
    enqueue,
    job,
    schedule,
    status,
)
from loomjobs.core.errors import BadPayload, ConfigurationError, UndeclaredSend
from loomjobs.core.job import Job
from loomjobs.core.registry import isolated
from loomjobs.testing import Jobs, context, memory

QUEUE = Queue("plugin", workload=Workload.BULK)
FILES, SENDER, TOKEN = Resource("files"), Setting("sender"), Secret("token")


@dataclass(frozen=True)
class Order:
    id: str


class Team:
    """A team's jobs, made anew for each test."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.fail: list[BaseException] = []

        def ship(order: Order, ctx: JobContext) -> str:
            self.seen.append((ctx.attempt, order.id))
            if self.fail:
                raise self.fail.pop(0)
            return f"shipped {order.id}"

        async def mail(order: Order, ctx: JobContext) -> int:
            self.seen.append(ctx.address(FILES) + ctx.address(SENDER) + ctx.secret(TOKEN))
            return len(order.id)

        def place(order: Order, ctx: JobContext) -> None:
            ctx.enqueue(self.ship, order, delay=timedelta(minutes=5))
            enqueue(self.ship, Order("second"))

        def rogue(order: Order, ctx: JobContext) -> None:
            enqueue(self.ship, order)

        self.ship: Job[Order, str] = job("shop.ship", queue=QUEUE, key="id", retry=Retry(attempts=3))(ship)
        self.mail = job("shop.mail", queue=QUEUE, key="id", uses=[FILES.to("read"), SENDER, TOKEN])(mail)
        self.place = job("shop.place", queue=QUEUE, key="id", sends=[self.ship])(place)
        self.rogue = job("shop.rogue", queue=QUEUE, key="id")(rogue)
        schedule(
            self.ship,
            cron("0 2 1 * ? *"),
            payload=lambda tick: Order(f"{tick.at:%Y-%m}"),
            why="ship the month",
            missed=MissedRuns.SKIP,
            overlap=Overlap.ALLOW,
        )


@pytest.fixture
def team() -> Any:
    with isolated():
        made = Team()
        with memory() as active:
            made.jobs = active  # type: ignore[attr-defined]
            yield made


def test_run_is_one_attempt_with_its_result_or_its_error(team: Any) -> None:
    assert team.jobs.run(team.ship, Order("1")) == "shipped 1"
    for raised in (Permanent("no"), Defer(timedelta(seconds=1)), SystemExit(3)):
        team.fail.append(raised)
        with pytest.raises(type(raised)):
            team.jobs.run(team.ship, Order("1"))


def test_run_goes_through_the_codec(team: Any) -> None:
    with pytest.raises(BadPayload):
        team.jobs.run(team.ship, Order(1))  # type: ignore[arg-type]


def test_an_async_job_is_awaited_and_gets_what_was_provided(team: Any) -> None:
    team.jobs.provide({FILES: "bucket ", SENDER: "a@b.c ", TOKEN: "t"})
    assert team.jobs.run(team.mail, Order("abc")) == 3
    assert team.seen == ["bucket a@b.c t"]


def test_what_was_not_provided_is_said(team: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"'files' was not provided: jobs\.provide"):
        team.jobs.run(team.mail, Order("1"))


def test_drain_runs_what_is_enqueued_and_moves_the_clock_to_retries(team: Any) -> None:
    team.fail = [Transient("busy", after=timedelta(hours=1)), ValueError("odd")]
    enqueue(team.ship, Order("1"))
    before = team.jobs.clock.now
    (outcome,) = team.jobs.drain()
    assert (outcome.state, outcome.attempts, outcome.reason, outcome.job) == ("succeeded", 3, None, "shop.ship")
    assert team.seen == [(1, "1"), (2, "1"), (3, "1")]
    assert team.jobs.clock.now - before >= timedelta(hours=1)
    assert status(team.ship, Order("1")).result() == "shipped 1"


def test_drain_stops_at_its_limit_of_time(team: Any) -> None:
    team.fail = [Transient("busy", after=timedelta(hours=1))]
    enqueue(team.ship, Order("1"))
    (outcome,) = team.jobs.drain(until=timedelta(minutes=1))
    assert (outcome.state, outcome.attempts) == ("waiting", 1)


def test_a_job_that_dies_says_why(team: Any) -> None:
    team.fail = [Permanent("no")]
    enqueue(team.ship, Order("1"))
    (outcome,) = team.jobs.drain()
    assert (outcome.state, outcome.reason, outcome.attempts) == ("dead", "permanent", 1)


def test_a_duplicate_does_not_run(team: Any) -> None:
    for _ in range(3):
        enqueue(team.ship, Order("1"))
    team.jobs.drain()
    assert team.seen == [(1, "1")]


def test_enqueued_and_assert_enqueued_see_what_a_job_sent(team: Any) -> None:
    team.jobs.run(team.place, Order("1"))
    assert team.jobs.enqueued(team.ship) == [Order("1"), Order("second")]
    team.jobs.assert_enqueued(team.ship, times=2)
    team.jobs.assert_enqueued(team.ship, Order("1"), delay=timedelta(minutes=5))
    with pytest.raises(AssertionError, match=r"was enqueued 0 times, not 1\. Enqueued:\n  shop.ship Order"):
        team.jobs.assert_enqueued(team.ship, Order("third"))


def test_an_undeclared_send_is_an_error_in_memory_too(team: Any) -> None:
    with pytest.raises(UndeclaredSend, match=r"sends=\[\.\.\.\]"):
        team.jobs.run(team.rogue, Order("1"))


def test_a_tick_runs_the_schedules_job_for_the_scheduled_instant(team: Any) -> None:
    at = datetime(2026, 2, 1, 2, tzinfo=UTC)
    outcomes = [team.jobs.tick(team.ship, at) for _ in range(2)]
    assert [(each.state, each.key) for each in outcomes] == [("succeeded", "2026-02")] * 2
    assert team.seen == [(1, "2026-02")]
    assert Tick("shop.ship", at).at == at


def test_a_context_of_ones_own_serves_a_plain_call(team: Any) -> None:
    ctx = context(attempt=3, time_left=timedelta(seconds=2))
    assert team.ship(Order("1"), ctx) == "shipped 1"
    assert team.seen == [(3, "1")]
    assert ctx.time_left == timedelta(seconds=2)
    assert team.jobs.run(team.ship, Order("2"), ctx=ctx) == "shipped 2"


def test_jobs_that_send_each_other_for_ever_end_the_drain_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomjobs.local.jobs.STEPS", 20)
    with isolated():

        @job("loop.again", queue=QUEUE, key=lambda payload: payload.id, retry=Retry(attempts=50))
        def again(payload: Order, ctx: JobContext) -> None:
            raise Defer(timedelta(seconds=1))

        with memory() as jobs:
            enqueue(again, Order("1"))
            with pytest.raises(AssertionError, match="not drained after 20 rounds; 1 messages are left"):
                jobs.drain()


def test_the_fixture_is_there_without_an_import(jobs: Jobs) -> None:
    assert jobs.drain() == []
