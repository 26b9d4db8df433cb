"""A schedule: when a job is enqueued by itself, and what for."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, TypeVar

from loomjobs.core import limits
from loomjobs.core.cron import When
from loomjobs.core.job import Job
from loomjobs.core.problem import Problem, pending, refuse
from loomjobs.core.registry import current

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Tick:
    """One firing. `at` is the scheduled instant in UTC, whatever the time is when the tick is handled."""

    schedule: str
    at: datetime


@dataclass(frozen=True, slots=True)
class MissedRuns:
    """What happens to runs that could not fire: SKIP them, run the LATEST, or `all(max=n)` of them."""

    most: int
    SKIP: ClassVar[MissedRuns]
    LATEST: ClassVar[MissedRuns]

    @staticmethod
    def all(*, max: int) -> MissedRuns:
        return MissedRuns(max)


MissedRuns.SKIP = MissedRuns(0)
MissedRuns.LATEST = MissedRuns(1)


class Overlap(Enum):
    """What happens when the previous run has not ended: SKIP this one, QUEUE it behind, or ALLOW both."""

    SKIP = "skip"
    QUEUE = "queue"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """`only` names the environments in which it is enabled; empty means all."""

    name: str
    job: Job[Any, Any]
    when: When
    payload: Callable[[Tick], Any]
    why: str
    missed: MissedRuns
    overlap: Overlap
    start: datetime | None = None
    end: datetime | None = None
    only: tuple[str, ...] = ()
    source: str = "?"

    @property
    def where(self) -> str:
        return f"schedule {self.name} ({self.source})"

    def enabled(self, environment: str) -> bool:
        return not self.only or environment in self.only


def schedule(
    job: Job[P, Any],
    when: When,
    /,
    *,
    payload: Callable[[Tick], P],
    why: str,
    missed: MissedRuns,
    overlap: Overlap,
    name: str = "",
    start: datetime | None = None,
    end: datetime | None = None,
    only: Sequence[str] = (),
) -> None:
    """Enqueue `job` at `when` (UTC), with the payload made from the scheduled instant, never from now.

    `why` says what the run is for and what a delay of an hour would mean. A job with several schedules names each.
    Raises DeclarationError with everything that is wrong.
    """
    frame = inspect.stack(0)[1]
    declared = Schedule(
        name=name or job.name,
        job=job,
        when=when,
        payload=payload,
        why=why,
        missed=missed,
        overlap=overlap,
        start=start,
        end=end,
        only=tuple(only),
        source=f"{frame.filename.rpartition('/handlers/')[2]}:{frame.lineno}",
    )
    registry = current()
    earlier = registry.schedules.get(declared.name)
    found = _problems(declared)
    if earlier is not None and earlier.source != declared.source:
        cure = "Give each schedule its own name=."
        found.append(Problem(declared.where, f"its name is taken by {earlier.source}", cure))
    refuse(found)
    registry.schedules[declared.name] = declared


def _problems(one: Schedule) -> list[Problem]:
    found: list[Problem] = []
    if not re.fullmatch(rf"[0-9A-Za-z\-_.]{{1,{limits.SCHEDULE_NAME}}}", one.name):
        cure = f"Up to {limits.SCHEDULE_NAME} letters, digits, hyphens, underscores and dots."
        found.append(Problem(one.where, f"name={one.name!r} is not a schedule name", cure))
    if len(one.why.split()) < 2:
        cure = "Say what the run is for and what a delay of an hour would mean."
        found.append(Problem(one.where, f"why={one.why!r} does not explain it", cure))
    naive = [edge for edge in (one.start, one.end) if edge is not None and edge.tzinfo is None]
    found += [Problem(one.where, f"{edge} has no time zone", "Use datetime(..., tzinfo=UTC).") for edge in naive]
    if one.missed != MissedRuns.SKIP:
        cure = "Use missed=MissedRuns.SKIP: the others are not built yet."
        found.append(pending("a missed-run policy other than SKIP", where=one.where, cure=cure))
    if one.overlap is not Overlap.ALLOW:
        cure = "Use overlap=Overlap.ALLOW: no other is built yet. The job's key already keeps one tick to one effect."
        found.append(pending("an overlap policy other than ALLOW", where=one.where, cure=cure))
    return found
