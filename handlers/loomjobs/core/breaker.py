"""A Service's circuit breaker: who may call it now, and the writes between its states.

CLOSED --failures--> OPEN --recovery timeout--> HALF_OPEN, one leased probe at a time
HALF_OPEN --probes succeed--> CLOSED, ramping          HALF_OPEN --a probe fails--> OPEN, recovery timeout doubled

The item keeps the attributes and the state names of Powertools' circuit breaker, so that a circuit of Powertools named
`~breaker#<service>` on this table is the same one. `recovery_timeout`, `probe_successes` and `closed_at` are ours, and
may be missing. Powertools' times are epoch seconds, `closed_at` and every `now` are epoch milliseconds.
https://docs.aws.amazon.com/powertools/python/latest/utilities/circuit_breaker/
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from loomjobs.core import defaults
from loomjobs.core.classify import Sorting
from loomjobs.core.errors import LoomjobsError
from loomjobs.core.write import Absent, AllOf, AnyOf, Condition, Is, Item, Write

CLOSED: Final = "CLOSED"
OPEN: Final = "OPEN"
HALF_OPEN: Final = "HALF_OPEN"

SHORT_WAIT: Final = (2.0, 15.0)
"""Seconds between which a job waits that a probe or the ramp keeps out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Durations in seconds; the first three defaults are Powertools'.

    A closed circuit opens after `failure_threshold` failures in a row in one process, or when of at least
    `window_least` runs that ended in the last `window` at least `window_share` failed.
    """

    failure_threshold: int = 5
    recovery_timeout: int = 30
    success_threshold: int = 3
    longest_recovery: int = 600
    window: int = 60
    window_least: int = 20
    window_share: float = 0.5
    ramp: int = 180
    ramp_from: float = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """A stored circuit as this version reads it: what is missing, unknown or past its TTL counts as closed."""

    service: str
    state: str = CLOSED
    failures: int = 0
    opened_at: int | None = None
    owner: str = ""
    lease: int = 0
    recovery: int | None = None
    successes: int = 0
    closed_at: int = 0

    @classmethod
    def of(cls, service: str, item: Item | None, *, now: int) -> Breaker:
        if item is None or item.get("state") not in (OPEN, HALF_OPEN, CLOSED) or _is_over(item, now):
            return cls(service=service)
        return cls(
            service=service,
            state=item["state"],
            failures=item.get("failure_count", 0),
            opened_at=item.get("opened_at"),
            owner=item.get("half_open_owner", ""),
            lease=item.get("probe_lease_expiry", 0),
            recovery=item.get("recovery_timeout"),
            successes=item.get("probe_successes", 0),
            closed_at=item.get("closed_at", 0),
        )

    @property
    def id(self) -> str:
        return breaker_id(self.service)

    def reopens_in(self, now: int, policy: Policy) -> float:
        """Seconds until it lets a probe through; 0 unless it is open."""
        if self.state != OPEN:
            return 0.0
        return max(0.0, ((self.opened_at or 0) + _recovery(self, policy)) - now / 1000)


@dataclass(frozen=True, slots=True)
class Admit:
    """Go on."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Go on if `probe_write` wins: the run decides about the circuit."""


@dataclass(frozen=True, slots=True)
class Deny:
    """Not now, and nothing is written. `wait` in seconds."""

    wait: float
    why: str


Verdict: TypeAlias = Admit | Probe | Deny


def breaker_id(service: str) -> str:
    """The item's id, and the name of the circuit for Powertools."""
    return f"~breaker#{service}"


