"""The six fields of EventBridge's cron, each read into the values it stands for.

https://docs.aws.amazon.com/scheduler/latest/UserGuide/schedule-types.html
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final, TypeAlias

MONTHS: Final[dict[str, int]] = dict(
    zip("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split(), range(1, 13), strict=True)
)
DAYS: Final[dict[str, int]] = dict(zip("SUN MON TUE WED THU FRI SAT".split(), range(1, 8), strict=True))
YEARS: Final = (1970, 2199)

DayRule: TypeAlias = Callable[[int, int], frozenset[int]]
"""From (year, month) to the days of that month that match."""


class FieldError(ValueError):
    """A field does not mean anything; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    low: int
    high: int
    names: Mapping[str, int]
    names_only: bool = False

    def values(self, text: str) -> frozenset[int]:
        """The values of a comma-separated list of values, ranges and steps."""
        found: set[int] = set()
        for part in text.split(","):
            found |= self._part(part)
        return frozenset(found)

    def _part(self, part: str) -> set[int]:
        base, slash, step_text = part.partition("/")
        step = 1
        if slash:
            if not step_text.isdecimal() or not 1 <= int(step_text) <= self.high:
                raise FieldError(f"{self.name}: the step of {part!r} is not a number from 1 to {self.high}")
            step = int(step_text)
        low, dash, high = base.partition("-")
        if base == "*":
            first, last = self.low, self.high
        elif dash:
            first, last = self.value(low), self.value(high)
            if first > last:
                raise FieldError(f"{self.name}: the range {base!r} runs backwards; write it as two, joined by a comma")
        else:
            first = self.value(base)
            last = self.high if slash else first
        return set(range(first, last + 1, step))

    def value(self, text: str) -> int:
        if text.upper() in self.names:
            return self.names[text.upper()]
        if self.names_only and text.isdecimal():
            raise FieldError(
                f"{self.name}: {text!r} is a number; 1 is Sunday here and Monday in crontab, so use a name (SUN to SAT)"
            )
        if not text.isdecimal() or not self.low <= int(text) <= self.high:
            span = f"{self.low} to {self.high}" + (f" or {next(iter(self.names))}…" if self.names else "")
            raise FieldError(f"{self.name}: {text!r} is not {span}")
        return int(text)


MINUTE: Final = Field("minutes", 0, 59, {})
HOUR: Final = Field("hours", 0, 23, {})
DAY_OF_MONTH: Final = Field("day of month", 1, 31, {})
MONTH: Final = Field("month", 1, 12, MONTHS)
DAY_OF_WEEK: Final = Field("day of week", 1, 7, DAYS, names_only=True)
YEAR: Final = Field("year", *YEARS, {})


def day_rule(day_of_month: str, day_of_week: str) -> DayRule:
    """The days of a month; exactly one of the two fields is `?`."""
    if (day_of_month == "?") == (day_of_week == "?"):
        raise FieldError("day of month, day of week: exactly one of the two must be ?")
    return _by_date(day_of_month) if day_of_week == "?" else _by_weekday(day_of_week)


def _by_date(text: str) -> DayRule:
    upper = text.upper()
    if upper == "L":
        return lambda year, month: frozenset({length(year, month)})
    if upper == "LW":
        return lambda year, month: frozenset({_nearest_weekday(year, month, length(year, month))})
    nearest = re.fullmatch(r"(\d{1,2})W", upper)
    if nearest:
        day = DAY_OF_MONTH.value(nearest[1])
        return lambda year, month: frozenset({_nearest_weekday(year, month, day)} if day <= length(year, month) else ())
    days = DAY_OF_MONTH.values(text)
    return lambda year, month: frozenset(day for day in days if day <= length(year, month))


def _by_weekday(text: str) -> DayRule:
    upper = text.upper()
    nth = re.fullmatch(r"([A-Z]{3}|\d)#(\d)", upper)
    if nth:
        weekday, count = DAY_OF_WEEK.value(nth[1]), int(nth[2])
        if not 1 <= count <= 5:
            raise FieldError(f"day of week: #{count} is not #1 to #5")
        return lambda year, month: frozenset(_weekdays(year, month, weekday)[count - 1 : count])
    last = re.fullmatch(r"([A-Z]{3}|\d)L", upper)
    if last:
        weekday = DAY_OF_WEEK.value(last[1])
        return lambda year, month: frozenset(_weekdays(year, month, weekday)[-1:])
    weekdays = DAY_OF_WEEK.values(text)
    return lambda year, month: frozenset(
        day for day in range(1, length(year, month) + 1) if _weekday(year, month, day) in weekdays
    )


def length(year: int, month: int) -> int:
    return calendar.monthrange(year, month)[1]


def _weekday(year: int, month: int, day: int) -> int:
    return date(year, month, day).isoweekday() % 7 + 1


def _weekdays(year: int, month: int, weekday: int) -> list[int]:
    return [day for day in range(1, length(year, month) + 1) if _weekday(year, month, day) == weekday]


def _nearest_weekday(year: int, month: int, day: int) -> int:
    """Monday to Friday nearest to the day, within the same month."""
    at = date(year, month, day)
    shift = {6: -1, 7: 1}.get(at.isoweekday(), 0)
    moved = at + timedelta(days=shift)
    if moved.month != month:
        moved = at - 2 * timedelta(days=shift)
    return moved.day
