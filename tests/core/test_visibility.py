"""Visibility timeouts stay within SQS's limits whatever is asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from loomjobs.core.delivery import Delivery
from loomjobs.core.visibility import visibility_timeout

RECEIVED = datetime(2026, 1, 1, tzinfo=UTC)
DELIVERY = Delivery(
    message_id="m", body="", receipt="r", queue="q", sent_at=RECEIVED, received_at=RECEIVED, receives=40
)


@given(seconds=st.floats(-1e12, 1e12), elapsed=st.integers(-10, 60_000))
def test_a_visibility_is_a_whole_number_within_what_is_left_of_twelve_hours(seconds: float, elapsed: int) -> None:
    value = visibility_timeout(seconds, DELIVERY, RECEIVED + timedelta(seconds=elapsed))
    assert isinstance(value, int)
    assert 0 <= value <= max(0, 43_200 - max(0, elapsed))


def test_a_fraction_is_rounded_up_so_that_nothing_comes_back_before_its_time() -> None:
    assert visibility_timeout(0.2, DELIVERY, RECEIVED) == 1


def test_twelve_hours_are_counted_from_the_receive() -> None:
    assert visibility_timeout(43_200, DELIVERY, RECEIVED + timedelta(seconds=20)) == 43_120
