"""Payloads and jobs that change: old payloads are lifted to the job's version, and removed jobs leave a tombstone."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from loomjobs.core.errors import BadPayload
from loomjobs.core.job_name import check_job_name
from loomjobs.core.problem import Problem, refuse
from loomjobs.core.queue import Queue
from loomjobs.core.registry import current

Upcaster: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes the decoded JSON object of one version, and returns the next version's."""


def upcast(payload: object, version: int, upcasters: Mapping[int, Upcaster], *, to: int) -> object:
    """The payload at version `to`; the one that is passed stays as it is. Raises BadPayload naming the step.

    A job without upcasters reads old payloads as they are: additions with a default need none.
    """
    if not upcasters or version >= to:
        return payload
    lifted: Any = copy.deepcopy(payload)
    for step in range(version, to):
        if not isinstance(lifted, dict):
            raise BadPayload("$", f"the upcaster of version {step} takes an object, and got {type(lifted).__name__}")
        lifted = _step(lifted, step, upcasters[step])
    return lifted


def upcaster_problems(upcasters: Mapping[int, Upcaster], version: int, where: str) -> Iterator[Problem]:
    """One function for every version before the job's own, and nothing else."""
    if not isinstance(upcasters, Mapping):
        yield Problem(where, f"upcasters={upcasters!r} is not a mapping", "Write upcasters={1: one_to_two}.")
        return
    if not upcasters:
        return
    for step, function in upcasters.items():
        if not isinstance(step, int) or isinstance(step, bool) or step < 1:
            yield Problem(where, f"upcasters= has the step {step!r}", "A step is the old version, a number from 1.")
        elif step >= version:
            cure = f"Raise version= to {step + 1}, or remove the step."
            yield Problem(where, f"upcasters= has a step from version {step}, and the job is at {version}", cure)
        if not callable(function):
            cure = "Give a function that takes the old payload, a dict, and returns the new one."
            yield Problem(where, f"the upcaster of version {step!r} is {function!r}, which is no function", cure)
    for step in range(1, version):
        if step not in upcasters:
            cure = f"Add {step}: a function from version {step} to {step + 1}."
            yield Problem(where, f"upcasters= has no step from version {step}", cure)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A job that was removed while messages of it may still be on their way. `module` declares it."""

    name: str
    queue: Queue
    why: str
    module: str
    source: str

    @property
    def where(self) -> str:
        return f"tombstone {self.name} ({self.source})"


def tombstone(name: str, *, queue: Queue, why: str) -> None:
    """Say that a job was removed: its messages are acknowledged as `removed`, and logged with `why`, never run.

    `queue` is the one it was on, whose worker stays for it. Remove the tombstone when the queue and its dead-letter
    queue cannot hold such messages any more. Raises DeclarationError when the name is taken by a job, also as an alias.
    """
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] the documented way to a caller's names
    place = f"{frame.f_code.co_filename.rpartition('/handlers/')[2]}:{frame.f_lineno}"
    grave = Tombstone(name, queue, why, frame.f_globals.get("__name__", "?"), place)
    registry = current()
    refuse([*_problems(grave), *registry.grave_clashes(grave)])
    registry.tombstones[name] = grave


def _problems(grave: Tombstone) -> Iterator[Problem]:
    advice = check_job_name(grave.name)
    if advice:
        yield Problem(grave.where, f"{grave.name!r} is not a job name", advice)
    if not isinstance(grave.queue, Queue):
        yield Problem(grave.where, f"queue={grave.queue!r}", "Give the Queue that the job was on.")
    if not isinstance(grave.why, str) or not grave.why.strip():
        yield Problem(grave.where, "why= is empty", 'Say what became of it, such as why="replaced by billing.post".')


def _step(payload: dict[str, Any], step: int, upcaster: Upcaster) -> object:
    name = f"the upcaster from version {step} to {step + 1} ({getattr(upcaster, '__name__', 'function')})"
    try:
        lifted = upcaster(payload)
    except Exception as error:
        raise BadPayload("$", f"{name} raised {type(error).__name__}") from error
    if not isinstance(lifted, dict):
        raise BadPayload("$", f"{name} returned {type(lifted).__name__}; return the new payload, a dict")
    return lifted
