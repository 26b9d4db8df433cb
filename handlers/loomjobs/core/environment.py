"""An environment as data: where it is deployed and how large. The instances are in infra/environments.py."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from loomjobs.core.problem import Problem, refuse
from loomjobs.core.uses import Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A VPC that exists already, by its ids."""

    vpc: str
    subnets: tuple[str, ...]
    availability_zones: tuple[str, ...]
    security_groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One deployment of the system.

    - `account`, `region`: None takes those of the CLI's profile at deploy.
    - `retain`: keep queues, tables and buckets when a stack is deleted, and protect the tables from deletion.
    - `log_level`: DEBUG also logs the start of every job; elsewhere the records know what never ended.
    - `log_retention_days`: one of CloudWatch's values, such as 30 or 365.
    - `alarm_email`: where alarms go; None sends them to the topic only.
    - `settings`: values of `Setting` and of resources that another team owns, by name.
    - `rates`: of a `Service` by its name, in place of the declared one: a test system takes less than production.
    - `pace`: factor on retry waits; below 1 only where nobody waits for a real downstream (local).
    - `outbox`: producers outside of the workers put calls into the outbox (`outbox_item`), so there is one in any case,
      and its relay may send to every queue.
    - `python`, `architecture`: of the Lambda functions. `host` builds for the machine at hand (the embedded AWS).
    """

    name: str
    app: str = "loomjobs"
    account: str | None = None
    region: str | None = None
    retain: bool = True
    log_level: Literal["DEBUG", "INFO", "WARNING"] = "INFO"
    log_retention_days: int = 30
    alarm_email: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    networks: Mapping[str, Network] = field(default_factory=dict[str, Network])
    rates: Mapping[str, Rate] = field(default_factory=dict[str, Rate])
    pace: float = 1.0
    python: str = "3.13"
    architecture: str = "arm64"
    local: bool = False
    outbox: bool = False

    def __post_init__(self) -> None:
        names = [name for name in (self.name, self.app) if not re.fullmatch(r"[a-z][a-z0-9-]{0,19}", name)]
        cure = "Use up to 20 lower-case letters, digits and hyphens, starting with a letter."
        found = [Problem(f"environment {self.name}", f"{name!r} is not a name", cure) for name in names]
        if not 0 < self.pace <= 1:
            found.append(Problem(f"environment {self.name}", f"pace={self.pace}", "Use a factor above 0, up to 1."))
        keyed = [name for name, rate in self.rates.items() if rate.key is not None]
        cure = "A service's rate is one for all; leave key= out."
        found += [Problem(f"environment {self.name}", f"the rate of {name} has a key", cure) for name in keyed]
        refuse(found)
