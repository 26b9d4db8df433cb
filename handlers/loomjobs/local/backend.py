"""Queues, records and workers of a catalogue in memory, driven step by step."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from loomjobs.core import names
from loomjobs.core.budget import Budget
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.context import JobContext
from loomjobs.core.decision import Decision, HandBack, is_gone
from loomjobs.core.defaults import RECORD_TTL
from loomjobs.core.delivery import Delivery
from loomjobs.core.errors import ConfigurationError
from loomjobs.core.job import Job
from loomjobs.core.letter import Letter
from loomjobs.core.outgoing import Outgoing, Sendable, Sent, is_far
from loomjobs.core.plan import function_timeout, receive_limit, visibility
from loomjobs.core.queue import Queue
from loomjobs.core.renewal import renewed_body
from loomjobs.core.tick_job import with_ticks
from loomjobs.core.work import Work
from loomjobs.local.cipher import MemoryCipher
from loomjobs.local.clock import Clock
from loomjobs.local.depths import MemoryDepths
from loomjobs.local.payloads import MemoryPayloads
from loomjobs.local.queue import MemoryQueue, Message, Refused
from loomjobs.local.store import MemoryStore
from loomjobs.local.transactor import MemoryTransactor
from loomjobs.runtime.batch import Batch
from loomjobs.runtime.brakes import Brakes
from loomjobs.runtime.caller import caller
from loomjobs.runtime.context import RunContext
from loomjobs.runtime.lanes import MainLane
from loomjobs.runtime.ledger import Held, Ledger
from loomjobs.runtime.outage import Outage
from loomjobs.runtime.ports import Run
from loomjobs.runtime.producer import Producer
from loomjobs.runtime.runner import Ending, Raised, Runner
from loomjobs.runtime.worker import Worker


class Killed(BaseException):
    """Raised by a test's job or hook where a real worker would get SIGKILL: the invocation is gone at once."""


class KillableRunner(Runner):
    """The real runner, except that Killed ends the invocation instead of being the job's failure."""

    def run(self, job: Job[Any, Any], payload: Any, ctx: JobContext, *, seconds: float) -> Ending:
        ending = super().run(job, payload, ctx, seconds=seconds)
        if isinstance(ending, Raised) and isinstance(ending.error, Killed):
            raise ending.error
        return ending


@dataclass
class MemoryAddresses:
    """Implements the runtime's Addresses from what a test provided."""

    values: dict[str, str] = field(default_factory=dict[str, str])

    def resource(self, name: str, /) -> str:
        return self._given(name)

    def setting(self, name: str, /) -> str:
        return self._given(name)

    def secret(self, name: str, /) -> str:
        return self._given(name)

    def _given(self, name: str) -> str:
        if name not in self.values:
            raise ConfigurationError(f"{name!r} was not provided: jobs.provide({{...}}) or `--provide {name}=...`")
        return self.values[name]


@dataclass
class RunLog:
    """A journal that keeps everything, for assertions."""

    runs: list[Run] = field(default_factory=list[Run])
    sent: list[Outgoing] = field(default_factory=list[Outgoing])
    troubles: list[str] = field(default_factory=list[str])
    counts: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, str | None]])

    def enqueued(self, messages: Sequence[Outgoing], /) -> None:
        self.sent.extend(messages)

    def started(self, run: Run, /) -> None: ...

    def ended(self, run: Run, /) -> None:
        self.runs.append(run)

    def counted(self, what: str, job: str | None, /) -> None:
        self.counts.append((what, job))

    def trouble(self, what: str, /) -> None:
        self.troubles.append(what)


