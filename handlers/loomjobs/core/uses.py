"""What a job touches beside its payload: pure names here, the AWS side is in infra/resources.py under the same name."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Literal, TypeAlias

from loomjobs.core.problem import Problem, refuse

Verb: TypeAlias = Literal["read", "write", "send", "use"]
_VERBS: tuple[Verb, ...] = ("read", "write", "send", "use")


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `count` runs in each `per`, of the whole job or of each value of the payload field `key`."""

    count: int
    _: KW_ONLY
    per: timedelta
    key: str | None = None

    def __post_init__(self) -> None:
        if self.count < 1 or self.per <= timedelta(0):
            refuse([Problem("Rate", f"{self.count} per {self.per}", "Both are above zero.")])


@dataclass(frozen=True, slots=True)
class Use:
    """Something that a job declares in `uses=`."""

    name: str

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and re.fullmatch(r"[a-z][a-z0-9-]{0,39}", self.name)):
            kind = type(self).__name__
            cure = "Use up to 40 lower-case letters, digits and hyphens, starting with a letter."
            refuse([Problem(f"{kind}({self.name!r})", "not a name", cure)])


@dataclass(frozen=True, slots=True)
class Service(Use):
    """A downstream that several jobs call. It grants nothing: it is the place of their shared rate and breaker.

    - `rate`: of all jobs that use it together.
    - `breaker`: while it fails, its jobs wait unclaimed; probes and a ramp bring them back.
    - `capacity`: what it can take; the check refuses retries that may exceed it.
    """

    _: KW_ONLY
    rate: Rate | None = None
    breaker: bool = False
    capacity: Rate | None = None

    def __post_init__(self) -> None:
        super(Service, self).__post_init__()
        refuse([problem for name in ("rate", "capacity") for problem in self._wrong(name, getattr(self, name))])

    def _wrong(self, option: str, limit: object) -> list[Problem]:
        where = f"Service {self.name}"
        if limit is not None and not isinstance(limit, Rate):
            return [Problem(where, f"{option}={limit!r} is not a Rate", "Use Rate(90, per=timedelta(minutes=1)).")]
        if isinstance(limit, Rate) and limit.key is not None:
            cure = "Leave key= out: it names a field of one job's payload; the rate= of that job may have it."
            return [Problem(where, f"{option}= has key={limit.key!r}", cure)]
        return []


@dataclass(frozen=True, slots=True)
class Secret(Use):
    """A secret of Secrets Manager. Its ARN is in the worker's environment, its value only in memory: `ctx.secret`."""


@dataclass(frozen=True, slots=True)
class Setting(Use):
    """A value that differs per environment: `settings` of infra/environments.py. Synth fails where it is missing."""


@dataclass(frozen=True, slots=True)
class Access(Use):
    """The use of a resource in some ways: `Resource("statements").to("read", "write")`."""

    verbs: tuple[Verb, ...]


@dataclass(frozen=True, slots=True)
class Resource:
    """A bucket, table, topic or address that infra/resources.py provides under this name."""

    name: str

    def to(self, *verbs: Verb) -> Access:
        """Declare the ways in which a job uses it; the worker's role is granted these and no others."""
        wrong = [verb for verb in verbs if verb not in _VERBS]
        if wrong or not verbs:
            cure = f"Name one or more of {', '.join(_VERBS)}."
            refuse([Problem(f"Resource {self.name}", f".to({', '.join(map(repr, verbs))})", cure)])
        return Access(self.name, tuple(sorted(set(verbs))))