def admission(record: Breaker, now: int, roll: float, policy: Policy) -> Verdict:
    """What one job may do. `roll` is uniform in [0, 1): it draws the share of a ramp, and the jitter of a wait."""
    if record.state == CLOSED:
        share = admitted_share(record, now, policy)
        if roll < share:
            return Admit()
        return Deny(_short((roll - share) / (1 - share)), f"{record.service} recovers: {share:.0%} admitted")
    if record.state == OPEN:
        recovery = _recovery(record, policy)
        left = (((record.opened_at or 0) + recovery) * 1000 - now) / 1000
        if left <= 0:
            return Probe()
        # the whole recovery timeout is the jitter, so that a backlog comes back spread and not all at once
        return Deny(min(left, recovery) + roll * recovery, f"the circuit of {record.service} is open")
    if not record.owner or record.lease + defaults.CLOCK_SKEW <= now // 1000:
        return Probe()
    return Deny(_short(roll), f"{record.service} is being probed")


def admitted_share(record: Breaker, now: int, policy: Policy) -> float:
    """The share of jobs that a closed circuit lets through: linear from `ramp_from` at `closed_at` to 1."""
    if not record.closed_at or policy.ramp <= 0:
        return 1.0
    done = max(0, now - record.closed_at) / (policy.ramp * 1000)
    return min(1.0, policy.ramp_from + (1 - policy.ramp_from) * done)


