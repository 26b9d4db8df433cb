"""A producer with clients and settings of its own, for programs that do not live in one environment."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from loomjobs.aws import clients
from loomjobs.aws.cipher import KmsCipher
from loomjobs.aws.connect import EnqueueLog, producer_over, utc_now
from loomjobs.aws.depths import SqsDepths
from loomjobs.aws.later import AnytimeSender
from loomjobs.aws.one_off import OneOffSchedules
from loomjobs.aws.payloads import S3Payloads
from loomjobs.aws.places import Places
from loomjobs.aws.store import DynamoStore
from loomjobs.core import names
from loomjobs.core.call import Call, CallOptions, Enqueued, Report, call
from loomjobs.core.errors import InvalidOption
from loomjobs.core.job import Job
from loomjobs.runtime import producer as runtime
from loomjobs.runtime import sending
from loomjobs.runtime.pages import Many, send_pages

if TYPE_CHECKING:
    import boto3

P = TypeVar("P")

MOST_SENDERS = 64
"""Beyond it one process has more threads than work for them: its CPU is full with far fewer."""


class Producer:
    """Sends to one environment with one session's credentials; threads, event loops and forked processes may share it.

    `env` and `app` find queues through SSM, as `LOOMJOBS_ENV` and `LOOMJOBS_APP` do, which are used where they are left
    out; `queues` gives URLs by queue name instead, and needs neither. `session` is a boto3 session: another account,
    region or role. `senders`, 1 to 64, is how many requests are under way at a time. Nothing is asked of AWS before
    the first send. `key` is the ARN of the KMS key of encrypted fields; left out, it is found as queues are. Raises
    InvalidOption.
    """

    def __init__(
        self,
        env: str | None = None,
        *,
        app: str | None = None,
        queues: Mapping[str, str] | None = None,
        session: boto3.session.Session | None = None,
        senders: int = runtime.SENDERS,
        key: str | None = None,
    ) -> None:
        if not 1 <= senders <= MOST_SENDERS:
            raise InvalidOption(f"Producer: senders={senders} is not a number from 1 to {MOST_SENDERS}")
        self._queues = dict(queues or {})
        self._given = {key: value for key, value in ((names.ENV, env), (names.APP, app)) if value is not None}
        self._session = session
        self._senders = senders
        self._key = key
        self._made: tuple[int, runtime.Producer] | None = None

    def enqueue(self, job: Job[P, Any], payload: P, /, **options: Unpack[CallOptions]) -> Enqueued:
        """As `loomjobs.enqueue`."""
        return self._producer().enqueue(call(job, payload, **options))

    @overload
    def enqueue_many(self, job: Job[P, Any], payloads: Iterable[P], /, *, tenant: str | None = ...) -> Report: ...
    @overload
    def enqueue_many(self, calls: Iterable[Call], /) -> Report: ...
    def enqueue_many(
        self, first: Job[Any, Any] | Iterable[Call], payloads: Iterable[Any] = (), /, *, tenant: str | None = None
    ) -> Report:
        """As `loomjobs.enqueue_many`."""
        return self._producer().enqueue_many(sending.calls_of(first, payloads, tenant))

    async def aenqueue(self, job: Job[P, Any], payload: P, /, **options: Unpack[CallOptions]) -> Enqueued:
        """As `loomjobs.aenqueue`."""
        return await self._producer().aenqueue(call(job, payload, **options))

    @overload
    async def aenqueue_many(self, job: Job[P, Any], payloads: Many[P], /, *, tenant: str | None = ...) -> Report: ...
    @overload
    async def aenqueue_many(self, calls: Many[Call], /) -> Report: ...
    async def aenqueue_many(
        self, first: Job[Any, Any] | Many[Call], payloads: Many[Any] = (), /, *, tenant: str | None = None
    ) -> Report:
        """As `loomjobs.aenqueue_many`."""
        send = sending.for_caller(self._producer())
        return await send_pages(send, sending.acalls_of(first, payloads, tenant))

    @contextmanager
    def bound(self) -> Generator[None]:
        """For the block, `loomjobs.enqueue` and its kin send through this producer, in this thread or task."""
        with sending.bound(self._producer()):
            yield

    def _producer(self) -> runtime.Producer:
        """Made by the process that uses it: a forked one must not share the connections of its parent."""
        if self._made is None or self._made[0] != os.getpid():
            self._made = os.getpid(), self._make()
        return self._made[1]

    def _make(self) -> runtime.Producer:
        session = self._session or clients.own_session()
        places = Places(self._variables(), ssm=lambda: clients.make("ssm", session))
        schedules = OneOffSchedules(places.later, cache(lambda: clients.make("scheduler", session)))
        sqs = clients.make("sqs", session, connections=self._senders)
        sender = AnytimeSender(sqs, places.queue, schedules, clock=utc_now)
        store = cache(lambda: DynamoStore(places.table(), client=clients.make("dynamodb", session)))
        cloudwatch = cache(lambda: clients.make("cloudwatch", session))
        depths = SqsDepths(sqs, places.queue, cloudwatch=cloudwatch, clock=utc_now)
        cipher = KmsCipher(lambda: self._key or places.key(), session=self._session)
        s3 = cache(lambda: clients.make("s3", session, connections=self._senders))
        payloads = S3Payloads(s3, places.payloads)
        return producer_over(
            sender,
            EnqueueLog(),
            store=store,
            senders=self._senders,
            depths=depths,
            cipher=cipher,
            payloads=payloads,
        )

    def _variables(self) -> Mapping[str, str]:
        urls = {names.queue_url_key(name): url for name, url in self._queues.items()}
        given = {key: os.environ[key] for key in (names.ENV, names.APP) if key in os.environ}
        return given | self._given | urls
