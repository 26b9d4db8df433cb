"""When a schedule fires: EventBridge Scheduler's expressions, checked at import and evaluated in UTC."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from loomjobs.core.cron_fields import DAYS, HOUR, MINUTE, MONTH, YEAR, DayRule, FieldError, day_rule
from loomjobs.core.problem import Problem, refuse

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SAMPLE: Final = datetime(2024, 1, 1, tzinfo=UTC)
_SAMPLES: Final = 64


@dataclass(frozen=True, slots=True)
class When:
    """A firing rule. `expression` is what EventBridge Scheduler is given."""

    expression: str
    minutes: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()
    months: frozenset[int] = frozenset()
    years: tuple[int, ...] = ()
    days: DayRule | None = None
    interval: timedelta | None = None

    def next(self, after: datetime) -> datetime | None:
        """The first firing after `after` (with a zone), in UTC; None after the last (year 2199).

        A rate has no fixed instants: EventBridge counts from the schedule's start. Here it is shown aligned to
        multiples of the interval since 1970, which is right only to within one interval.
        """
        if after.tzinfo is None:
            raise ValueError("next() needs an instant with a zone, for example datetime.now(UTC)")
        moment = after.astimezone(UTC)
        if self.interval is not None:
            return moment + self.interval - (moment - _EPOCH) % self.interval
        return next(self._from(moment), None)

    def between(self, first: datetime, last: datetime) -> Iterator[datetime]:
        """The firings after `first`, up to and including `last`."""
        at = self.next(first)
        while at is not None and at <= last:
            yield at
            at = self.next(at)

    def period(self) -> timedelta:
        """The shortest time between two firings, seen over a sample of them."""
        if self.interval is not None:
            return self.interval
        shortest, at = timedelta(days=366), self.next(_SAMPLE)
        for _ in range(_SAMPLES):
            after = self.next(at) if at is not None else None
            if at is None or after is None:
                break
            shortest, at = min(shortest, after - at), after
        return shortest

    def _from(self, moment: datetime) -> Iterator[datetime]:
        assert self.days is not None
        for year in self.years:
            if year < moment.year:
                continue
            for month in sorted(self.months):
                if (year, month) < (moment.year, moment.month):
                    continue
                for day in sorted(self.days(year, month)):
                    if (year, month, day) < (moment.year, moment.month, moment.day):
                        continue
                    for hour in self.hours:
                        for minute in self.minutes:
                            at = datetime(year, month, day, hour, minute, tzinfo=UTC)
                            if at > moment:
                                yield at


def cron(expression: str, /) -> When:
    """Six fields: minutes hours day-of-month month day-of-week year, in UTC; `?` in one of the two day fields.

    `cron("0 2 1 * ? *")` is 02:00 UTC on the first of each month. Days of the week by name. Raises DeclarationError
    with the corrected form where there is one.
    """
    where = f"cron({expression!r})"
    fields = expression.split()
    if re.search(r"\bTZ=|[A-Za-z]+/[A-Za-z]+", expression):
        cure = "Schedules are UTC only: convert the time, and mind that it then ignores daylight saving."
        refuse([Problem(where, "it names a time zone", cure)])
    if len(fields) != 6:
        refuse([Problem(where, f"it has {len(fields)} fields and not six", _converted(fields))])
    minutes, hours, day_of_month, months, day_of_week, years = fields
    found: list[Problem] = []
    if minutes == "*":
        cure = "Give the minute, such as 0, or */1 for every minute on purpose."
        found.append(Problem(where, "minutes: * fires sixty times an hour", cure))

    try:
        when = When(
            expression=f"cron({' '.join(fields)})",
            minutes=tuple(sorted(MINUTE.values(minutes))),
            hours=tuple(sorted(HOUR.values(hours))),
            months=MONTH.values(months),
            years=tuple(sorted(YEAR.values(years))),
            days=day_rule(day_of_month, day_of_week),
        )
    except FieldError as error:
        found.append(Problem(where, str(error), "Fields: minutes hours day-of-month month day-of-week year."))
        refuse(found)
        raise AssertionError from None
    if when.next(_EPOCH - timedelta(minutes=1)) is None:
        found.append(Problem(where, "it never fires", "That month has no such day."))
    refuse(found)
    return when


def every(interval: timedelta, /) -> When:
    """Every whole number of minutes, counted from the deployment. For fixed instants use `cron`."""
    minutes, rest = divmod(interval, timedelta(minutes=1))
    if rest or minutes < 1:
        cure = "EventBridge takes whole minutes, from one."
        refuse([Problem(f"every({interval})", "it is not a whole number of minutes", cure)])
    for unit, size in (("day", 1440), ("hour", 60), ("minute", 1)):
        count, left = divmod(minutes, size)
        if not left:
            return When(expression=f"rate({count} {unit}{'s' if count > 1 else ''})", interval=interval)
    raise AssertionError


def _converted(fields: list[str]) -> str:
    """A five-field crontab in EventBridge's form."""
    if len(fields) != 5:
        return 'Write minutes hours day-of-month month day-of-week year, such as cron("0 2 1 * ? *").'
    minute, hour, day, month, weekday = fields
    if weekday == "*":
        weekday = "?"
    elif day == "*":
        day, weekday = "?", re.sub(r"\d", lambda digit: list(DAYS)[int(digit[0]) % 7], weekday)
    else:
        return "crontab means either of its two day fields, EventBridge takes one: declare two schedules."
    return f'That is a crontab line; write cron("{minute} {hour} {day} {month} {weekday} *").'
