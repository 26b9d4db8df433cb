"""`enqueue` and its kin: the producer of this process, found on first use, replaceable per context."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, TypeVar, overload

from loomjobs.core.call import Call, Enqueued, Report, call
from loomjobs.core.job import Job
from loomjobs.runtime.context import running
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


def enqueue(
    job: Job[P, Any],
    payload: P,
    /,
    *,
    delay: timedelta | None = None,
    at: datetime | None = None,
    key: str | None = None,
    tenant: str | None = None,
    group: str | None = None,
    expires: timedelta | datetime | None = None,
    unique_for: timedelta | None = None,
    then: Call | None = None,
) -> Enqueued:
    """Send one job; returning means that SQS has it. Options are those of `call`.

    Raises BadPayload, BadKey, InvalidOption, PayloadTooLarge before anything is sent; NotSent when the queue refused
    it; UnknownOutcome when no answer came. Inside a job it is `ctx.enqueue`: the target must stand in `sends=`.
    """
    one = call(
        job,
        payload,
        delay=delay,
        at=at,
        key=key,
        tenant=tenant,
        group=group,
        expires=expires,
        unique_for=unique_for,
        then=then,
    )
    run = running.get()
    return run.send(one) if run is not None else producer().enqueue(one)


@overload
def enqueue_many(job: Job[P, Any], payloads: Iterable[P], /, *, tenant: str | None = ...) -> Report: ...
@overload
def enqueue_many(calls: Iterable[Call], /) -> Report: ...
def enqueue_many(
    first: Job[Any, Any] | Iterable[Call], payloads: Iterable[Any] = (), /, *, tenant: str | None = None
) -> Report:
    """Send any number with bounded memory, ten to a request. Raises NotSent or UnknownOutcome with their `report`."""
    if isinstance(first, Job):
        job = first
        calls: Iterable[Call] = (call(job, payload, tenant=tenant) for payload in payloads)
    else:
        calls = first
    run = running.get()
    return run.send_many(calls) if run is not None else producer().enqueue_many(calls)


async def aenqueue(
    job: Job[P, Any], payload: P, /, *, delay: timedelta | None = None, at: datetime | None = None
) -> Enqueued:
    """`enqueue` for asyncio callers: the request runs in a thread, the event loop stays free."""
    return await asyncio.to_thread(enqueue, job, payload, delay=delay, at=at)


def producer() -> Producer:
    """The producer of this context, else the process's own, made on first use from its environment."""
    chosen = _bound.get()
    if chosen is not None:
        return chosen
    from loomjobs.aws.connect import (
        process_producer,
    )  # the one import that goes up: binding the default transport

    return process_producer()
