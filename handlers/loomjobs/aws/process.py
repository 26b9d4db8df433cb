"""The worker of a queue, put together from the environment variables that its stack sets."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache

from loomjobs.aws import clients
from loomjobs.aws.connect import make_producer, utc_now
from loomjobs.aws.journal import PowertoolsJournal
from loomjobs.aws.processor import DecidingProcessor
from loomjobs.aws.queues import SqsDeadLetters, Visibilities
from loomjobs.aws.table import ExecutionTable
from loomjobs.core import names
from loomjobs.core.catalogue import Catalogue, load
from loomjobs.core.errors import ConfigurationError, DeclarationError
from loomjobs.core.queue import Queue
from loomjobs.runtime.ledger import Ledger
from loomjobs.runtime.runner import Runner
from loomjobs.runtime.worker import Worker

SECRET_SECONDS = 300
"""How long a fetched secret is used before it is fetched again, so that a rotation arrives."""


@dataclass(frozen=True, slots=True)
class EnvironmentAddresses:
    """Implements the runtime's Addresses from a worker's environment variables."""

    environment: Mapping[str, str]

    def resource(self, name: str, /) -> str:
        return _given(self.environment, names.address_key(name))

    def setting(self, name: str, /) -> str:
        return _given(self.environment, names.setting_key(name))

    def secret(self, name: str, /) -> str:
        arn = _given(self.environment, names.secret_key(name))
        return _secret(arn, int(time.monotonic() // SECRET_SECONDS))


@cache
def _secret(arn: str, _window: int) -> str:
    """Fetched once per time window. A failure is the job's failure: it is sorted by its AWS code."""
    return str(clients.secrets().get_secret_value(SecretId=arn)["SecretString"])


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """What `handler` keeps between invocations."""

    processor: DecidingProcessor
    journal: PowertoolsJournal


def worker_process(environment: Mapping[str, str], catalogue: Catalogue | None = None) -> WorkerProcess:
    """The worker of one queue. Raises ConfigurationError or DeclarationError, which Lambda reports at init."""
    queue = _given(environment, names.QUEUE)
    loaded = catalogue or worker_catalogue(environment)
    journal = PowertoolsJournal(queue=queue, jobs=frozenset(job.name for job in loaded.on(queue)))
    worker = Worker(
        catalogue=loaded,
        ledger=Ledger(
            ExecutionTable(_given(environment, names.TABLE), client=clients.dynamodb()),
            clock=utc_now,
            ttl=int(_given(environment, names.RECORD_TTL)),
        ),
        letters=SqsDeadLetters(clients.sqs(), _given(environment, names.DLQ_URL)),
        producer=make_producer(environment, journal),
        addresses=EnvironmentAddresses(environment),
        journal=journal,
        runner=Runner(),
        clock=utc_now,
        token=lambda: secrets.token_hex(8),
        roll=random.random,
        pace=float(environment.get(names.PACE, "1")),
        release=environment.get(names.RELEASE, ""),
    )
    visibilities = Visibilities(clients.sqs(), _given(environment, names.SOURCE_URL), journal.trouble)
    longest = _queue(loaded, queue).job_timeout
    return WorkerProcess(DecidingProcessor(worker, visibilities, queue=queue, longest=longest), journal)


def deadline(remaining_ms: int) -> datetime:
    return utc_now() + timedelta(milliseconds=remaining_ms)


def worker_catalogue(environment: Mapping[str, str]) -> Catalogue:
    """The jobs of the modules that the Plan lists for this worker; raises DeclarationError with what is wrong."""
    modules = _given(environment, names.MODULES).split(",")
    catalogue = load(modules[0].partition(".")[0], only=modules)
    if catalogue.problems:
        raise DeclarationError(catalogue.problems)
    return catalogue


def _queue(catalogue: Catalogue, name: str) -> Queue:
    for job in catalogue.on(name):
        return job.queue
    raise ConfigurationError(f"no module of this worker declares a job on queue {name!r}")


def _given(environment: Mapping[str, str], key: str) -> str:
    value = environment.get(key, "")
    if not value:
        raise ConfigurationError(f"the environment variable {key} is missing; the stack of this worker sets it")
    return value
