"""`enqueue` and its kin: the producer of this process, found on first use, replaceable per context."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar, Unpack, overload

from loomjobs.core.call import Call, CallOptions, Enqueued, Report, call
from loomjobs.core.errors import InvalidOption
from loomjobs.core.job import Job
from loomjobs.runtime.context import running
from loomjobs.runtime.pages import Many, each, send_pages
from loomjobs.runtime.producer import Producer

P = TypeVar("P")

_bound: ContextVar[Producer | None] = ContextVar("producer", default=None)


@contextmanager
def bound(producer: Producer) -> Generator[None]:
    """Send through this producer for the block: tests, scripts with their own clients."""
    token = _bound.set(producer)
    try:
        yield
    finally:
        _bound.reset(token)


def enqueue(job: Job[P, Any], payload: P, /, **options: Unpack[CallOptions]) -> Enqueued:
    """Send one job; returning means that SQS has it. Options are those of `call`.

    Raises BadPayload, BadKey, InvalidOption, PayloadTooLarge before anything is sent; NotSent when the queue refused
    it; UnknownOutcome when no answer came. Inside a job it is `ctx.enqueue`: the target must stand in `sends=`.
    """
    one = call(job, payload, **options)
    run = running.get()
    return run.send(one) if run is not None else producer().enqueue(one)


def rerun(job: Job[P, Any], payload: P, /) -> Enqueued:
    """Have it run anew under its key, whatever became of it before; a duplicate while it is queued or runs.

    Its effect happens a second time, unless others' idempotency keys or its own conditions prevent it. Raises as
    `enqueue`; InvalidOption for EACH_ENQUEUE.
    """
    one = replace(call(job, payload), unique_for=timedelta(0))
    if one.key is None:
        raise InvalidOption(f"{job.name}: with EACH_ENQUEUE every enqueue runs; enqueue it again")
    return producer().enqueue(one)


@overload
def enqueue_many(job: Job[P, Any], payloads: Iterable[P], /, *, tenant: str | None = ...) -> Report: ...
@overload
def enqueue_many(calls: Iterable[Call], /) -> Report: ...
def enqueue_many(
    first: Job[Any, Any] | Iterable[Call], payloads: Iterable[Any] = (), /, *, tenant: str | None = None
) -> Report:
    """Send any number with bounded memory, ten to a request. Raises NotSent or UnknownOutcome with their `report`."""
    calls = calls_of(first, payloads, tenant)
    run = running.get()
    return run.send_many(calls) if run is not None else producer().enqueue_many(calls)


async def aenqueue(job: Job[P, Any], payload: P, /, **options: Unpack[CallOptions]) -> Enqueued:
    """`enqueue` for asyncio callers. The event loop stays free, and tasks that enqueue at the same time share requests,
    ten messages to each; a lone one does not wait for others."""
    one = call(job, payload, **options)
    run = running.get()
    return await (run.asend(one) if run is not None else producer().aenqueue(one))


@overload
async def aenqueue_many(job: Job[P, Any], payloads: Many[P], /, *, tenant: str | None = ...) -> Report: ...
@overload
async def aenqueue_many(calls: Many[Call], /) -> Report: ...
async def aenqueue_many(
    first: Job[Any, Any] | Many[Call], payloads: Many[Any] = (), /, *, tenant: str | None = None
) -> Report:
    """`enqueue_many` for asyncio callers, from an iterable of either kind: it is read in the calling task, 500 at a
    time, and sent beside it. A cancelled task leaves the page that is under way to be sent."""
    run = running.get()
    send = run.send_many if run is not None else for_caller(producer())
    return await send_pages(send, acalls_of(first, payloads, tenant))


def for_caller(producer: Producer) -> Callable[[Iterable[Call]], Report]:
    """Its `enqueue_many` for the pages of one caller, whose trace is read once, here."""
    return partial(producer.enqueue_many, origin=producer.caller())


def calls_of(first: Job[Any, Any] | Iterable[Call], payloads: Iterable[Any], tenant: str | None) -> Iterator[Call]:
    """The calls of either form of `enqueue_many`, each built when it is read."""
    if isinstance(first, Job):
        return (call(first, payload, tenant=tenant) for payload in payloads)
    return iter(first)


async def acalls_of(first: Job[Any, Any] | Many[Call], payloads: Many[Any], tenant: str | None) -> AsyncIterator[Call]:
    if isinstance(first, Job):
        async for payload in each(payloads):
            yield call(first, payload, tenant=tenant)
    else:
        async for one in each(first):
            yield one


def producer() -> Producer:
    """The producer of this context, else the process's own, made on first use from its environment."""
    chosen = _bound.get()
    if chosen is not None:
        return chosen
    from loomjobs.aws.connect import (
        process_producer,
    )  # the one import that goes up: binding the default transport

    return process_producer()
