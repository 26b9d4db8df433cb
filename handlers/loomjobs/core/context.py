"""What a job can ask of its run."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from loomjobs.core.call import Enqueued, Report
    from loomjobs.core.job import Job
    from loomjobs.core.uses import Resource, Secret, Setting

P = TypeVar("P")


class JobContext(Protocol):
    """The second argument of every job. In tests, `loomjobs.testing.context` makes one."""

    @property
    def id(self) -> str:
        """The id given at enqueue: the same for every delivery and attempt."""
        ...

    @property
    def key(self) -> str:
        """The idempotency key of this job among all of its kind."""
        ...

    @property
    def attempt(self) -> int:
        """1 on the first run; counts failures and proven crashes, not deliveries."""
        ...

    @property
    def idempotency_key(self) -> str:
        """One text for job and key, at most 64 URL-safe characters, to pass to providers that honour such keys."""
        ...

    @property
    def trace(self) -> str | None:
        """The W3C traceparent of the enqueuing request, when it sent one."""
        ...

    @property
    def deadline(self) -> datetime | None:
        """Until when the job is worth doing, UTC: the `expires` of its envelope, or none."""
        ...

    @property
    def time_left(self) -> timedelta:
        """Until this run is stopped by its timeout, never negative."""
        ...

    def address(self, resource: Resource | Setting, /) -> str:
        """Bucket or table name, URL, or the setting's value. It must be declared in `uses=`."""
        ...

    def secret(self, secret: Secret, /) -> str:
        """The secret's current text, fetched once per process and some minutes. It must be declared in `uses=`."""
        ...

    def enqueue(self, job: Job[P, Any], payload: P, /, *, delay: timedelta | None = None) -> Enqueued:
        """Send a job that `sends=` declares; the trace goes along."""
        ...

    def enqueue_many(self, job: Job[P, Any], payloads: Iterable[P], /) -> Report:
        """Send many, in as few requests as SQS allows; raises NotSent or UnknownOutcome with those that failed."""
        ...

    async def aenqueue(self, job: Job[P, Any], payload: P, /, *, delay: timedelta | None = None) -> Enqueued:
        """`enqueue` for `async def` jobs; the event loop stays free meanwhile."""
        ...
