"""Schedules' expressions: refused at import where they could surprise, and evaluated in UTC."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomjobs.core.cron import When, cron, every
from loomjobs.core.errors import DeclarationError

START = datetime(2026, 1, 15, 12, 30, tzinfo=UTC)


def fires(when: When, count: int, after: datetime = START) -> list[str]:
    def each() -> Any:
        at = when.next(after)
        while at is not None:
            yield f"{at:%Y-%m-%d %H:%M}"
            at = when.next(at)

    return list(islice(each(), count))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 2 1 * ? *", ["2026-02-01 02:00", "2026-03-01 02:00"]),
        ("30 12 ? * MON-FRI *", ["2026-01-16 12:30", "2026-01-19 12:30"]),
        ("0/20 13 15 JAN ? 2026", ["2026-01-15 13:00", "2026-01-15 13:20", "2026-01-15 13:40"]),
        ("0 0 L * ? *", ["2026-01-31 00:00", "2026-02-28 00:00"]),
        ("0 0 LW * ? *", ["2026-01-30 00:00", "2026-02-27 00:00"]),
        ("0 0 1W * ? *", ["2026-02-02 00:00", "2026-03-02 00:00"]),
        ("0 0 31W * ? *", ["2026-01-30 00:00", "2026-03-31 00:00"]),
        ("0 0 ? * FRI#2 *", ["2026-02-13 00:00", "2026-03-13 00:00"]),
        ("0 0 ? * SUN#5 *", ["2026-03-29 00:00", "2026-05-31 00:00"]),
        ("0 0 ? * FRIL *", ["2026-01-30 00:00", "2026-02-27 00:00"]),
        ("0 0 29 2 ? *", ["2028-02-29 00:00", "2032-02-29 00:00"]),
        ("0 0 31 * ? *", ["2026-01-31 00:00", "2026-03-31 00:00"]),
        ("0 0 1 1 ? 2199", ["2199-01-01 00:00"]),
        ("0,30 0 1 jan,jul ? *", ["2026-07-01 00:00", "2026-07-01 00:30"]),
        ("*/30 * * * ? *", ["2026-01-15 13:00", "2026-01-15 13:30"]),
    ],
)
def test_an_expression_fires_as_eventbridge_documents_it(expression: str, expected: list[str]) -> None:
    assert fires(cron(expression), len(expected)) == expected


def test_the_year_2100_has_no_leap_day() -> None:
    after = datetime(2096, 3, 1, tzinfo=UTC)
    assert fires(cron("0 0 29 2 ? *"), 1, after) == ["2104-02-29 00:00"]


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("0 2 1 * *", 'write cron("0 2 1 * ? *")'),
        ("30 4 * * 1-5", 'write cron("30 4 ? * MON-FRI *")'),
        ("0 0 * * 7", 'write cron("0 0 ? * SUN *")'),
        ("0 0 1 * 1", "declare two schedules"),
        ("0 2", "has 2 fields and not six"),
        ("", "has 0 fields"),
        ("99 2 1 * ? *", "'99' is not 0 to 59"),
        ("0 25 1 * ? *", "'25' is not 0 to 23"),
        ("0 2 32 * ? *", "'32' is not 1 to 31"),
        ("0 2 0 * ? *", "'0' is not 1 to 31"),
        ("0 2 1 13 ? *", "'13' is not 1 to 12"),
        ("0 2 1 * ? 1969", "'1969' is not 1970 to 2199"),
        ("0 2 1 * MON *", "exactly one of the two must be ?"),
        ("0 2 ? * ? *", "exactly one of the two must be ?"),
        ("0 2 ? * 2 *", "use a name (SUN to SAT)"),
        ("* 2 1 * ? *", "sixty times an hour"),
        ("0 2 30 2 ? *", "it never fires"),
        ("0 2 ? * FRI#6 *", "#6 is not #1 to #5"),
        ("0 2 5-3 * ? *", "runs backwards"),
        ("0/0 2 1 * ? *", "the step of '0/0'"),
        ("0 2 1 * ? * TZ=Europe/Berlin", "it names a time zone"),
        ("TZ=UTC 0 2 1 * ? *", "it names a time zone"),
        ("0 2 1 * ? * *", "has 7 fields"),
        ("a 2 1 * ? *", "'a' is not 0 to 59"),
    ],
)
def test_an_expression_that_could_surprise_is_refused_with_advice(expression: str, what: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        cron(expression)
    assert what in str(caught.value)


def brute(when: When, after: datetime, minutes: int) -> list[datetime]:
    """A second implementation: every minute, asked one by one."""
    at = after.replace(second=0, microsecond=0)
    found = []
    for _ in range(minutes):
        at += timedelta(minutes=1)
        assert when.days is not None
        if (
            at.minute in when.minutes
            and at.hour in when.hours
            and at.month in when.months
            and at.year in when.years
            and at.day in when.days(at.year, at.month)
        ):
            found.append(at)
    return found


@settings(max_examples=40, deadline=None)
@given(
    minute=st.sampled_from(["0", "59", "*/7", "3,33", "10-20/5"]),
    hour=st.sampled_from(["*", "0", "23", "*/6", "22-23"]),
    day=st.sampled_from(["* ? ", "1 ? ", "L ? ", "15W ? ", "? SAT ", "? MON#1 ", "? SUNL ", "29-31 ? "]),
    month=st.sampled_from(["*", "2", "FEB-APR"]),
    after=st.datetimes(datetime(2023, 12, 25), datetime(2024, 3, 5), timezones=st.just(UTC)),  # noqa: DTZ001
)
def test_the_next_firing_is_the_one_that_minute_by_minute_search_finds(
    minute: str, hour: str, day: str, month: str, after: datetime
) -> None:
    dom, dow = day.split()
    when = cron(f"{minute} {hour} {dom} {month} {dow} *")
    window = 4 * 1440
    expected = brute(when, after, window)
    last = after.replace(second=0, microsecond=0) + timedelta(minutes=window)
    assert list(when.between(after, last)) == expected


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "<+0545>-05:45"])
def test_the_hosts_zone_makes_no_difference(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        around = datetime(2026, 3, 28, 12, tzinfo=UTC)
        assert fires(cron("30 2 * * ? *"), 3, around) == ["2026-03-29 02:30", "2026-03-30 02:30", "2026-03-31 02:30"]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert os.environ["TZ"]


def test_an_instant_without_zone_is_refused_and_one_of_another_zone_converted() -> None:
    with pytest.raises(ValueError, match="zone"):
        cron("0 2 1 * ? *").next(datetime(2026, 1, 1))  # noqa: DTZ001 that is the point
    local = datetime.fromisoformat("2026-02-01T03:30:00+02:00")
    assert cron("0 2 1 * ? *").next(local) == datetime(2026, 2, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("interval", "expression"),
    [
        (timedelta(minutes=1), "rate(1 minute)"),
        (timedelta(minutes=90), "rate(90 minutes)"),
        (timedelta(hours=1), "rate(1 hour)"),
        (timedelta(hours=36), "rate(36 hours)"),
        (timedelta(days=2), "rate(2 days)"),
    ],
)
def test_a_rate_is_spelled_in_its_largest_unit(interval: timedelta, expression: str) -> None:
    assert every(interval).expression == expression
    assert every(interval).period() == interval


@pytest.mark.parametrize(
    "interval", [timedelta(0), timedelta(seconds=30), timedelta(seconds=90), timedelta(minutes=-1)]
)
def test_a_rate_is_whole_minutes(interval: timedelta) -> None:
    with pytest.raises(DeclarationError, match="whole"):
        every(interval)


def test_a_period_is_the_shortest_gap() -> None:
    assert cron("*/5 * * * ? *").period() == timedelta(minutes=5)
    assert cron("0 2,3 1 * ? *").period() == timedelta(hours=1)
    assert cron("0 2 29 2 ? *").period() == timedelta(days=366)
