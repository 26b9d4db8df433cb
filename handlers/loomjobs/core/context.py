"""What a job can ask of its run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from loomjobs.core.call import Call, Enqueued, Report
    from loomjobs.core.job import Job
    from loomjobs.core.uses import Resource, Secret, Setting

P = TypeVar("P")
S = TypeVar("S")


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
    def correlation_id(self) -> str | None:
        """The caller's, when it had one; it is in the log lines of this run, and what this job sends inherits it."""
        ...

    @property
    def tenant(self) -> str | None:
        """On whose behalf, when the enqueue said so; what this job sends inherits it."""
        ...

    @property
    def deadline(self) -> datetime | None:
        """Until when the job is worth doing, UTC: the `expires` of its envelope, or none."""
        ...

    @property
    def cancelled(self) -> bool:
        """Somebody asked to cancel this job while it runs. Read from the record, at most every few seconds."""
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

    def checkpoint(self, state: object, /) -> None:
        """Keep how far it came: durable when this returns. JSON values, dataclasses and the like, up to about 300 KB.

        Raises BadPayload for a state that cannot be kept, LostClaim where another worker has taken the job over.
        """
        ...

    def resume(self, type: type[S], /) -> S | None:
        """The last checkpoint, decoded as strictly as a payload; None in a first run. Raises BadPayload."""
        ...

    def progress(self, done: int, total: int) -> None:
        """Say how far it has come, for `status(...)` and `loomjobs status`: written every two seconds at most, and when
        `done` is `total`. Raises InvalidOption unless 0 <= done <= total, LostClaim as `checkpoint` does."""
        ...

    def commit(
        self, *, items: Sequence[Mapping[str, Any]] = (), enqueue: Sequence[Call] = (), result: object = None
    ) -> None:
        """Write to DynamoDB, send jobs and complete this one in a single transaction: all of it happens once, or none.

        - `items`: as for boto3's `client.transact_write_items`, such as `{"Put": {"TableName": ..., "Item": ...}}`; at
          most 100 actions and 4 MB with the rest. The rights come from a `Resource` in `uses=`.
        - `enqueue`: calls of jobs in `sends=`; they are sent within seconds of the commit, through the outbox.
        - `result`: what the job returns, since a commit completes it: what it does or raises later changes nothing.

        Raises CommitRefused where a condition of an item does not hold, CommitTooLarge, InvalidCommit, LostClaim where
        another worker has taken the job over, PayloadError where a call's large payload could not be stored before.
        """
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
