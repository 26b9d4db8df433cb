"""Backoff: full jitter, bounded, and a Retry that contradicts itself is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomjobs.core.errors import DeclarationError
from loomjobs.core.retry import Retry

ROLLS = st.floats(0, 1, exclude_max=True)


@given(failures=st.integers(-5, 10_000), roll=ROLLS, base=st.integers(1, 600), extra=st.integers(0, 36_000))
def test_a_wait_is_never_negative_and_never_longer_than_the_cap(
    failures: int, roll: float, base: int, extra: int
) -> None:
    retry = Retry(base=timedelta(seconds=base), cap=timedelta(seconds=base + extra))
    assert 0 <= retry.delay(failures, roll) <= base + extra


def test_full_jitter_spans_from_zero_to_the_doubled_base() -> None:
    retry = Retry(base=timedelta(seconds=10), cap=timedelta(hours=1))
    assert [retry.delay(n, 0.0) for n in (1, 2, 3)] == [0, 0, 0]
    assert [retry.delay(n, 0.5) for n in (1, 2, 3)] == [5, 10, 20]


def test_the_cap_holds_from_the_attempt_that_reaches_it() -> None:
    retry = Retry(base=timedelta(seconds=10), cap=timedelta(seconds=30))
    assert [retry.delay(n, 0.5) for n in (1, 2, 3, 4, 400)] == [5, 10, 15, 15, 15]


def test_what_the_other_side_asked_for_comes_first_and_jitter_on_top() -> None:
    retry = Retry(base=timedelta(seconds=10))
    assert retry.delay(1, 0.5, least=60) == 65


def test_the_pace_scales_our_wait_and_not_the_one_the_other_side_asked_for() -> None:
    retry = Retry(base=timedelta(seconds=10))
    assert retry.delay(1, 0.5, least=60, pace=0.1) == pytest.approx(60.5)


def test_every_contradiction_of_a_retry_is_reported_at_once() -> None:
    with pytest.raises(DeclarationError) as caught:
        Retry(attempts=0, base=timedelta(0), permanent=(KeyError,), transient=(KeyError,))
    assert len(caught.value.problems) == 3


def test_exits_cannot_be_sorted() -> None:
    with pytest.raises(DeclarationError, match="exception classes"):
        Retry(permanent=(SystemExit,))  # type: ignore[arg-type]
