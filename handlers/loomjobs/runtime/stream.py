"""Any number of messages, sent by a few threads while they are read: ten to a request, with bounded memory.

Messages of a FIFO group all take the same lane, and a lane of a FIFO queue has one request under way at a time, so that
none overtakes another. What fits one request is sent without any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import TypeAlias

from loomjobs.core.outgoing import Lane, Outgoing, Pack, lane
from loomjobs.runtime.ports import Deliver, Delivered
from loomjobs.runtime.tally import Tally

_Answer: TypeAlias = "Future[Delivered]"


class Stream:
    """`deliver` sends one batch of one queue and answers for each message; up to `senders` threads call it."""

    def __init__(self, deliver: Deliver, tally: Tally, *, senders: int) -> None:
        self._deliver = deliver
        self._tally = tally
        self._senders = senders
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: dict[Lane, Pack[Outgoing]] = {}
        self._under_way: dict[_Answer, tuple[Lane, Sequence[Outgoing]]] = {}
        self._error: Exception | None = None

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Send what was read; where something went wrong, say how far it came."""
        try:
            if error is None or isinstance(error, Exception):
                self._finish()
        finally:
            if self._pool is not None:
                self._pool.shutdown()
        failure = error or self._error
        if failure is not None:
            failure.add_note(f"Of the calls before this, {self._tally.report().summary}.")
        if error is None and self._error is not None:
            raise self._error

    def take(self, messages: Iterable[Outgoing]) -> None:
        """Read and send until the end, or until a batch was not accepted whole."""
        for message in messages:
            place = lane(message, self._senders)
            pack = self._waiting.setdefault(place, Pack())
            if not pack.fits(message):
                self._send(place)
                pack = self._waiting[place] = Pack()
            pack.add(message)
            if self._has_failed:
                return

    @property
    def _has_failed(self) -> bool:
        return self._tally.failed or self._error is not None

    def _finish(self) -> None:
        """Send the last batches, each no longer than those before it, and wait for every answer."""
        is_alone = self._pool is None and len(self._waiting) == 1
        while self._waiting:
            self._send(next(iter(self._waiting)), here=is_alone)
        while self._under_way:
            self._collect()

    def _send(self, place: Lane, *, here: bool = False) -> None:
        messages = self._waiting.pop(place).messages
        while len(self._under_way) >= self._senders or self._is_behind(place, messages):
            self._collect()
        if self._has_failed:
            self._tally.leave(messages)
            return
        if here or self._senders == 1:
            self._under_way[_run(self._deliver, messages)] = place, messages
            self._collect()
        else:
            self._pool = self._pool or ThreadPoolExecutor(self._senders, thread_name_prefix="loomjobs-send")
            self._under_way[self._pool.submit(self._deliver, messages)] = place, messages

    def _is_behind(self, place: Lane, messages: Sequence[Outgoing]) -> bool:
        return messages[0].call.job.queue.fifo and any(other == place for other, _ in self._under_way.values())

    def _collect(self) -> None:
        """Count the answers that have come, at least one. The first error stops everything that was not sent yet."""
        for answer in wait(self._under_way, return_when=FIRST_COMPLETED).done:
            _, messages = self._under_way.pop(answer)
            try:
                self._tally.count(answer.result())
            except Exception as error:  # noqa: BLE001 raised by __exit__, when all that is under way is counted
                self._tally.leave(messages)
                self._error = self._error or error


def _run(deliver: Deliver, messages: Sequence[Outgoing]) -> _Answer:
    answer: _Answer = Future()
    try:
        answer.set_result(deliver(messages))
    except Exception as error:  # noqa: BLE001 kept as a thread would keep it
        answer.set_exception(error)
    return answer
