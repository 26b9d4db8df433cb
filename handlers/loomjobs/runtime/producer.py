"""Puts calls into queues: in as few requests as SQS allows, and with an outcome for every one."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from loomjobs.core import limits
from loomjobs.core.address import address
from loomjobs.core.call import Call, Enqueued, Report
from loomjobs.core.defaults import BODY_WARNING
from loomjobs.core.errors import PayloadTooLarge
from loomjobs.core.follow import Follow
from loomjobs.core.outgoing import Origin, Outgoing, Sendable, Sent, packs
from loomjobs.core.sealed import Cipher
from loomjobs.runtime.backpressure import Backpressure
from loomjobs.runtime.caller import drop
from loomjobs.runtime.gatherer import Gatherer
from loomjobs.runtime.ports import Caller, Clock, Delivered, Depths, Journal, Payloads, Roll, Sender, Store, Token
from loomjobs.runtime.storing import Storing
from loomjobs.runtime.stream import Stream
from loomjobs.runtime.tally import Tally
from loomjobs.runtime.unique import Uniqueness

TRIES = 4
"""Sends of one message while the failure is the server's: SQS answered that it did not take it."""
SENDERS = 8
"""Requests that `enqueue_many` and `aenqueue` have under way at a time; boto3's pool keeps ten connections."""
_PAUSE = 0.1


