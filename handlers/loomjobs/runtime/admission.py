"""What the brakes are asked and answer, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from loomjobs.core.breaker import Breaker
from loomjobs.core.uses import Service
from loomjobs.core.work import Work

Result: TypeAlias = Literal["succeeded", "failed-by-service", "failed", "deferred", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A job that wants to start. `slot`: what its record holds, reserved by an earlier delivery (epoch ms)."""

    work: Work
    receives: int = 1
    slot: int | None = None


@dataclass(slots=True, eq=False)
class Hold:
    """What a job that may start holds. Pass it to `release` when the run has ended, however it ended."""

    work: Work
    at: int = 0
    owner: str = ""
    lock: str | None = None
    until: int = 0
    probes: dict[str, Breaker] = field(default_factory=dict[str, Breaker])
    released: bool = False


@dataclass(frozen=True, slots=True)
class Admitted:
    """Start it, and release `hold` afterwards."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class Waits:
    """Defer the message; nothing is written to its record."""

    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Slotted:
    """Its slot is at `at_ms` (epoch ms): write that to its record and defer the message until then."""

    at_ms: int
    why: str


Admission: TypeAlias = Admitted | Waits | Slotted


def services_of(work: Work) -> list[Service]:
    """The services that its job uses, each name once."""
    return list({use.name: use for use in work.job.options.uses if isinstance(use, Service)}.values())