class Backend:
    """One account's worth of a catalogue. Random numbers are seeded, ids are counted: a run repeats exactly."""

    def __init__(self, catalogue: Catalogue, *, seed: int = 0, pace: float = 1.0) -> None:
        self.catalogue = with_ticks(catalogue)
        self.clock = Clock()
        self.store = MemoryStore()
        self.addresses = MemoryAddresses()
        self.payloads = MemoryPayloads()
        self.journal = RunLog()
        self.cipher = MemoryCipher()
        self.queues: dict[str, MemoryQueue] = {}
        self.dead: dict[str, MemoryQueue] = {}
        self.renewed: list[Renewed] = []
        self._declared: dict[str, Queue] = {queue.name: queue for queue in self.catalogue.queues}
        for queue in self._declared.values():
            self._make(queue)
        self._roll = random.Random(seed).random  # noqa: S311 repeatable is the point
        self._tokens = count(1)
        self._runner = KillableRunner()
        sender = MemorySender(self.queues, self.clock)
        self.transactor = MemoryTransactor(self.store, sender)
        self.producer = self._producer(sender, MemoryDepths(self.queues, self.clock))
        self.ticking = self._producer(sender, None)
        self.workers = {name: self._worker(name, pace) for name in self._declared}

    def deliver(self, queue: str) -> list[tuple[Delivery, Decision]]:
        """One invocation of a queue's worker, as Lambda does it; empty when nothing is visible.

        Killed abandons it: nothing more is deleted, and the messages come back when their visibility ends.
        """
        declared, source = self._declared[queue], self.queues[queue]
        now = self.clock()
        messages = source.receive(min(declared.batch_size, 10), now=now)
        until = now + timedelta(seconds=function_timeout(declared))
        deliveries = [_delivery(message, declared, now) for message in messages]
        batch = Batch(self.workers[queue], deliveries, until=until, longest=declared.job_timeout)
        try:
            decided = batch.decide()
        except Killed:
            self.clock.pulses.clear()
            lanes, brakes = self._lanes(declared), self._brakes()
            self.workers[queue] = replace(self.workers[queue], lanes=lanes, brakes=brakes, outage=Outage())
            return [(delivery, HandBack("killed")) for delivery in deliveries]
        for delivery, decision in decided:
            if is_gone(decision):
                source.delete(delivery.receipt)
        return decided

    def step(self) -> list[tuple[Delivery, Decision]]:
        """Relay what was committed, and deliver from every queue that has something visible; empty when none has."""
        decided: list[tuple[Delivery, Decision]] = []
        self.transactor.relay(self.clock())
        for name in self._declared:
            decided.extend(self.deliver(name))
        return decided

    def advance_to_next(self, *, until: datetime | None = None) -> bool:
        """Move the clock to the next message that becomes visible; False when there is none (before `until`)."""
        moments = [at for queue in self.queues.values() if (at := queue.next_visible(self.clock.now)) is not None]
        if not moments or (until is not None and min(moments) > until):
            return False
        self.clock.now = max(self.clock.now, min(moments))
        return True

    def single_run(self, work: Work, *, until: datetime) -> RunContext:
        """The context of one attempt outside any queue, with a record of its own that nobody else sees."""
        worker = self.workers[work.job.queue.name]
        store = MemoryStore()
        transactor = self.transactor.beside(store)
        apart = replace(worker, ledger=Ledger(store, clock=self.clock, ttl=RECORD_TTL), transactor=transactor)
        claimed = apart.ledger.claim(apart.claim(work, until=until, wave=1))
        assert isinstance(claimed, Held)
        return apart.context(work, claimed.record, until=until)

    def pending(self) -> int:
        """Messages in all source queues, visible or not."""
        return sum(len(queue.messages) for queue in self.queues.values())

    def runs(self) -> Iterator[Run]:
        return iter(self.journal.runs)

    def _make(self, queue: Queue) -> None:
        dead = MemoryQueue(f"{queue.name}-dlq", fifo=queue.fifo, retention=timedelta(days=14))
        self.dead[queue.name] = dead
        self.queues[queue.name] = MemoryQueue(
            queue.name,
            fifo=queue.fifo,
            visibility=visibility(queue),
            max_receives=receive_limit(queue),
            dead_letters=dead,
        )

    def _producer(self, sender: MemorySender, depths: MemoryDepths | None) -> Producer:
        return Producer(
            sender,
            clock=self.clock,
            token=self._token,
            roll=self._roll,
            journal=self.journal,
            pause=lambda seconds: self.clock.advance(timedelta(seconds=seconds)),
            senders=1,  # in order, and on the thread of the test
            store=lambda: self.store,
            depths=depths,
            cipher=self.cipher,
            caller=caller,
            payloads=self.payloads,
        )

    def _worker(self, queue: str, pace: float) -> Worker:
        declared = self._declared[queue]
        return Worker(
            catalogue=self.catalogue,
            ledger=Ledger(self.store, clock=self.clock, ttl=RECORD_TTL),
            letters=MemoryLetters(self.dead[queue], self.clock),
            messages=MemoryMessages(self.queues[queue], self.clock),
            renewals=MemoryRenewals(self.queues[queue], self.clock, self.renewed),
            producer=self.ticking if queue == names.TICKS else self.producer,
            transactor=self.transactor,
            payloads=self.payloads,
            addresses=self.addresses,
            journal=self.journal,
            lanes=self._lanes(declared),
            budget=Budget(receive_limit(declared)),
            clock=self.clock,
            token=self._token,
            roll=self._roll,
            pause=lambda seconds: self.clock.advance(timedelta(seconds=seconds)),
            quit=_quit,
            pulse=self.clock.pulse,
            brakes=self._brakes(),
            pace=pace,
            release="memory",
            cipher=self.cipher,
        )

    def _lanes(self, queue: Queue) -> MainLane:
        return MainLane(self._runner, size=queue.parallel)

    def _brakes(self) -> Brakes:
        return Brakes(self.store, self.clock, self._roll, self._token)

    def _token(self) -> str:
        return f"t{next(self._tokens)}"


