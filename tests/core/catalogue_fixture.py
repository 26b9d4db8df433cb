"""A small team's declarations, made fresh for each test that changes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from loomjobs.core.catalogue import Catalogue
from loomjobs.core.context import JobContext
from loomjobs.core.declare import job
from loomjobs.core.environment import Environment
from loomjobs.core.job import Job
from loomjobs.core.queue import Queue, Workload
from loomjobs.core.registry import isolated
from loomjobs.core.schedule import Schedule

BILLING = Queue("billing", workload=Workload.BULK, batch_size=10, job_timeout=timedelta(seconds=15))
MAIL = Queue("mail", workload=Workload.NEAR_REAL_TIME, batch_size=5)
LEDGER = Queue("ledger", workload=Workload.BACKGROUND, fifo=True, max_workers=2, batch_size=5)
DEV = Environment(name="dev", settings={"sender": "a@b.c"})


@dataclass(frozen=True)
class Statement:
    customer_id: str
    period: date


def run(statement: Statement, ctx: JobContext) -> None:
    """Write a statement."""


def declare(name: str, queue: Queue = BILLING, function: Callable[..., Any] = run, **options: Any) -> Job[Any, Any]:
    if queue.fifo:
        options.setdefault("group", "customer_id")
    with isolated():
        return job(name, queue=queue, key=options.pop("key", ("customer_id", "period")), **options)(function)


def catalogue(*jobs: Job[Any, Any], schedules: Sequence[Schedule] = ()) -> Catalogue:
    return Catalogue(tuple(jobs), tuple(schedules))
