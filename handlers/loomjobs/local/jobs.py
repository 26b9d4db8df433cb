"""Jobs run in memory, for tests and for `loomjobs try`: what `loomjobs.testing` gives to authors, without pytest."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, overload

from loomjobs.core.call import call
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.envelope import Envelope
from loomjobs.core.payload import decode, digest, encode, parse
from loomjobs.core.registry import current
from loomjobs.core.schedule import Tick
from loomjobs.core.work import Work
from loomjobs.local.backend import Backend, MemoryAddresses
from loomjobs.local.clock import Clock
from loomjobs.runtime import sending
from loomjobs.runtime.cancelling import telling_time
from loomjobs.runtime.context import RunContext, idempotency_key, running
from loomjobs.runtime.status import reading

if TYPE_CHECKING:
    from loomjobs.core.call import Call, Enqueued, Report
    from loomjobs.core.context import JobContext
    from loomjobs.core.job import Job
    from loomjobs.core.uses import Resource, Secret, Setting

P = TypeVar("P")
R = TypeVar("R")
S = TypeVar("S")

STEPS = 10_000
"""Invocations after which `drain` gives up: jobs that send each other for ever."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one job ended: `state` as in `Status`, `attempts` that were charged or succeeded, `reason` of a death."""

    state: str
    attempts: int
    reason: str | None
    job: str = ""
    key: str = ""


class Jobs:
    """In-memory queues, records, schedules and clock for the jobs that are imported."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.backend = Backend(catalogue)
        self.clock: Clock = self.backend.clock

    @overload
    def run(self, job: Job[P, Coroutine[Any, Any, R]], payload: P, /, *, ctx: JobContext = ...) -> R: ...
    @overload
    def run(self, job: Job[P, R], payload: P, /, *, ctx: JobContext = ...) -> R: ...
    def run(self, job: Job[Any, Any], payload: Any, /, *, ctx: JobContext | None = None) -> Any:
        """One attempt, through the codec. What the job raises propagates, signals too."""
        one = call(job, payload)
        data = parse(one.encoded)
        decoded: Any = decode(data, job.payload_type, strict=job.options.strict)
        run = self._context(job, decoded, one.key or "run", data)
        token = running.set(run if ctx is None else None)
        try:
            value = job(decoded, ctx if ctx is not None else run)
            return asyncio.run(value) if job.is_async else value
        finally:
            running.reset(token)

    def drain(self, *, until: timedelta | None = None) -> list[Outcome]:
        """Run everything that is enqueued, and what it enqueues, moving the clock to each retry; at most `until`."""
        before = len(self.backend.journal.runs)
        last = None if until is None else self.clock.now + until
        for _ in range(STEPS):
            if not self.backend.step() and not self.backend.advance_to_next(until=last):
                break
        else:
            raise AssertionError(f"not drained after {STEPS} rounds; {self.backend.pending()} messages are left")
        return self._outcomes(before)

    def tick(self, job: Job[Any, Any], at: datetime) -> Outcome:
        """Fire the job's schedule for the instant `at`, and run the job it enqueues once."""
        schedules = [each for each in self.backend.catalogue.schedules if each.job.name == job.name]
        if not schedules:
            raise AssertionError(f"{job.name} has no schedule")
        schedule = schedules[0]
        self.backend.ticking.enqueue(call(job, schedule.payload(Tick(schedule.name, at.astimezone(UTC)))))
        before = len(self.backend.journal.runs)
        self.backend.deliver(job.queue.name)
        return self._outcomes(before)[-1]

    def commit_through(self, client: Any, /) -> None:
        """Carry out the items of `ctx.commit` with this boto3 DynamoDB client, against tables that the test made
        (moto): only then are their conditions looked at."""
        self.backend.transactor.client = client

    @property
    def committed(self) -> list[Mapping[str, Any]]:
        """The items that jobs have committed so far."""
        return self.backend.transactor.committed

    def enqueued(self, job: Job[P, Any], /) -> list[P]:
        """The payloads sent to this job so far, in order."""
        return [message.call.payload for message in self._sent(job)]

    def assert_enqueued(
        self, job: Job[P, Any], payload: P | None = None, /, *, times: int = 1, delay: timedelta | None = None
    ) -> None:
        """Fail unless the job was enqueued so often (with this payload, with this delay), listing what was."""
        __tracebackhide__ = True
        seconds = None if delay is None else int(delay.total_seconds())
        matching = [
            message
            for message in self._sent(job)
            if (payload is None or message.call.payload == payload) and seconds in (None, message.delay)
        ]
        if len(matching) != times:
            listed = "\n".join(
                f"  {one.call.job.name} {one.call.payload!r} delay={one.delay}" for one in self.backend.journal.sent
            )
            wanted = f"{job.name} {payload if payload is not None else '(any payload)'}"
            raise AssertionError(
                f"{wanted} was enqueued {len(matching)} times, not {times}. Enqueued:\n{listed or '  nothing'}"
            )

    def provide(self, values: Mapping[Resource | Setting | Secret, str]) -> None:
        """Addresses, settings and secrets that jobs will get from their context."""
        self.backend.addresses.values |= {each.name: value for each, value in values.items()}

    def _sent(self, job: Job[Any, Any]) -> list[Any]:
        return [message for message in self.backend.journal.sent if message.call.job.name == job.name]

    def _outcomes(self, since: int) -> list[Outcome]:
        """One per job that was run or refused, in the order in which each was last seen."""
        seen: dict[tuple[str, str], Outcome] = {}
        for run in self.backend.journal.runs[since:]:
            name, key = run.job or "", run.key or run.delivery.message_id
            seen.pop((name, key), None)
            seen[name, key] = self._outcome(name, key, run)
        return list(seen.values())

    def _outcome(self, name: str, key: str, run: Any) -> Outcome:
        from loomjobs.runtime.status import status_of

        job = self.backend.catalogue.find(name)
        reason = getattr(run.decision, "reason", None)
        if job is None or run.key is None:
            return Outcome("dead" if reason else "waiting", 0, reason, name, key)
        with reading(self.backend.store):
            known = status_of(job, key)
        return Outcome(known.state, known.attempts, known.why or reason, name, key)

    def _context(self, job: Job[Any, Any], payload: Any, key: str, data: object) -> RunContext:
        from loomjobs.core.delivery import Delivery

        now = self.clock()
        delivery = Delivery(
            message_id="run", body="", receipt="run", queue=job.queue.name, sent_at=now, received_at=now
        )
        work = Work(delivery, Envelope(job=job.name, payload=data), job, payload, "run", key, digest(data))
        return self.backend.single_run(work, until=now + job.timeout)