class Producer:
    """Threads and event loops may share one.

    `pause` waits so many seconds between tries; `senders` is how many requests `enqueue_many` has under way at a time,
    in threads where it is above 1, and `aenqueue` in each event loop. `depths` is asked where a queue has an `admit=`;
    without it every queue takes everything, as for the ticks of schedules, which are due whatever is in the way.
    `caller` says what a call without an origin inherits. Encrypted fields need a `cipher`.
    `payloads` keeps the payloads that go beside their messages.
    """

    def __init__(
        self,
        sender: Sender,
        *,
        clock: Clock,
        token: Token,
        roll: Roll,
        journal: Journal,
        pause: Callable[[float], None],
        senders: int = SENDERS,
        store: Callable[[], Store] | None = None,
        depths: Depths | None = None,
        caller: Caller = Origin,
        cipher: Cipher | None = None,
        payloads: Payloads | None = None,
    ) -> None:
        self._sender = sender
        self.clock = clock
        self._token = token
        self._roll = roll
        self.journal = journal
        self.caller = caller
        self._pause = pause
        self._senders = senders
        self._unique = store and Uniqueness(store=store, clock=clock, pause=pause, trouble=journal.trouble)
        self._backpressure = (
            None if depths is None else Backpressure(depths, clock=clock, roll=roll, trouble=journal.trouble)
        )
        self.cipher = cipher
        self._storing = Storing(payloads)
        self._warned: set[str] = set()
        self._gatherers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Gatherer] = weakref.WeakKeyDictionary()

    def address(self, one: Call, *, origin: Origin, room: int = limits.SQS_MESSAGE_BYTES) -> Outgoing:
        """The message of a call with an id of its own, for somebody else to send, after its payload is stored."""
        message = self._fitting(origin, partial(address, one, id=self._token(), now=self.clock(), room=room))
        self._weigh(message)
        return message

    def _fitting(self, origin: Origin, made: Callable[..., Outgoing]) -> Outgoing:
        """Without the trace and the correlation id where it would be too large only because of them."""
        try:
            return made(origin=origin, cipher=self.cipher)
        except PayloadTooLarge:
            bare = replace(origin, trace=None, correlation=None)
            if bare == origin:
                raise
            message = made(origin=bare, cipher=self.cipher)
            drop("trace and correlation id of a message", "it would be too large with them")
            return message

    def store(self, messages: Sequence[Outgoing]) -> None:
        """The payloads that go beside these messages. Raises PayloadForbidden, PayloadUnavailable."""
        self._storing.store(messages)

    def _weigh(self, message: Outgoing) -> None:
        """Say once a job, and process, that its payloads are large for a queue."""
        name, size = message.call.job.name, message.size
        if size > BODY_WARNING and name not in self._warned:
            self._warned.add(name)
            self.journal.trouble(
                f"{name}: a message has {size:,} bytes, over {BODY_WARNING:,}. Pass an address instead of the data, or "
                f'give queue {message.call.job.queue.name} a body_limit= and oversized="offload"'
            )

    def enqueue(self, one: Call, *, origin: Origin | None = None) -> Enqueued:
        """Send one. Raises NotSent (QueueFull) or UnknownOutcome; returning means that SQS has it or its double."""
        message = self.address(one, origin=origin or self.caller())
        tally = Tally(self.journal)
        delivered = self.deliver([message])
        tally.count(delivered)
        tally.settle()
        return enqueued(*delivered[0])

    def enqueue_many(self, calls: Iterable[Call], *, origin: Origin | None = None) -> Report:
        """Send any number, reading `calls` as it goes: memory holds ten messages a sender and ten a queue.

        Raises NotSent or UnknownOutcome after the first batch that was not accepted whole, with `report` saying how
        far it came; what was not read from `calls` by then is still in it. What `calls` itself raises comes through
        after everything before it is sent, with a note of how many were accepted.
        """
        origin = origin or self.caller()
        tally = Tally(self.journal)
        with Stream(self.deliver, tally, senders=self._senders) as stream:
            stream.take(self.address(one, origin=origin) for one in calls)
        return tally.settle()

    async def aenqueue(self, one: Call, *, origin: Origin | None = None) -> Enqueued:
        """`enqueue` for a task: the event loop stays free, and tasks that enqueue at the same time share requests."""
        message = self.address(one, origin=origin or self.caller())
        return enqueued(*await self._gatherer().send(message))

    def _gatherer(self) -> Gatherer:
        loop = asyncio.get_running_loop()
        gatherer = self._gatherers.get(loop)
        if gatherer is None:
            gatherer = self._gatherers[loop] = Gatherer(self.deliver, self.journal, senders=self._senders)
        return gatherer

    def deliver(self, pack: Sequence[Outgoing], /) -> Delivered:
        """One batch for one queue, without what its `unique_for=` leaves out, as far as its `admit=` lets it in. Raises
        ConfigurationError."""
        return self._unique.deliver(pack, self._let_in) if self._unique else self._let_in(pack)

    def _let_in(self, pack: Sequence[Outgoing], /) -> Delivered:
        return self._backpressure.deliver(pack, self._bring) if self._backpressure else self._bring(pack)

    def _bring(self, pack: Sequence[Outgoing], /) -> Delivered:
        return self._storing.deliver(pack, self._send)

    def forward(self, follows: Sequence[Follow]) -> list[Sent]:
        """Send what follows other work, of one queue: promised when that was sent, so no queue is too full for it.
        An outcome for each, in order. Raises ConfigurationError."""
        sent: list[Sent] = []
        for pack in packs([each.row(self.clock()) for each in follows]):
            sent += self._tried(pack[0].queue, pack)
        return sent

    def _send(self, pack: Sequence[Outgoing], /) -> Delivered:
        sent = self._tried(pack[0].call.job.queue.name, pack)
        return list(zip(pack, sent, strict=True))

    def _tried(self, queue: str, pack: Sequence[Sendable]) -> Sequence[Sent]:
        """One batch call for one queue, and again for what the server failed to take; never for what may have
        arrived. Raises ConfigurationError."""
        outcomes: dict[int, Sent] = {}
        left = list(enumerate(pack))
        for attempt in range(1, TRIES + 1):
            answers = self._sender.send(queue, [message for _, message in left])
            outcomes |= {place: sent for (place, _), sent in zip(left, answers, strict=True)}
            left = [one for one in left if outcomes[one[0]].outcome == "again"]
            if not left or attempt == TRIES:
                break
            self._pause(_PAUSE * 2**attempt * self._roll())
        return [outcomes[place] for place in range(len(pack))]


def enqueued(message: Outgoing, sent: Sent) -> Enqueued:
    """What the caller is told of a message that did not fail."""
    if sent.outcome == "duplicate":
        return Enqueued(sent.stands, message.key, "duplicate")
    return Enqueued(message.id, message.key, "delayed" if message.delay else "accepted")
