"""`aenqueue_many`: any number of calls of an asyncio program, read in its task and sent page by page beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar

from loomjobs.core.call import Call, Report
from loomjobs.core.errors import NotSent, UnknownOutcome

PAGE = 500
"""Calls read before they are sent: 50 requests, some 0.1 s with eight senders and 10 ms an answer."""

T = TypeVar("T")
Many: TypeAlias = AsyncIterable[T] | Iterable[T]


async def each(many: Many[T]) -> AsyncIterator[T]:
    """Of either kind. An ordinary iterable is read by the event loop, in the thread that its author expects."""
    if isinstance(many, AsyncIterable):
        async for one in many:
            yield one
    else:
        for one in many:
            yield one


async def send_pages(send: Callable[[Iterable[Call]], Report], calls: AsyncIterable[Call]) -> Report:
    """`send` runs in a thread. Raises NotSent or UnknownOutcome with the report of all pages; what `calls` raises
    comes through after everything before it is sent, with a note of how many were accepted."""
    report = Report(accepted=0)
    page: list[Call] = []
    try:
        async for one in calls:
            page.append(one)
            if len(page) == PAGE:
                page, full = [], page
                report = await _send(send, full, report)
    except (NotSent, UnknownOutcome):
        raise
    except Exception as error:
        try:
            report = await _send(send, page, report)
        finally:
            error.add_note(f"Of the calls before this, {report.summary}.")
        raise
    return await _send(send, page, report)


async def _send(send: Callable[[Iterable[Call]], Report], page: Sequence[Call], before: Report) -> Report:
    if not page:
        return before
    left = iter(page)
    try:
        return before + await asyncio.to_thread(send, left)
    except (NotSent, UnknownOutcome) as error:
        # the caller's iterable has handed out the whole page, so what the sender did not come to is in no other place
        raise error.within(before + error.report + Report(accepted=0, unsent=tuple(left))) from error
