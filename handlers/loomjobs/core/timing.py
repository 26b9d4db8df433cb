"""When a call is due, and until when it is worth starting."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any

from loomjobs.core import limits
from loomjobs.core.errors import InvalidOption
from loomjobs.core.job import Job

if TYPE_CHECKING:
    from loomjobs.core.call import Call

FOREVER = timedelta(days=3650)
"""Longest `delay=` and `expires=`."""


def checked_delay(job: Job[Any, Any], delay: timedelta | None, at: datetime | None) -> int:
    """Whole seconds. Raises InvalidOption."""
    if delay is None:
        return 0
    if at is not None:
        raise InvalidOption(f"{job.name}: delay= and at= both say when; give one of them")
    seconds = delay.total_seconds()
    if seconds < 0 or seconds != int(seconds) or delay > FOREVER:
        raise InvalidOption(f"{job.name}: delay={delay} is not a whole number of seconds from 0 to {FOREVER.days} days")
    if job.queue.fifo and 0 < seconds <= limits.SQS_DELAY_SECONDS:
        raise InvalidOption(
            f"{job.name}: SQS has no delay per message on FIFO queue {job.queue.name}. Leave delay= out, or use at= or "
            "more than 15 minutes: a one-off schedule keeps those, to the minute."
        )
    return int(seconds)


def checked_at(job: Job[Any, Any], at: datetime | None) -> datetime | None:
    """UTC. Raises InvalidOption."""
    if at is None:
        return None
    if at.tzinfo is None:
        cure = "Use a datetime with a zone, such as datetime.now(UTC) + ..."
        raise InvalidOption(f"{job.name}: at={at.isoformat()} has no time zone. {cure}")
    return at.astimezone(UTC)


def checked_expires(job: Job[Any, Any], given: timedelta | datetime | None) -> timedelta | datetime | None:
    """The call's, or the job's where it has none. Raises InvalidOption."""
    value = job.options.expires if given is None else given
    if value is None:
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            cure = "Use a datetime with a zone, such as datetime.now(UTC) + ..., or a timedelta."
            raise InvalidOption(f"{job.name}: expires={value.isoformat()} has no time zone. {cure}")
        return value.astimezone(UTC)
    if not isinstance(value, timedelta):
        raise InvalidOption(f"{job.name}: expires={value!r}; give a timedelta, or a datetime with a zone")
    if value > FOREVER:
        raise InvalidOption(f"{job.name}: expires={value} is over {FOREVER.days} days; leave it out for no limit")
    if value <= timedelta(0):
        raise InvalidOption(f"{job.name}: expires={value} is over before it could run. Give a longer one.")
    return value


def wait(one: Call, now: datetime) -> int:
    """Seconds from `now` until the call is due, rounded up; 0 where that is over. Raises InvalidOption."""
    if one.at is None:
        return one.delay
    ahead = one.at - now
    if ahead > FOREVER:
        raise InvalidOption(f"{one.job.name}: at={one.at.isoformat()} is more than {FOREVER.days} days ahead")
    return max(0, ceil(ahead.total_seconds()))


def expiry(one: Call, due: datetime) -> datetime | None:
    """The deadline of a call that is `due` then, UTC; a timedelta counts from there. Raises InvalidOption for an
    instant that is over by then."""
    if one.expires is None:
        return None
    if isinstance(one.expires, timedelta):
        return due + one.expires
    if one.expires <= due:
        raise InvalidOption(
            f"{one.job.name}: expires={one.expires.isoformat()} is over before it could run (it is due "
            f"{due.isoformat(timespec='seconds')}). Give a later instant, or do not send it."
        )
    return one.expires
