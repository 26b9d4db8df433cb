"""Right uses of the public API: both type checkers accept every line, and agree on what comes out."""

# pyright: strict
from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, assert_type

from loomjobs import (
    EACH_ENQUEUE,
    Admit,
    Call,
    Cancelled,
    Defer,
    Encrypted,
    Enqueued,
    JobContext,
    MissedRuns,
    Overlap,
    Permanent,
    Producer,
    Queue,
    QueueFull,
    Reading,
    Report,
    Resource,
    Retry,
    Secret,
    Sensitive,
    Service,
    Setting,
    Tick,
    Transient,
    Workload,
    aenqueue,
    aenqueue_many,
    call,
    cancel,
    cron,
    enqueue,
    enqueue_many,
    every,
    job,
    masked,
    rerun,
    schedule,
    status,
    tombstone,
    wait,
)
from loomjobs.testing import Jobs, context

billing = Queue("billing", workload=Workload.BULK, max_workers=10)
accounting_queue = Queue("accounting", workload=Workload.BACKGROUND, fifo=True, max_workers=2)
admitting = Queue(
    "admitting",
    workload=Workload.BULK,
    admit=Admit(depth=10_000, age=timedelta(minutes=30), full="delay", delay=timedelta(minutes=5), on_error="open"),
)
accounting = Service("accounting-api")
statements = Resource("statements")
sender = Setting("sender")
token = Secret("accounting-token")


@dataclass(frozen=True)
class Statement:
    customer_id: str
    period: date
    total: Decimal = Decimal(0)


@dataclass(frozen=True)
class Close:
    period: date

    @classmethod
    def of(cls, tick: Tick) -> Close:
        return cls(tick.at.date())


@dataclass(frozen=True)
class Payment:
    id: str
    iban: Annotated[str, Encrypted()]
    born: Annotated[date | None, Sensitive()] = None


@job(
    "billing.post",
    queue=accounting_queue,
    key=("customer_id", "period"),
    group="customer_id",
    uses=[accounting, token],
    retry=Retry(attempts=25, permanent=(KeyError,)),
)
def post(s: Statement, ctx: JobContext) -> str:
    ctx.secret(token)
    if ctx.time_left < timedelta(seconds=5):
        raise Defer(timedelta(seconds=30))
    if ctx.attempt > 3:
        raise Transient("busy", after=timedelta(seconds=9))
    raise Permanent("refused")


def named_key(s: Statement) -> tuple[str, str]:
    return s.customer_id, s.period.isoformat()


@job(
    "billing.write", queue=billing, key=lambda s: (s.customer_id, s.period), uses=[statements.to("write")], sends=[post]
)
def write(s: Statement, ctx: JobContext) -> None:
    ctx.address(statements)
    assert_type(ctx.enqueue(post, s), Enqueued)
    assert_type(ctx.enqueue_many(post, [s]), Report)


@job("billing.write2", queue=billing, key=named_key)
async def write2(s: Statement, ctx: JobContext) -> int:
    await ctx.aenqueue(post, s)
    return 1


@job("billing.close", queue=billing, key=EACH_ENQUEUE, sends=["billing.write"])
def close(c: Close, ctx: JobContext) -> None: ...


def one_to_two(old: dict[str, Any]) -> dict[str, Any]:
    return {**old, "total": "0"}


@job(
    "billing.evolved",
    queue=billing,
    key="customer_id",
    expires=timedelta(hours=6),
    version=3,
    upcasters={1: one_to_two, 2: lambda old: old},
)
def evolved(s: Statement, ctx: JobContext) -> None: ...


@job("billing.pay", queue=billing, key="id")
def pay(p: Payment, ctx: JobContext) -> None:
    assert_type(p.iban, str)
    assert_type(p.born, date | None)
    assert_type(masked(p), object)


tombstone("billing.gone", queue=billing, why="replaced by billing.post in 2026-10")


schedule(
    close,
    cron("0 2 1 * ? *"),
    payload=Close.of,
    why="the books close",
    missed=MissedRuns.SKIP,
    overlap=Overlap.ALLOW,
)
schedule(
    close,
    every(timedelta(hours=1)),
    payload=lambda tick: Close(tick.at.date()),
    why="to be sure of it",
    missed=MissedRuns.SKIP,
    overlap=Overlap.ALLOW,
    name="billing.close-hourly",
)


def use() -> None:
    one = Statement("c", date(2024, 1, 1))
    assert_type(enqueue(post, one), Enqueued)
    assert_type(enqueue(write, one, delay=timedelta(minutes=1)), Enqueued)
    assert_type(call(post, one), Call)
    assert_type(enqueue_many(post, (Statement(str(i), date(2024, 1, 1)) for i in range(3))), Report)
    producer = Producer("prod", app="books", queues={"billing": "https://sqs/1/billing"}, senders=16)
    assert_type(producer.enqueue(post, one, delay=timedelta(minutes=1), key="k"), Enqueued)
    assert_type(producer.enqueue_many(post, [one]), Report)
    assert_type(producer.enqueue_many([call(post, one)]), Report)
    with producer.bound():
        enqueue(post, one)
    assert_type(enqueue_many([call(post, one), call(close, Close(date(2024, 1, 1)))]), Report)
    assert_type(enqueue(post, one, expires=timedelta(hours=1)), Enqueued)
    assert_type(call(post, one, expires=datetime(2030, 1, 1, tzinfo=UTC)), Call)
    assert_type(cancel(post, one), Cancelled)
    assert_type(cancel(write2, one).outcome, Literal["cancelled", "requested", "too-late"])
    assert_type(cancel(close, key="id"), Cancelled)
    assert_type(status(post, one).result(), str)
    assert_type(status(write2, one).result(), int)
    assert_type(wait(write2, one, timeout=timedelta(seconds=1)).result(), int)
    assert_type(wait(post, one, timeout=timedelta(seconds=1)).progress, tuple[int, int] | None)
    assert_type(status(write2, key="k").result(), int)
    assert_type(status(post, key="k").result(), str)
    assert_type(wait(write2, key="k", timeout=timedelta(seconds=1)).result(), int)
    assert_type(rerun(post, one), Enqueued)
    assert_type(enqueue(post, one, unique_for=timedelta(hours=1), track=True), Enqueued)
    assert_type(post(one, context()), str)


def test_it(jobs: Jobs) -> None:
    one = Statement("a", date(2024, 1, 1))
    assert_type(jobs.run(post, one), str)
    assert_type(jobs.run(write2, one), int)
    assert_type(jobs.run(write, one, ctx=context(attempt=2)), None)
    assert_type(jobs.enqueued(post), list[Statement])
    jobs.assert_enqueued(post, one, times=1)
    jobs.provide({statements: "bucket", sender: "a@b.c", token: "t"})


async def asynchronous(one: Statement, stream: AsyncIterator[Statement], producer: Producer) -> None:
    assert_type(await aenqueue(post, one, expires=timedelta(hours=1)), Enqueued)
    assert_type(await aenqueue_many(post, stream), Report)
    assert_type(await aenqueue_many(post, [one]), Report)
    assert_type(await aenqueue_many([call(post, one)]), Report)
    assert_type(await producer.aenqueue(post, one), Enqueued)
    assert_type(await producer.aenqueue_many(post, stream), Report)


def come_back(full: QueueFull) -> None:
    assert_type(full.retry_after, timedelta)
    assert_type(full.reading, Reading | None)
    assert_type(full.report, Report)
