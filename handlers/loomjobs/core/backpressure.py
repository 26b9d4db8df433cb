"""Whether a queue takes more: its policy, what was read of it, and what is decided, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from loomjobs.core.admit import Admit
from loomjobs.core.reading import Reading

LONGEST: Final = timedelta(minutes=15)
"""The longest wait, before its jitter: further on, what two counts say of a rate is a guess."""


@dataclass(frozen=True, slots=True)
class Accept:
    """Send it."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Send it so that it arrives no sooner than after `by`."""

    by: timedelta


@dataclass(frozen=True, slots=True)
class Reject:
    """Do not send it; it is worth another try after `retry_after`. `reading` is None where nothing was known."""

    retry_after: timedelta
    reason: str
    reading: Reading | None = None


Verdict: TypeAlias = Accept | Delay | Reject


def is_fresh(policy: Admit, reading: Reading | None, now: datetime) -> bool:
    """It needs no new one. One from the future was read before the clock was set back, and says nothing."""
    return reading is not None and timedelta(0) <= now - reading.at < policy.refresh


def is_usable(policy: Admit, reading: Reading | None, now: datetime) -> bool:
    """It may decide while a new one is on its way, or could not be had."""
    return reading is not None and timedelta(0) <= now - reading.at < 3 * policy.refresh


def judge(
    policy: Admit, reading: Reading, *, own: int, now: datetime, roll: float, before: Reading | None = None
) -> Verdict:
    """By depth and `own`, which is what this process has sent since; then by age, which an empty queue does not have,
    whatever CloudWatch still says.

    `before` is the reading before, for the rate at which the queue drains. `roll` is uniform in [0, 1).
    """
    depth, limit = reading.depth + own, policy.depth
    since = (now - reading.at).total_seconds()
    if limit is not None and depth >= limit:
        wait = _drained(policy, reading, before, excess=depth - limit + 1)
        sent = f", and {own:,} sent since" if own else ""
        reason = f"{depth:,} messages of at most {limit:,} ({reading}; counted {since:.0f} s ago{sent})"
        return _full(policy, wait, reason, reading, roll)
    if policy.age is not None and reading.age is not None and reading.age >= policy.age and reading.depth:
        reason = f"its oldest message is {reading.age} old, of at most {policy.age} ({reading})"
        return _full(policy, max(policy.refresh, timedelta(minutes=1)), reason, reading, roll)
    return Accept()


def unread(policy: Admit, why: str, *, roll: float) -> Verdict:
    """Where there is no reading that may decide."""
    if policy.on_error == "open":
        return Accept()
    return _full(policy, policy.refresh, f"how full it is could not be read ({why}), and on_error='closed'", None, roll)


def _full(policy: Admit, wait: timedelta, reason: str, reading: Reading | None, roll: float) -> Verdict:
    """The jitter comes on top, up to the same time again: those who were refused together do not return together."""
    if policy.full == "delay":
        assert policy.delay is not None
        return Delay(policy.delay)
    return Reject(timedelta(seconds=round(wait.total_seconds() * (1 + roll), 1)), reason, reading)


def _drained(policy: Admit, reading: Reading, before: Reading | None, *, excess: int) -> timedelta:
    """When there is room, if it goes on falling as between the two readings; the next reading where it does not.

    Never before the next reading, since nothing changes the verdict until then.
    """
    if before is None or before.depth <= reading.depth or before.at >= reading.at:
        return policy.refresh
    seconds = excess * (reading.at - before.at).total_seconds() / (before.depth - reading.depth)
    return max(policy.refresh, timedelta(seconds=min(seconds, LONGEST.total_seconds())))
