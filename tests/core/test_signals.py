"""Authors' signals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from loomjobs.core.signals import Continue, Defer, Permanent, Signal, Transient

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_an_authors_except_exception_does_not_swallow_a_signal() -> None:
    def job() -> None:
        try:
            raise Defer(timedelta(seconds=1))
        except Exception:  # noqa: BLE001 what an author might write
            pass

    with pytest.raises(Signal):
        job()


def test_a_deferral_into_the_past_means_at_once() -> None:
    assert Defer(until=NOW - timedelta(days=1)).seconds(NOW) == 0
    assert Defer(until=NOW + timedelta(seconds=90)).seconds(NOW) == 90
    assert Defer(timedelta(seconds=5)).seconds(NOW) == 5


def test_a_deferral_needs_exactly_one_time() -> None:
    with pytest.raises(TypeError):
        Defer()  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        Defer(timedelta(1), until=NOW)  # type: ignore[call-overload]


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        Defer(until=datetime(2026, 1, 1))  # noqa: DTZ001 that is the point


def test_continue_is_no_exception_that_an_author_could_swallow() -> None:
    assert issubclass(Continue, Signal)
    assert not issubclass(Continue, Exception)


def test_a_wait_cannot_be_negative() -> None:
    with pytest.raises(ValueError, match="negative"):
        Transient("busy", after=timedelta(seconds=-1))
    assert Transient("busy", after=timedelta(seconds=3)).after == timedelta(seconds=3)
    assert str(Permanent("no such account")) == "no such account"
