"""A message never waits itself out of its receives or its retention."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomjobs.core import defaults
from loomjobs.core.budget import Budget, Renew, Spent, Stay, spend
from loomjobs.core.delivery import Delivery

SENT = datetime(2026, 1, 1, tzinfo=UTC)
BUDGET = Budget(receives=100)
LIFE = defaults.SOURCE_RETENTION - defaults.RECEIVE_MARGIN


def delivery(receives: int = 1, *, kind: Any = "standard", age: int = 0) -> tuple[Delivery, datetime]:
    now = SENT + timedelta(seconds=age)
    made = Delivery(
        message_id="m", body="", receipt="r", queue="q", sent_at=SENT, received_at=now, receives=receives, kind=kind
    )
    return made, now


def after(seconds: float, receives: int = 1, *, kind: Any = "standard", age: int = 0) -> Any:
    made, now = delivery(receives, kind=kind, age=age)
    return spend(seconds, made, BUDGET, now=now)


@pytest.mark.parametrize("receives", [1, 2, 50])
def test_with_half_of_the_receives_left_a_wait_is_as_asked(receives: int) -> None:
    assert after(7.5, receives) == Stay(7.5)


def test_waits_lengthen_as_receives_run_out() -> None:
    waits = [after(0.0, receives, age=3_600).seconds for receives in range(50, 99)]
    assert waits == sorted(waits)
    assert waits[0] == 0.0
    assert waits[-1] > LIFE / 3


@pytest.mark.parametrize(("kind", "expected"), [("standard", Renew(60.0)), ("fifo", Spent("receive-budget"))])
def test_the_last_receives_are_kept_for_the_renewal_or_the_hand_off(kind: Any, expected: Any) -> None:
    assert isinstance(after(5.0, 98, kind=kind), Stay)
    assert after(5.0, 99, kind=kind) == expected
    assert after(5.0, 100, kind=kind) == expected


@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_near_the_end_of_its_retention_a_message_waits_no_more(kind: Any) -> None:
    assert after(5.0, kind=kind, age=LIFE) == Spent("retention")
    assert after(5.0, kind=kind, age=LIFE - 1) == Stay(1.0)


def test_more_than_sqs_can_hide_is_a_renewal_where_order_does_not_matter() -> None:
    assert after(50_000.0) == Renew(50_000.0)
    assert after(50_000.0, kind="fifo") == Stay(50_000.0)


@given(
    seconds=st.floats(0, 1e6),
    receives=st.integers(1, 200),
    kind=st.sampled_from(["standard", "fifo"]),
    age=st.integers(0, 700_000),
)
def test_no_wait_reaches_past_the_retention(seconds: float, receives: int, kind: Any, age: int) -> None:
    outcome = after(seconds, receives, kind=kind, age=age)
    if isinstance(outcome, Stay):
        assert 0 <= outcome.seconds <= LIFE - age
        assert receives < 99
    if isinstance(outcome, Renew):
        assert kind == "standard"
        assert outcome.seconds >= 60 or outcome.seconds == seconds


@given(st.data())
def test_however_short_the_waits_are_the_receives_last_for_the_whole_life(data: st.DataObject) -> None:
    """The worst case: every delivery asks to come back at once."""
    age, receives = 0.0, 1
    while True:
        made = Delivery(
            message_id="m", body="", receipt="r", queue="q", sent_at=SENT, received_at=SENT, receives=receives,
            kind="fifo",
        )  # fmt: skip
        now = SENT + timedelta(seconds=age)
        outcome = spend(data.draw(st.floats(0, 5)), made, BUDGET, now=now)
        if isinstance(outcome, Spent):
            break
        assert isinstance(outcome, Stay)
        age += min(outcome.seconds, 43_200)
        receives += 1
    assert receives < BUDGET.receives
    assert age > LIFE / 2
