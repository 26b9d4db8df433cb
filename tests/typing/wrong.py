"""Wrong uses of the public API: each is an error to both type checkers, and so is an ignore that is not needed."""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from loomjobs import (
    Admit,
    JobContext,
    MissedRuns,
    Overlap,
    Producer,
    Queue,
    Workload,
    aenqueue,
    call,
    cancel,
    cron,
    enqueue,
    enqueue_many,
    job,
    rerun,
    schedule,
    tombstone,
    wait,
)

queue = Queue("billing", workload=Workload.BULK)


@dataclass(frozen=True)
class Statement:
    customer_id: str


@dataclass(frozen=True)
class Other:
    period: date


@job("billing.post", queue=queue, key="customer_id")
def post(s: Statement, ctx: JobContext) -> str:
    return s.customer_id


def wrong(ctx: JobContext) -> None:
    Admit(depth=10)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Admit(depth=10, on_error="raise")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Queue("a", workload=Workload.BULK, admit=10)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    enqueue(post, Other(date(2024, 1, 1)))  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    call(post, "c1")  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    enqueue_many(post, [Other(date(2024, 1, 1))])  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    enqueue(post, Statement("c"), dealy=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    _ = aenqueue(post, Other(date(2024, 1, 1)))  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    enqueue(post, Statement("c"), delay=60)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Producer("prod").enqueue(post, Other(date(2024, 1, 1)))  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    Producer("prod", "books")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ctx.enqueue(post, Other(date(2024, 1, 1)))  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    post(Statement("c"), None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    cancel(post, Other(date(2024, 1, 1)))  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    rerun(post, Other(date(2024, 1, 1)))  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    wait(post, Statement("c"))  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    cancel(post)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    cancel(post, Statement("c"), key="c")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    call(post, Statement("c"), expires=60)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    job("a.b", queue=queue, key="x", expires=date(2024, 1, 1))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    job("a.b", queue=queue, key="x", upcasters={"1": dict})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
    job("a.b", queue=queue, key="x", upcasters={1: len})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
    tombstone("a.b", queue=queue)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Queue("x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Queue("x", Workload.BULK)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    job("a.b", queue=queue)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    schedule(
        post,
        cron("0 2 1 * ? *"),
        payload=lambda tick: Other(tick.at.date()),  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]
        why="the books close",
        missed=MissedRuns.SKIP,
        overlap=Overlap.ALLOW,
    )


@job("billing.shape", queue=queue, key="customer_id")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def shape(s: Statement) -> None: ...