@dataclass(frozen=True, slots=True)
class _FixedContext:
    """A context with given answers, for calling a job as a plain function."""

    attempt: int
    time_left: timedelta
    id: str = "test"
    key: str = "test"
    tenant: str | None = None
    correlation_id: str | None = None
    trace: str | None = None
    deadline: datetime | None = None
    addresses: MemoryAddresses = field(default_factory=MemoryAddresses)
    cancelled: bool = False
    checkpoints: list[object] = field(default_factory=list[object])
    committed: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    steps: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    @property
    def idempotency_key(self) -> str:
        return idempotency_key("test", self.key)

    def address(self, resource: Resource | Setting, /) -> str:
        return self.addresses.resource(resource.name)

    def secret(self, secret: Secret, /) -> str:
        return self.addresses.secret(secret.name)

    def commit(
        self, *, items: Sequence[Mapping[str, Any]] = (), enqueue: Sequence[Call] = (), result: object = None
    ) -> None:
        self.committed.extend(items)
        sending.enqueue_many(enqueue)

    def checkpoint(self, state: object, /) -> None:
        self.checkpoints.append(state)

    def progress(self, done: int, total: int) -> None:
        self.steps.append((done, total))

    def resume(self, type: type[S], /) -> S | None:
        return decode(parse(encode(self.checkpoints[-1], type)), type) if self.checkpoints else None

    def enqueue(self, job: Job[P, Any], payload: P, /, *, delay: timedelta | None = None) -> Enqueued:
        return sending.enqueue(job, payload, delay=delay)

    def enqueue_many(self, job: Job[P, Any], payloads: Any, /) -> Report:
        return sending.enqueue_many(job, payloads)

    async def aenqueue(self, job: Job[P, Any], payload: P, /, *, delay: timedelta | None = None) -> Enqueued:
        return sending.enqueue(job, payload, delay=delay)


def context(*, attempt: int = 1, time_left: timedelta = timedelta(seconds=30), tenant: str | None = None) -> JobContext:
    """A context for `job(payload, context())`; what it enqueues goes to the `jobs` fixture."""
    return _FixedContext(attempt, time_left, tenant=tenant)


@contextmanager
def memory(catalogue: Catalogue | None = None) -> Generator[Jobs]:
    """The `jobs` fixture for other frameworks and scripts: everything registered, or one catalogue."""
    registry = current()
    loaded = catalogue or Catalogue(
        tuple(registry.jobs.values()),
        tuple(registry.schedules.values()),
        tombstones=tuple(registry.tombstones.values()),
    )
    jobs = Jobs(loaded)
    backend = jobs.backend
    with sending.bound(backend.producer), reading(backend.store), telling_time(backend.clock):
        yield jobs
