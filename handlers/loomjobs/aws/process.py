"""The worker of a queue, put together from the environment variables that its stack sets."""

from __future__ import annotations

import json
import os
import random
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial

from loomjobs.aws import clients
from loomjobs.aws.cipher import KmsCipher
from loomjobs.aws.connect import make_producer, utc_now
from loomjobs.aws.journal import PowertoolsJournal
from loomjobs.aws.payloads import S3Payloads
from loomjobs.aws.places import Places, given
from loomjobs.aws.processor import DecidingProcessor
from loomjobs.aws.pulse import beat_beside
from loomjobs.aws.queues import SqsDeadLetters, SqsMessages
from loomjobs.aws.renewals import ScheduledRenewals
from loomjobs.aws.table import ExecutionTable
from loomjobs.aws.transaction import DynamoTransactor
from loomjobs.aws.valve import MappingValve
from loomjobs.core import names
from loomjobs.core.budget import Budget
from loomjobs.core.catalogue import Catalogue, load
from loomjobs.core.errors import ConfigurationError, DeclarationError
from loomjobs.core.queue import Queue
from loomjobs.core.uses import Rate
from loomjobs.runtime.brakes import Brakes
from loomjobs.runtime.lanes import MainLane, ThreadLanes
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
        return given(self.environment, names.address_key(name))

    def setting(self, name: str, /) -> str:
        return given(self.environment, names.setting_key(name))

    def secret(self, name: str, /) -> str:
        arn = given(self.environment, names.secret_key(name))
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
    queue = given(environment, names.QUEUE)
    loaded = catalogue or worker_catalogue(environment)
    known = {job.name for job in loaded.on(queue)} | {grave.name for grave in loaded.tombstones}
    journal = PowertoolsJournal(queue=queue, jobs=frozenset(known))
    declared = _queue(loaded, queue)
    ledger = Ledger(
        ExecutionTable(given(environment, names.TABLE), client=clients.dynamodb()),
        clock=utc_now,
        ttl=int(given(environment, names.RECORD_TTL)),
    )
    brakes = Brakes(
        ledger.store, utc_now, random.random, lambda: secrets.token_hex(8), rates=_rates(environment.get(names.RATES))
    )
    worker = Worker(
        catalogue=loaded,
        ledger=ledger,
        brakes=brakes,
        letters=SqsDeadLetters(clients.sqs(), given(environment, names.DLQ_URL)),
        messages=SqsMessages(clients.sqs(), given(environment, names.SOURCE_URL), journal.trouble),
        renewals=ScheduledRenewals(environment),
        producer=make_producer(environment, journal),
        transactor=DynamoTransactor(
            given(environment, names.TABLE), environment.get(names.OUTBOX), client=clients.dynamodb()
        ),
        payloads=S3Payloads(clients.s3, Places(environment).payloads),
        addresses=EnvironmentAddresses(environment),
        journal=journal,
        lanes=ThreadLanes(declared.parallel) if declared.parallel > 1 else MainLane(Runner()),
        budget=Budget(receives=int(given(environment, names.RECEIVES))),
        clock=utc_now,
        token=lambda: secrets.token_hex(8),
        roll=random.random,
        pause=time.sleep,
        quit=partial(_quit, journal),
        pulse=beat_beside,
        valve=_valve(environment, declared),
        pace=float(environment.get(names.PACE, "1")),
        release=environment.get(names.RELEASE, ""),
        cipher=KmsCipher(Places(environment).key),
    )
    return WorkerProcess(DecidingProcessor(worker, queue=queue, longest=declared.job_timeout), journal)


def _valve(environment: Mapping[str, str], queue: Queue) -> MappingValve | None:
    """Where the Plan gave one: some job of the queue uses a breaker."""
    parameter = environment.get(names.MAPPING)
    if not parameter:
        return None
    return MappingValve(
        parameter=parameter,
        role=given(environment, names.VALVE_ROLE),
        group=given(environment, names.LATER_GROUP),
        most=queue.max_workers,
    )


def _rates(text: str | None) -> dict[str, Rate]:
    rates: dict[str, tuple[int, float]] = json.loads(text) if text else {}
    return {name: Rate(count, per=timedelta(seconds=seconds)) for name, (count, seconds) in rates.items()}


def _quit(journal: PowertoolsJournal) -> None:
    """End the process: a thread of a job that was given up on would go on in the next invocation."""
    journal.trouble("a job could not be stopped after its timeout; this process ends, and what it held is handed back")
    journal.flush()
    sys.stdout.flush()
    os._exit(1)


def deadline(remaining_ms: int) -> datetime:
    return utc_now() + timedelta(milliseconds=remaining_ms)


def worker_catalogue(environment: Mapping[str, str]) -> Catalogue:
    """The jobs of the modules that the Plan lists for this worker; raises DeclarationError with what is wrong."""
    modules = given(environment, names.MODULES).split(",")
    catalogue = load(modules[0].partition(".")[0], only=modules)
    if catalogue.problems:
        raise DeclarationError(catalogue.problems)
    return catalogue


def _queue(catalogue: Catalogue, name: str) -> Queue:
    for queue in catalogue.queues:
        if queue.name == name:
            return queue
    raise ConfigurationError(f"no module of this worker declares a job on queue {name!r}")
