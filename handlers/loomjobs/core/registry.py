"""Where `@job` and `schedule()` put what they declare."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from loomjobs.core.problem import Problem

if TYPE_CHECKING:
    from loomjobs.core.evolve import Tombstone
    from loomjobs.core.job import Job
    from loomjobs.core.schedule import Schedule


class Registry:
    """Jobs, schedules and tombstones by name. Declaring checks each at once; relations between them are the check's."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job[Any, Any]] = {}
        self.schedules: dict[str, Schedule] = {}
        self.tombstones: dict[str, Tombstone] = {}

    def clashes(self, job: Job[Any, Any]) -> list[Problem]:
        """A name that another declaration has already; executing the same one again (a reload) is none."""
        graves = [self.tombstones[name] for name in (job.name, *job.options.aliases) if name in self.tombstones]
        found = [_buried(job, grave) for grave in graves]
        earlier = self.jobs.get(job.name)
        if earlier is None or (earlier.source, earlier.__qualname__) == (job.source, job.__qualname__):
            return found
        return [
            Problem(job.where, f"its name is taken by {earlier.source}", "Give one of the two another name."),
            *found,
        ]

    def grave_clashes(self, grave: Tombstone) -> list[Problem]:
        """The same for a tombstone: a job that has its name, or had it, and another tombstone."""
        found = [_buried(job, grave) for job in self.jobs.values() if grave.name in (job.name, *job.options.aliases)]
        earlier = self.tombstones.get(grave.name)
        if earlier is not None and earlier.source != grave.source:
            found.append(Problem(grave.where, f"its name has a tombstone at {earlier.source}", "Keep one of the two."))
        return found


def _buried(job: Job[Any, Any], grave: Tombstone) -> Problem:
    cure = "Remove the tombstone while a job answers to the name, or give the job another one."
    return Problem(job.where, f"the name {grave.name} has a tombstone at {grave.source}", cure)


def current() -> Registry:
    """The registry of this context: the process-wide one unless `isolated` is active."""
    return _current.get()


@contextmanager
def isolated() -> Generator[Registry]:
    """A fresh registry for the block: for tests and tools that load a catalogue beside the process's own."""
    registry = Registry()
    token = _current.set(registry)
    try:
        yield registry
    finally:
        _current.reset(token)


_current: ContextVar[Registry] = ContextVar("registry", default=Registry())  # noqa: B039 one registry a process is meant