@dataclass(frozen=True)
class MemorySender:
    """Implements the runtime's Sender."""

    queues: Mapping[str, MemoryQueue]
    clock: Clock

    def send(self, queue: str, messages: Sequence[Sendable], /) -> Sequence[Sent]:
        if queue not in self.queues:
            raise ConfigurationError(f"no job is declared on queue {queue!r}")
        return [self._one(self.queues[queue], message) for message in messages]

    def _one(self, queue: MemoryQueue, message: Sendable) -> Sent:
        try:
            if is_far(message):  # by its content, as a one-off schedule sends to FIFO queues
                later = timedelta(seconds=message.delay)
                dedup = message.dedup and message.id
                queue.send(message.body, now=self.clock(), group=message.group, dedup=dedup, later=later)
            else:
                queue.send(
                    message.body, now=self.clock(), group=message.group, dedup=message.dedup, delay=message.delay
                )
        except Refused as refusal:
            return Sent("refused", str(refusal))
        return Sent("accepted")


@dataclass(frozen=True)
class MemoryLetters:
    """Implements the runtime's DeadLetterQueue."""

    queue: MemoryQueue
    clock: Clock

    def park(self, letter: Letter, /) -> None:
        self.queue.send(
            letter.body, now=self.clock(), group=letter.group, dedup=letter.dedup, attributes=letter.attributes
        )


@dataclass(frozen=True)
class MemoryMessages:
    """Implements the runtime's Messages."""

    queue: MemoryQueue
    clock: Clock

    def delete(self, deliveries: Sequence[Delivery], /) -> None:
        for delivery in deliveries:
            self.queue.delete(delivery.receipt)

    def hide(self, waits: Sequence[tuple[Delivery, int]], /) -> None:
        for delivery, seconds in waits:
            with suppress(Refused):
                self.queue.change_visibility(delivery.receipt, seconds, now=self.clock())


@dataclass(frozen=True)
class Renewed:
    """A message that was sent again in place of one whose receives were used up."""

    message_id: str
    seconds: float


@dataclass(frozen=True)
class MemoryRenewals:
    """Implements the runtime's Renewals: the queue's own delay stands in for a one-off schedule."""

    queue: MemoryQueue
    clock: Clock
    renewed: list[Renewed]

    def renew(self, delivery: Delivery, seconds: float, /) -> None:
        self.queue.send(renewed_body(delivery), now=self.clock(), later=timedelta(seconds=seconds))
        self.renewed.append(Renewed(delivery.message_id, seconds))


def _quit() -> None:
    raise Killed


def _delivery(message: Message, queue: Queue, now: datetime) -> Delivery:
    return Delivery(
        message_id=message.id,
        body=message.body,
        receipt=message.receipt,
        queue=queue.name,
        sent_at=message.sent_at.astimezone(UTC),
        received_at=now,
        receives=message.receives,
        group=message.group,
        dedup=message.dedup,
        attributes=message.attributes,
        kind="fifo" if queue.fifo else "standard",
    )
