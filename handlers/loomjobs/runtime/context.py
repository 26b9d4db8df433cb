"""The context of a run: what a job sees of its delivery, and the way to what it declared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from loomjobs.core import defaults, limits
from loomjobs.core.call import Call, Enqueued, Report, call
from loomjobs.core.errors import InvalidOption, LoomjobsError, UndeclaredSend
from loomjobs.core.job import Job
from loomjobs.core.outgoing import Origin
from loomjobs.core.trace import trace_id
from loomjobs.core.uses import Access, Resource, Secret, Setting, Use
from loomjobs.core.work import Work
from loomjobs.runtime.caller import current_correlation, current_trace
from loomjobs.runtime.effects import Effects
from loomjobs.runtime.ports import Addresses, Clock
from loomjobs.runtime.producer import Producer

P = TypeVar("P")
S = TypeVar("S")

ROW = limits.DYNAMODB_ITEM_BYTES - 4_096
"""Bytes of a body that a row of the outbox holds, beside its other attributes."""

running: ContextVar[RunContext | None] = ContextVar("running", default=None)
"""The run that is on: a plain `enqueue()` inside a job keeps the job's declarations, trace and hop count too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Implements `JobContext`. `until` is when the run will be stopped."""

    work: Work
    attempt: int
    until: datetime
    clock: Clock
    addresses: Addresses
    producer: Producer
    effects: Effects

    @property
    def id(self) -> str:
        return self.work.id

    @property
    def key(self) -> str:
        return self.work.key

    @property
    def idempotency_key(self) -> str:
        return idempotency_key(self.work.job.name, self.work.key)

    @property
    def trace(self) -> str | None:
        return self.work.envelope.trace

    @property
    def correlation_id(self) -> str | None:
        return self.work.envelope.correlation

    @property
    def tenant(self) -> str | None:
        return self.work.envelope.tenant

    @property
    def deadline(self) -> datetime | None:
        return self.work.envelope.expires

    @property
    def time_left(self) -> timedelta:
        return max(timedelta(0), self.until - self.clock())

    @property
    def cancelled(self) -> bool:
        return self.effects.is_cancelled()

    def checkpoint(self, state: object, /) -> None:
        self.effects.checkpoint(state)

    def resume(self, type: type[S], /) -> S | None:
        return self.effects.resume(type)

    def progress(self, done: int, total: int) -> None:
        self.effects.progress(done, total)

    def commit(
        self, *, items: Sequence[Mapping[str, Any]] = (), enqueue: Sequence[Call] = (), result: object = None
    ) -> None:
        messages = [self.producer.address(self._allowed(one), origin=self.origin(), room=ROW) for one in enqueue]
        self.producer.store(messages)  # a committed row must not be ahead of its payload
        self.effects.commit(items=items, messages=messages, result=result)
        self.producer.journal.enqueued(messages)

    def address(self, resource: Resource | Setting, /) -> str:
        if isinstance(resource, Setting):
            self._declared(resource, Setting)
            return self.addresses.setting(resource.name)
        self._declared(resource, Access)
        return self.addresses.resource(resource.name)

    def secret(self, secret: Secret, /) -> str:
        self._declared(secret, Secret)
        return self.addresses.secret(secret.name)

    def enqueue(self, job: Job[P, Any], payload: P, /, *, delay: timedelta | None = None) -> Enqueued:
        return self.send(call(job, payload, delay=delay))

    def enqueue_many(self, job: Job[P, Any], payloads: Iterable[P], /) -> Report:
        return self.send_many(call(job, payload) for payload in payloads)

    async def aenqueue(self, job: Job[P, Any], payload: P, /, *, delay: timedelta | None = None) -> Enqueued:
        return await self.asend(call(job, payload, delay=delay))

    def send(self, one: Call) -> Enqueued:
        """Send a call that the job declares."""
        return self.producer.enqueue(self._allowed(one), origin=self.origin())

    async def asend(self, one: Call) -> Enqueued:
        return await self.producer.aenqueue(self._allowed(one), origin=self.origin())

    def send_many(self, calls: Iterable[Call]) -> Report:
        return self.producer.enqueue_many((self._allowed(one) for one in calls), origin=self.origin())

    def origin(self) -> Origin:
        """What work inherits that this run sends. Raises InvalidOption at the end of the longest chain."""
        hops = self.work.envelope.hops + 1
        if hops > defaults.HOPS:
            raise InvalidOption(
                f"{self.work.job.name}: a chain of {hops} jobs that send each other, which Lambda's loop guard drops. "
                "Let one job fan the work out instead."
            )
        envelope = self.work.envelope
        return Origin(
            trace=self._trace_here(),
            correlation=current_correlation() or envelope.correlation,
            tenant=envelope.tenant,
            hops=hops,
            expires=envelope.expires,
        )

    def _trace_here(self) -> str | None:
        """The job's own span where it goes on with the trace that came; an invocation has one of its own, which is
        that of a batch."""
        came, here = self.work.envelope.trace, current_trace()
        if came is None or here is None:
            return came or here
        return here if trace_id(here) == trace_id(came) else came

    def _allowed(self, one: Call) -> Call:
        if not self.work.job.sends_to(one.job):
            raise UndeclaredSend(self.work.job.name, one.job.name)
        return one

    def _declared(self, thing: Resource | Use, kind: type[Use]) -> None:
        name = thing.name
        if not any(isinstance(use, kind) and use.name == name for use in self.work.job.options.uses):
            spelling = f'Resource("{name}").to(...)' if kind is Access else f'{kind.__name__}("{name}")'
            raise UndeclaredUse(
                f"{self.work.job.name} uses {name!r} without declaring it. Add {spelling} to its uses=."
            )


class UndeclaredUse(LoomjobsError):
    """A job asked for something that it does not list in `uses=`; its worker would have no right to it."""


def idempotency_key(job: str, key: str) -> str:
    """`job` and `key` as one text of at most 64 URL-safe characters: readable where it fits, else a hash."""
    text = f"{job}-{key}"
    if len(text) <= 64 and all(c.isascii() and (c.isalnum() or c in "-_.") for c in text):
        return text
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
