"""The default transport of a process, from its environment variables: where queues are, and the records' table.

Needs boto3 only: a producer does not install what workers need.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache

from loomjobs.aws import clients
from loomjobs.aws.cipher import KmsCipher
from loomjobs.aws.depths import SqsDepths
from loomjobs.aws.later import AnytimeSender
from loomjobs.aws.one_off import OneOffSchedules
from loomjobs.aws.payloads import S3Payloads
from loomjobs.aws.places import Places
from loomjobs.aws.store import DynamoStore
from loomjobs.core import names
from loomjobs.core.outgoing import Outgoing
from loomjobs.core.sealed import Cipher
from loomjobs.runtime.caller import caller
from loomjobs.runtime.ports import Depths, Journal, Payloads, Sender, Silent, Store
from loomjobs.runtime.producer import SENDERS, Producer

_log = logging.getLogger("loomjobs")


def utc_now() -> datetime:
    return datetime.now(UTC)


class EnqueueLog(Silent):
    """A producer's journal: one record a message on the logger `loomjobs`, with its fields as `extra`."""

    def enqueued(self, messages: Sequence[Outgoing], /) -> None:
        if not _log.isEnabledFor(logging.INFO):
            return
        for message in messages:
            queue = message.call.job.queue.name
            fields = {"job": message.call.job.name, "id": message.id, "key": message.key, "to_queue": queue}
            about = {"tenant": message.tenant, "correlation_id": message.correlation, "trace": message.trace}
            _log.info("enqueued", extra=fields | about | {"delay": message.delay, "bytes": message.size})

    def trouble(self, what: str, /) -> None:
        _log.warning(what)


@cache
def process_producer() -> Producer:
    """The producer of this process, from its environment variables."""
    return make_producer(os.environ, EnqueueLog())


def process_sender() -> AnytimeSender:
    """What sends for this process, finding queues by its environment variables."""
    return make_sender(process_places())


def make_sender(places: Places) -> AnytimeSender:
    """For queues and, beyond what they can hold, one-off schedules that are found there."""
    return AnytimeSender(clients.sqs(), places.queue, OneOffSchedules(places.later), clock=utc_now)


def make_producer(environment: Mapping[str, str], journal: Journal) -> Producer:
    """A producer that finds queues by these variables. The scheduler's asks no queue whether it is full: its ticks are
    due."""
    places = Places(environment)
    store = cache(lambda: DynamoStore(places.table(), client=clients.dynamodb()))
    depths = SqsDepths(clients.sqs(), places.queue, cloudwatch=clients.cloudwatch, clock=utc_now)
    is_scheduler = environment.get(names.QUEUE) == names.TICKS
    return producer_over(
        make_sender(places),
        journal,
        store=store,
        depths=None if is_scheduler else depths,
        payloads=S3Payloads(clients.s3, places.payloads),
        cipher=KmsCipher(places.key),
    )


def process_cipher() -> KmsCipher:
    """What encrypts for this process, with the key of its environment."""
    return KmsCipher(process_places().key)


def producer_over(
    sender: Sender,
    journal: Journal,
    *,
    store: Callable[[], Store],
    senders: int = SENDERS,
    depths: Depths | None = None,
    cipher: Cipher | None = None,
    payloads: Payloads | None = None,
) -> Producer:
    return Producer(
        sender,
        clock=utc_now,
        token=lambda: secrets.token_hex(16),
        roll=random.random,
        journal=journal,
        pause=time.sleep,
        senders=senders,
        store=store,
        depths=depths,
        caller=caller,
        cipher=cipher,
        payloads=payloads,
    )


def process_payloads() -> S3Payloads:
    """Where this process stores payloads that go beside their messages."""
    return S3Payloads(clients.s3, Places(os.environ).payloads)


@cache
def process_store() -> DynamoStore:
    """The execution table: in a worker from its environment, elsewhere by `LOOMJOBS_ENV` through SSM."""
    return DynamoStore(process_places().table(), client=clients.dynamodb())


@cache
def process_places() -> Places:
    return Places(os.environ)


def forget() -> None:
    """Make the process's producer and store anew when next asked, over new clients."""
    process_producer.cache_clear()
    process_store.cache_clear()
    process_places.cache_clear()


os.register_at_fork(after_in_child=forget)