def trip_write(record: Breaker, *, admitted: int, now: int, failures: int, policy: Policy) -> Write:
    """CLOSED → OPEN, after a run that was `admitted` then. Refused where another worker opened it first, so that the
    opening does not move, and where it has opened and closed since the run was admitted."""
    same = AnyOf(Absent("closed_at"), Is("closed_at", "<=", admitted))
    closed = AnyOf(Absent("state"), AllOf(Is("state", "=", CLOSED), same), Is("expiration", "<=", now // 1000))
    return _open_write(record, closed, now=now, failures=failures, policy=policy)


def probe_write(record: Breaker, owner: str, *, now: int, lease: int) -> Write:
    """OPEN → HALF_OPEN, or the next or a taken-over probe of HALF_OPEN. `lease` in seconds from now."""
    opened: Condition = Absent("opened_at") if record.opened_at is None else Is("opened_at", "=", record.opened_at)
    lapsed = Is("probe_lease_expiry", "<=", now // 1000 - defaults.CLOCK_SKEW)
    free = AllOf(Is("state", "=", HALF_OPEN), AnyOf(Absent("half_open_owner"), lapsed))
    return Write(
        id=record.id,
        condition=AnyOf(AllOf(Is("state", "=", OPEN), Absent("half_open_owner"), opened), free),
        sets={
            "state": HALF_OPEN,
            "half_open_owner": owner,
            "probe_lease_expiry": now // 1000 + lease,
            "expiration": _expires(now),
        },
    )


def probe_passed_write(record: Breaker, owner: str, *, now: int, policy: Policy) -> Write:
    """One more success of HALF_OPEN; the last one closes the circuit, and its instant starts the ramp."""
    successes = record.successes + 1
    if successes < policy.success_threshold:
        return _probe_end(record, owner, now, {"probe_successes": successes, "probe_lease_expiry": now // 1000})
    sets = {"state": CLOSED, "failure_count": 0, "probe_successes": 0, "closed_at": now}
    return _probe_end(record, owner, now, sets, "opened_at", "probe_lease_expiry")


def probe_failed_write(record: Breaker, owner: str, *, now: int, policy: Policy) -> Write:
    """HALF_OPEN → OPEN."""
    return _open_write(record, _probed_by(owner), now=now, failures=0, policy=policy)


def probe_left_write(record: Breaker, owner: str, *, now: int) -> Write:
    """The probe said nothing about the service: the next one is free at once, the successes so far stay."""
    return _probe_end(record, owner, now, {"probe_lease_expiry": now // 1000})


def probe_renew_write(record: Breaker, owner: str, *, now: int, lease: int) -> Write:
    """The probe lives: `lease` seconds more."""
    sets = {"probe_lease_expiry": now // 1000 + lease}
    return Write(id=record.id, condition=_probed_by(owner), sets=sets, wants_item=False)


@dataclass(frozen=True, slots=True)
class Tally:
    """The runs of one process that ended while the circuit was closed: (instant in ms, failed), oldest first."""

    runs: tuple[tuple[int, bool], ...] = ()

    def after(self, now: int, *, failed: bool, policy: Policy) -> Tally:
        """With one more run, without those that no rule needs any more."""
        kept = [run for run in self.runs if run[0] > now - policy.window * 1000]
        streak = self._streak()
        recent = kept if len(kept) > len(streak) else list(streak)
        return Tally((*recent, (now, failed))[-_MOST_RUNS:])

    def trips(self, policy: Policy) -> bool:
        streak = self._streak()
        if len(streak) >= policy.failure_threshold:
            return True
        newest = self.runs[-1][0] if self.runs else 0
        window = [failed for at, failed in self.runs if at > newest - policy.window * 1000]
        return len(window) >= policy.window_least and sum(window) >= policy.window_share * len(window)

    @property
    def failures(self) -> int:
        """Failures in a row up to now."""
        return len(self._streak())

    def _streak(self) -> tuple[tuple[int, bool], ...]:
        start = next((place for place in range(len(self.runs), 0, -1) if not self.runs[place - 1][1]), 0)
        return self.runs[start:]


def blamed(error: BaseException, sorting: Sorting, services: Collection[str]) -> str | None:
    """The service whose failure `error` is, of those that the job uses; None where it is nobody's.

    - An error (or its cause) with a text attribute `service` is that service's, whatever the error's class.
    - Otherwise a transient or throttled one is the service's when the job uses exactly one. JobTimeout is among them.
    - Never a service's: what this process or AWS did (MemoryError, SystemExit, botocore's errors, Loomjobs' own), and
      permanent and unknown errors, which say as much about the job.
    """
    for each in (error, error.__cause__):
        named = getattr(each, "service", None)
        if isinstance(named, str):
            return named if named in services else None
    if sorting.kind not in ("transient", "throttled") or len(services) != 1 or _is_ours(error):
        return None
    return next(iter(services))


_MOST_RUNS: Final = 200


def _is_ours(error: BaseException) -> bool:
    if not isinstance(error, Exception) or isinstance(error, MemoryError | LoomjobsError):
        return True
    return any(cls.__module__.partition(".")[0] == "botocore" for cls in type(error).__mro__)


def _open_write(record: Breaker, condition: Condition, *, now: int, failures: int, policy: Policy) -> Write:
    return Write(
        id=record.id,
        condition=condition,
        sets={
            "state": OPEN,
            "failure_count": failures,
            "opened_at": now // 1000,
            "recovery_timeout": _next_recovery(record, now, policy),
            "probe_successes": 0,
            "expiration": _expires(now),
        },
        removes=("half_open_owner", "probe_lease_expiry", "closed_at"),
    )


def _next_recovery(record: Breaker, now: int, policy: Policy) -> int:
    """Doubled when the service failed again before it had recovered: as a probe, or within the ramp."""
    ramping = record.state == CLOSED and admitted_share(record, now, policy) < 1
    if record.state == HALF_OPEN or ramping:
        return max(policy.recovery_timeout, min(policy.longest_recovery, 2 * _recovery(record, policy)))
    return policy.recovery_timeout


def _recovery(record: Breaker, policy: Policy) -> int:
    return policy.recovery_timeout if record.recovery is None else record.recovery


def _probe_end(record: Breaker, owner: str, now: int, sets: dict[str, Any], *removes: str) -> Write:
    return Write(
        id=record.id,
        condition=_probed_by(owner),
        sets=sets | {"expiration": _expires(now)},
        removes=("half_open_owner", *removes),
    )


def _probed_by(owner: str) -> Condition:
    return AllOf(Is("state", "=", HALF_OPEN), Is("half_open_owner", "=", owner))


def _is_over(item: Item, now: int) -> bool:
    expires = item.get("expiration")
    return isinstance(expires, int) and expires * 1000 <= now


def _expires(now: int) -> int:
    """Longer than any message can wait for the circuit."""
    return now // 1000 + defaults.SOURCE_RETENTION


def _short(roll: float) -> float:
    low, high = SHORT_WAIT
    return low + (high - low) * roll
