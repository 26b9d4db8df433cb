"""What a queue's policy decides by a reading."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomjobs.core.admit import Admit
from loomjobs.core.backpressure import LONGEST, Accept, Delay, Reject, Verdict, is_fresh, is_usable, judge, unread
from loomjobs.core.call import Report
from loomjobs.core.errors import LoomjobsError, NotSent, QueueFull
from loomjobs.core.reading import Reading

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEN = timedelta(seconds=10)
POLICY = Admit(depth=100, on_error="open")


def reading(visible: int = 0, in_flight: int = 0, delayed: int = 0, **more: Any) -> Reading:
    return Reading(**{"visible": visible, "in_flight": in_flight, "delayed": delayed, "at": NOW} | more)


def verdict(read: Reading, policy: Admit = POLICY, *, own: int = 0, roll: float = 0.0, **more: Any) -> Verdict:
    return judge(policy, read, own=own, now=NOW + timedelta(seconds=3), roll=roll, **more)


def refused(*args: Any, **more: Any) -> Reject:
    found = verdict(*args, **more)
    assert isinstance(found, Reject)
    return found


def test_depth_is_what_is_visible_in_flight_and_delayed() -> None:
    """B069: 0 visible, 5,000 not visible, 3,000 delayed are 8,000."""
    found = refused(reading(0, 5_000, 3_000), Admit(depth=8_000, on_error="open"))
    assert (
        found.reason == "8,000 messages of at most 8,000 (0 visible, 5,000 in flight, 3,000 delayed; counted 3 s ago)"
    )
    assert verdict(reading(0, 5_000, 3_000), Admit(depth=8_001, on_error="open")) == Accept()


def test_what_was_sent_since_the_reading_counts() -> None:
    assert verdict(reading(90), own=9) == Accept()
    assert refused(reading(90), own=10).reason.endswith("counted 3 s ago, and 10 sent since)")


def test_a_full_queue_may_delay_instead() -> None:
    policy = Admit(depth=100, full="delay", delay=timedelta(minutes=5), on_error="open")
    assert verdict(reading(100), policy) == Delay(timedelta(minutes=5))
    assert verdict(reading(99), policy) == Accept()


@pytest.mark.parametrize(
    ("minutes", "visible", "full"), [(29, 1, False), (30, 1, True), (None, 1, False), (45, 0, False)]
)
def test_age_fills_a_queue_that_holds_anything(minutes: int | None, visible: int, full: bool) -> None:
    """CloudWatch is minutes behind: of an empty queue it may still report the age of what is gone. None is what it says
    of a queue that was idle: taken for an error, that would close such a queue for ever."""
    policy = Admit(age=timedelta(minutes=30), on_error="closed")
    age = None if minutes is None else timedelta(minutes=minutes)
    assert isinstance(verdict(reading(visible, age=age), policy), Reject) is full


def test_the_wait_is_until_the_queue_has_drained_to_its_limit() -> None:
    before = reading(600, at=NOW - TEN)  # 10 a second since
    assert refused(reading(500), before=before).retry_after == timedelta(seconds=40.1)


@pytest.mark.parametrize("before", [None, 90, 100, 500], ids=["unknown", "growing", "standing", "nearly there"])
def test_the_wait_is_never_shorter_than_a_reading_serves(before: int | None) -> None:
    earlier = None if before is None else reading(before, at=NOW - TEN)
    assert refused(reading(100), before=earlier).retry_after == TEN


def test_without_a_reading_the_policy_decides() -> None:
    assert unread(POLICY, "denied", roll=0.0) == Accept()
    closed = unread(Admit(depth=100, on_error="closed"), "denied", roll=0.5)
    assert isinstance(closed, Reject)
    assert (closed.retry_after, closed.reading) == (timedelta(seconds=15), None)
    assert "(denied), and on_error='closed'" in closed.reason
    delaying = Admit(depth=100, full="delay", delay=TEN, on_error="closed")
    assert unread(delaying, "denied", roll=0.0) == Delay(TEN)


@pytest.mark.parametrize(
    ("seconds", "fresh", "usable"), [(0, 1, 1), (9, 1, 1), (10, 0, 1), (29, 0, 1), (30, 0, 0), (-1, 0, 0)]
)
def test_a_reading_serves_for_a_while_and_no_longer(seconds: int, fresh: int, usable: int) -> None:
    """Before zero, the clock was set back."""
    now = NOW + timedelta(seconds=seconds)
    assert (is_fresh(POLICY, reading(), now), is_usable(POLICY, reading(), now)) == (fresh, usable)
    assert not is_usable(POLICY, None, now)


counts = st.integers(0, 10**7)


@given(
    limit=st.integers(1, 10**7),
    counted=st.tuples(counts, counts, counts),
    own=counts,
    before=st.none() | st.tuples(counts, st.integers(1, 10**5)),
    refresh=st.integers(1, 300),
    roll=st.floats(0, 1, exclude_max=True),
)
def test_for_any_numbers_full_is_at_the_limit_and_the_wait_is_bounded(
    limit: int,
    counted: tuple[int, int, int],
    own: int,
    before: tuple[int, int] | None,
    refresh: int,
    roll: float,
) -> None:
    policy = Admit(depth=limit, refresh=timedelta(seconds=refresh), on_error="open")
    earlier = before and reading(before[0], at=NOW - timedelta(seconds=before[1]))
    found = verdict(reading(*counted), policy, own=own, roll=roll, before=earlier)
    assert isinstance(found, Reject) == (sum(counted) + own >= limit)
    if isinstance(found, Reject):
        assert policy.refresh <= found.retry_after <= 2 * LONGEST


def test_the_error_says_what_where_and_what_to_do() -> None:
    rejection = refused(reading(200), roll=0.5)
    error = QueueFull(Report(accepted=3), "imports", rejection)
    assert isinstance(error, NotSent)
    assert (error.queue, error.reading, error.retry_after) == ("imports", reading(200), timedelta(seconds=15))
    text = str(error)
    assert text.startswith("3 accepted: queue imports is full: 200 messages of at most 100 (200 visible")
    assert text.endswith("Send again after 15 s, shed the work, or raise admit= of the queue")
    assert error.within(Report(accepted=7)).report.accepted == 7
    assert isinstance(error, LoomjobsError)
