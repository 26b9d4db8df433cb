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
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from loomjobs.aws import clients
from loomjobs.aws.queues import SqsSender
from loomjobs.aws.store import DynamoStore
from loomjobs.core import names
from loomjobs.core.errors import ConfigurationError
from loomjobs.core.outgoing import Outgoing
from loomjobs.runtime.ports import Journal, Sender, Silent
from loomjobs.runtime.producer import SENDERS, Producer

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient

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
            _log.info("enqueued", extra=fields | {"delay": message.delay, "bytes": message.size})


@cache
def process_producer() -> Producer:
    """The producer of this process, from its environment variables."""
    return make_producer(os.environ, EnqueueLog())


def process_sender() -> SqsSender:
    """What sends for this process, finding queues by its environment variables."""
    return SqsSender(clients.sqs(), QueueUrls(os.environ).find)


def make_producer(environment: Mapping[str, str], journal: Journal) -> Producer:
    """A producer that finds queues by these variables."""
    return producer_over(SqsSender(clients.sqs(), QueueUrls(environment).find), journal)


def producer_over(sender: Sender, journal: Journal, *, senders: int = SENDERS) -> Producer:
    return Producer(
        sender,
        clock=utc_now,
        token=lambda: secrets.token_hex(16),
        roll=random.random,
        journal=journal,
        pause=time.sleep,
        senders=senders,
    )


class QueueUrls:
    """Queue URLs: in a worker from its environment, elsewhere from SSM by `LOOMJOBS_ENV`, each looked up once.

    `ssm` makes the client where one is needed.
    """

    def __init__(self, environment: Mapping[str, str], ssm: Callable[[], SSMClient] = clients.ssm) -> None:
        self._environment = environment
        self._ssm = ssm
        self._found: dict[str, str] = {}

    def find(self, queue: str) -> str:
        given = self._environment.get(names.queue_url_key(queue)) or self._found.get(queue)
        if given:
            return given
        if names.QUEUE in self._environment:
            raise ConfigurationError(
                f"this worker was not given queue {queue!r}: name its job in sends= of the sending job, and deploy"
            )
        return self._found.setdefault(queue, self._look_up(queue))

    def _look_up(self, queue: str) -> str:
        app = self._environment.get(names.APP, "loomjobs")
        return _parameter(names.queue_url_parameter(app, _env(self._environment), queue), self._ssm())


@cache
def process_store() -> DynamoStore:
    """The execution table: in a worker from its environment, elsewhere by `LOOMJOBS_ENV` through SSM."""
    table = os.environ.get(names.TABLE)
    if not table:
        path = names.parameter(
            os.environ.get(names.APP, "loomjobs"), _env(os.environ), "foundation", "executions", "name"
        )
        table = _parameter(path, clients.ssm())
    return DynamoStore(table, client=clients.dynamodb())


def forget() -> None:
    """Make the process's producer and store anew when next asked, over new clients."""
    process_producer.cache_clear()
    process_store.cache_clear()


os.register_at_fork(after_in_child=forget)


def _env(environment: Mapping[str, str]) -> str:
    env = environment.get(names.ENV, "")
    if not env:
        raise ConfigurationError(f"which environment? Set {names.ENV} (dev, prod, ...), or use an explicit Producer")
    return env


def _parameter(path: str, ssm: SSMClient) -> str:
    try:
        return ssm.get_parameter(Name=path)["Parameter"].get("Value", "")
    except (ClientError, BotoCoreError) as error:
        raise ConfigurationError(
            f"SSM parameter {path} cannot be read: {error}. Is the environment deployed to this account and region, "
            "and may this role call ssm:GetParameter on it?"
        ) from error
