"""Where `@job` and `schedule()` put what they declare."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from loomjobs.core.problem import Problem

if TYPE_CHECKING:
    from loomjobs.core.job import Job
    from loomjobs.core.schedule import Schedule


class Registry:
    """Jobs by name and schedules by name. Declaring checks each at once; relations between them are the check's."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job[Any, Any]] = {}
        self.schedules: dict[str, Schedule] = {}

    def clashes(self, job: Job[Any, Any]) -> list[Problem]:
        """A name that another declaration has already; executing the same one again (a reload) is none."""
        earlier = self.jobs.get(job.name)
        if earlier is None or (earlier.source, earlier.__qualname__) == (job.source, job.__qualname__):
            return []
        return [Problem(job.where, f"its name is taken by {earlier.source}", "Give one of the two another name.")]


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
