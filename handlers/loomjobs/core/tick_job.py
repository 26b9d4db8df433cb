"""The built-in job behind schedules: a tick from EventBridge Scheduler becomes an ordinary job's message."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from loomjobs.core import names
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.context import JobContext
from loomjobs.core.job import Job, Options
from loomjobs.core.plan import TICKS
from loomjobs.core.problem import nearest
from loomjobs.core.schedule import Schedule, Tick
from loomjobs.core.signals import Permanent


@dataclass(frozen=True, slots=True)
class Firing:
    """The payload that Scheduler sends: which schedule, for which scheduled instant (never the time of delivery)."""

    schedule: str
    at: datetime


def with_ticks(catalogue: Catalogue) -> Catalogue:
    """The catalogue of the scheduler's worker: the team's jobs and the tick job."""
    return replace(catalogue, jobs=(*catalogue.jobs, tick_job(catalogue.schedules)))


def tick_job(schedules: Iterable[Schedule]) -> Job[Firing, None]:
    """Its identity is (schedule, scheduled instant): a tick delivered twice, or late again, enqueues once."""
    by_name = {schedule.name: schedule for schedule in schedules}

    def fire(firing: Firing, ctx: JobContext) -> None:
        schedule = by_name.get(firing.schedule)
        if schedule is None:
            raise Permanent(f"no schedule {firing.schedule!r} is declared. {nearest(firing.schedule, by_name)}")
        ctx.enqueue(schedule.job, schedule.payload(Tick(schedule.name, firing.at.astimezone(UTC))))

    sends = tuple({schedule.job.name: schedule.job for schedule in by_name.values()}.values())
    return Job(names.TICK_JOB, fire, Options(queue=TICKS, key=_identity, sends=sends), local_names={"Firing": Firing})


def _identity(firing: Firing) -> tuple[str, str]:
    return firing.schedule, firing.at.astimezone(UTC).isoformat()
