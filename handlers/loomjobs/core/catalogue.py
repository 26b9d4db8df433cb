"""The team's declarations, loaded: jobs, schedules and what was wrong on the way."""

from __future__ import annotations

import importlib
import pkgutil
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from loomjobs.core.errors import DeclarationError
from loomjobs.core.evolve import Tombstone
from loomjobs.core.job import Job
from loomjobs.core.problem import Problem
from loomjobs.core.queue import Queue
from loomjobs.core.registry import current
from loomjobs.core.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Catalogue:
    """`problems` are those of loading; `core.check` adds the relations between declarations."""

    jobs: tuple[Job[Any, Any], ...]
    schedules: tuple[Schedule, ...] = ()
    problems: tuple[Problem, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()

    def find(self, name: str) -> Job[Any, Any] | None:
        """The job of this name, or that had this name."""
        for job in self.jobs:
            if name == job.name or name in job.options.aliases:
                return job
        return None

    def grave(self, name: str) -> Tombstone | None:
        """The tombstone of the job that had this name."""
        return next((each for each in self.tombstones if each.name == name), None)

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The queues that jobs are declared on, and those that tombstones keep, in order of their names."""
        declared = {job.queue for job in self.jobs} | {grave.queue for grave in self.tombstones}
        return tuple(sorted(declared, key=lambda queue: queue.name))

    def on(self, queue: str) -> tuple[Job[Any, Any], ...]:
        return tuple(job for job in self.jobs if job.queue.name == queue)


def load(package: str, *, only: Iterable[str] | None = None) -> Catalogue:
    """Import the modules of `package` (or `only` these, by full name) and collect what they declare.

    A module that fails to import becomes a problem with its place; the others are loaded all the same.
    """
    problems: list[Problem] = []
    names = _modules(package, problems) if only is None else only
    for name in names:
        problems.extend(_import(name))
    registry = current()
    return Catalogue(
        jobs=tuple(sorted(registry.jobs.values(), key=lambda job: job.name)),
        schedules=tuple(sorted(registry.schedules.values(), key=lambda schedule: schedule.name)),
        problems=tuple(problems),
        tombstones=tuple(sorted(registry.tombstones.values(), key=lambda grave: grave.name)),
    )


def _modules(package: str, problems: list[Problem]) -> Iterator[str]:
    problems.extend(_import(package))
    root = importlib.import_module(package) if not problems else None
    if isinstance(root, ModuleType) and hasattr(root, "__path__"):
        for found in sorted(pkgutil.walk_packages(root.__path__, package + "."), key=lambda found: found.name):
            yield found.name


def _import(name: str) -> list[Problem]:
    try:
        importlib.import_module(name)
    except DeclarationError as error:
        return list(error.problems)
    except Exception as error:  # noqa: BLE001 whatever a team's module raises is a finding about that module
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{frame.filename.rpartition('/handlers/')[2]}:{frame.lineno}"
        cure = f"Make `python -c 'import {name}'` work; third-party imports belong inside the job's function."
        return [Problem(f"module {name} ({place})", f"it does not import: {type(error).__name__}: {error}", cure)]
    return []
