"""Messages of asyncio tasks that enqueue at the same time, gathered into shared requests.

What becomes ready in one turn of the event loop shares a request, ten messages to each; while `senders` requests are
under way, the messages that come gather for the next ones. So a lone message never waits for company, and a thousand
tasks need a hundred requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from loomjobs.core.outgoing import Lane, Outgoing, Pack, Sent, lane
from loomjobs.runtime.ports import Deliver, Journal
from loomjobs.runtime.tally import Tally

_Answer: TypeAlias = "tuple[Outgoing, Sent]"
_Waiting: TypeAlias = "tuple[Outgoing, asyncio.Future[_Answer]]"


class Gatherer:
    """Of one event loop. `deliver` sends one batch of one queue, in a thread; up to `senders` are under way."""

    def __init__(self, deliver: Deliver, journal: Journal, *, senders: int) -> None:
        self._deliver = deliver
        self._journal = journal
        self._senders = senders
        self._pool = ThreadPoolExecutor(senders, thread_name_prefix="loomjobs-asend")
        self._waiting: dict[Lane, deque[_Waiting]] = {}
        self._under_way: dict[asyncio.Task[None], Lane] = {}
        self._is_woken = False

    async def send(self, message: Outgoing) -> _Answer:
        """Return when SQS has it, as it was sent. Raises NotSent, UnknownOutcome, or what `deliver` raises.

        A task that is cancelled before its message's request has begun has sent nothing.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_Answer] = loop.create_future()
        self._waiting.setdefault(lane(message, self._senders), deque()).append((message, answer))
        if not self._is_woken:
            self._is_woken = True
            loop.call_soon(self._start)
        return await answer

    def _start(self) -> None:
        """Begin as many requests as may be under way; the lanes take turns."""
        self._is_woken = False
        while len(self._under_way) < self._senders:
            place = next((each for each in self._waiting if not self._is_behind(each)), None)
            if place is None:
                return
            line = self._waiting.pop(place)
            pack = _take(line)
            if line:
                self._waiting[place] = line
            if pack:
                self._under_way[asyncio.create_task(self._request(pack))] = place

    def _is_behind(self, place: Lane) -> bool:
        """On FIFO a lane has one request under way at a time, so that none overtakes another."""
        head, _ = self._waiting[place][0]
        return head.call.job.queue.fifo and place in self._under_way.values()

    async def _request(self, pack: Sequence[_Waiting]) -> None:
        try:
            messages = [message for message, _ in pack]
            delivered = await asyncio.get_running_loop().run_in_executor(self._pool, self._deliver, messages)
        except Exception as error:  # noqa: BLE001 raised in every task that waits
            for _, answer in pack:
                _fail(answer, error)
        else:
            for (_, answer), one in zip(pack, delivered, strict=True):
                self._settle(answer, one)
        finally:
            task = asyncio.current_task()
            assert task is not None
            del self._under_way[task]
            self._start()

    def _settle(self, answer: asyncio.Future[_Answer], one: _Answer) -> None:
        tally = Tally(self._journal)
        tally.count([one])
        try:
            tally.settle()
        except Exception as error:  # noqa: BLE001 raised in the task that waits
            _fail(answer, error)
        else:
            if not answer.done():
                answer.set_result(one)


def _take(line: deque[_Waiting]) -> Sequence[_Waiting]:
    """The next request's messages, without those whose task was cancelled meanwhile."""
    pack: Pack[Outgoing] = Pack()
    taken: list[_Waiting] = []
    while line and (line[0][1].done() or pack.fits(line[0][0])):
        message, answer = line.popleft()
        if not answer.done():
            pack.add(message)
            taken.append((message, answer))
    return taken


def _fail(answer: asyncio.Future[_Answer], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
