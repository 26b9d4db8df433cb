"""A circuit breaker: its states, its shares, its fences; and whose failure an error is."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomjobs.core.breaker import (
    CLOSED,
    HALF_OPEN,
    OPEN,
    Admit,
    Breaker,
    Deny,
    Policy,
    Probe,
    Tally,
    admission,
    admitted_share,
    blamed,
    probe_failed_write,
    probe_left_write,
    probe_passed_write,
    probe_renew_write,
    probe_write,
    trip_write,
)
from loomjobs.core.classify import Sorting, classify
from loomjobs.core.errors import StoreUnavailable
from loomjobs.core.retry import Retry
from loomjobs.core.signals import Transient
from loomjobs.core.write import Item, Write, apply
from loomjobs.runtime.runner import JobTimeout

NOW = 1_800_000_000_000
POLICY = Policy()


def of(item: Item | None, now: int = NOW) -> Breaker:
    return Breaker.of("api", item, now=now)


def done(write: Write, item: Item | None) -> Item:
    written = apply(write, item)
    assert written.applied
    assert written.item is not None
    return written.item


def opened(now: int = NOW, item: Item | None = None) -> Item:
    return done(trip_write(of(item, now), admitted=now, now=now, failures=5, policy=POLICY), item)


def probing(now: int = NOW + 30_000, owner: str = "one", item: Item | None = None) -> Item:
    item = item or opened()
    return done(probe_write(of(item, now), owner, now=now, lease=60), item)


def passed(item: Item, now: int, owner: str = "one") -> Item:
    return done(probe_passed_write(of(item, now), owner, now=now, policy=POLICY), item)


def failed(item: Item, now: int, owner: str = "one") -> Item:
    return done(probe_failed_write(of(item, now), owner, now=now, policy=POLICY), item)


def closed(now: int = NOW + 33_000) -> Item:
    item = opened()
    for step in (3_000, 2_000, 1_000):
        item = passed(probing(now - step, item=item), now - step + 1_000)
    return item


def verdict(item: Item | None, now: int, roll: float = 0.5) -> Any:
    return admission(of(item, now), now, roll, POLICY)


def test_a_service_that_never_failed_is_open_to_all() -> None:
    assert verdict(None, NOW, 0.999) == Admit()


def test_an_open_circuit_denies_until_its_recovery_timeout_and_then_wants_a_probe() -> None:
    for late in (0, 10_000, 29_999):
        denied = verdict(opened(), NOW + late)
        assert isinstance(denied, Deny)
        assert denied.wait >= 30 - late / 1000
    assert verdict(opened(), NOW + 30_000) == Probe()


@given(st.floats(0, 1, exclude_max=True), st.integers(-5_000, 29_999))
def test_waits_for_an_open_circuit_spread_over_a_whole_recovery_timeout(roll: float, late: int) -> None:
    denied = verdict(opened(), NOW + late, roll)
    assert isinstance(denied, Deny)
    left = min(30.0, (30_000 - late) / 1000)
    assert left <= denied.wait <= left + 30


def test_one_worker_opens_it_and_the_opening_does_not_move() -> None:
    second = apply(trip_write(of(None), admitted=NOW, now=NOW + 1_000, failures=5, policy=POLICY), opened())
    assert not second.applied
    assert opened()["opened_at"] == NOW // 1000


def test_one_probe_runs_at_a_time() -> None:
    item = probing()
    assert not apply(probe_write(of(opened()), "two", now=NOW + 30_500, lease=60), item).applied
    assert isinstance(verdict(item, NOW + 31_000), Deny)


@pytest.mark.parametrize(("late", "expected"), [(60_000, False), (64_999, False), (65_000, True)])
def test_a_lapsed_probe_is_taken_over_after_the_skew(late: int, expected: bool) -> None:
    now = NOW + 30_000 + late
    assert (verdict(probing(), now) == Probe()) is expected
    assert apply(probe_write(of(probing(), now), "two", now=now, lease=60), probing()).applied is expected


def test_a_renewed_probe_is_not_taken_over() -> None:
    item = done(probe_renew_write(of(probing()), "one", now=NOW + 80_000, lease=60), probing())
    assert isinstance(verdict(item, NOW + 100_000), Deny)


def test_a_probe_that_lost_its_lease_decides_nothing() -> None:
    item = probing(NOW + 100_000, "two", probing())
    for write in (
        probe_passed_write(of(probing()), "one", now=NOW, policy=POLICY),
        probe_failed_write(of(probing()), "one", now=NOW, policy=POLICY),
        probe_left_write(of(probing()), "one", now=NOW),
        probe_renew_write(of(probing()), "one", now=NOW, lease=60),
    ):
        assert not apply(write, item).applied


def test_a_stale_view_elects_no_probe_of_a_circuit_that_opened_again() -> None:
    stale = of(opened(), NOW + 30_000)
    reopened = failed(probing(), NOW + 31_000)
    assert not apply(probe_write(stale, "two", now=NOW + 31_500, lease=60), reopened).applied


def test_three_successes_close_it_whoever_probed() -> None:
    item = passed(probing(owner="one"), NOW + 31_000, "one")
    assert (item["state"], item["probe_successes"]) == (HALF_OPEN, 1)
    assert verdict(item, NOW + 31_000) == Probe()
    item = passed(probing(NOW + 31_000, "two", item), NOW + 32_000, "two")
    item = passed(probing(NOW + 32_000, "three", item), NOW + 33_000, "three")
    assert item["state"] == CLOSED
    assert item["closed_at"] == NOW + 33_000
    assert not {"opened_at", "half_open_owner", "probe_lease_expiry"} & set(item)


def test_a_probe_that_said_nothing_frees_the_next_and_keeps_the_successes() -> None:
    item = passed(probing(), NOW + 31_000)
    item = done(probe_left_write(of(item), "one", now=NOW + 32_000), probing(NOW + 31_500, item=item))
    assert verdict(item, NOW + 32_000) == Probe()
    assert item["probe_successes"] == 1


def test_each_failed_probe_doubles_the_recovery_timeout_up_to_the_cap() -> None:
    item, now, seen = opened(), NOW, []
    for _ in range(7):
        now += item["recovery_timeout"] * 1000
        assert verdict(item, now) == Probe()
        item = failed(probing(now, item=item), now)
        seen.append(item["recovery_timeout"])
    assert seen == [60, 120, 240, 480, 600, 600, 600]
    assert item["probe_successes"] == 0


def test_a_failure_within_the_ramp_doubles_too_and_one_long_after_does_not() -> None:
    item = closed()
    assert opened(NOW + 60_000, item)["recovery_timeout"] == 60
    assert opened(NOW + 33_000 + 180_000, item)["recovery_timeout"] == 30


def test_admission_ramps_from_a_quarter_to_all_over_three_minutes() -> None:
    record = of(closed())
    shares = [admitted_share(record, NOW + 33_000 + after, POLICY) for after in (-4_000, 0, 60_000, 120_000, 180_000)]
    assert shares == pytest.approx([0.25, 0.25, 0.5, 0.75, 1.0])
    assert verdict(closed(), NOW + 33_000, 0.249) == Admit()
    assert isinstance(verdict(closed(), NOW + 33_000, 0.25), Deny)
    assert verdict(closed(), NOW + 213_000, 0.999) == Admit()


@given(st.floats(0, 1, exclude_max=True), st.integers(0, 179_999))
def test_a_ramp_keeps_jobs_out_only_shortly(roll: float, after: int) -> None:
    one = verdict(closed(), NOW + 33_000 + after, roll)
    assert isinstance(one, Admit) == (roll < admitted_share(of(closed()), NOW + 33_000 + after, POLICY))
    if isinstance(one, Deny):
        assert 2 <= one.wait <= 15


def test_what_an_item_lacks_or_says_strangely_counts_as_closed() -> None:
    assert of({"id": "x"}).state == CLOSED
    assert of({"id": "x", "state": "MELTED"}).state == CLOSED
    over = dict(opened()) | {"expiration": NOW // 1000 - 1}
    assert of(over).state == CLOSED
    assert opened(NOW + 1, over)["state"] == OPEN


def test_an_opening_without_its_time_can_be_probed() -> None:
    """Powertools tolerates it too."""
    item = {name: value for name, value in opened().items() if name != "opened_at"}
    assert verdict(item, NOW) == Probe()
    assert probing(NOW, item=item)["state"] == HALF_OPEN


# -- counting


def tally(*outcomes: bool, every: int = 1_000) -> Tally:
    counted = Tally()
    for place, is_failure in enumerate(outcomes):
        counted = counted.after(NOW + place * every, failed=is_failure, policy=POLICY)
    return counted


def test_five_failures_in_a_row_trip_however_slowly_they_come() -> None:
    assert not tally(*[True] * 4).trips(POLICY)
    assert tally(*[True] * 5).trips(POLICY)
    assert tally(*[True] * 5, every=3_600_000).trips(POLICY)
    assert tally(*[True] * 5).failures == 5


def test_a_success_between_starts_the_row_anew() -> None:
    assert not tally(*[True] * 4, False, *[True] * 4).trips(POLICY)


def test_a_service_that_fails_every_other_time_trips_too() -> None:
    assert not tally(*[False, True] * 9).trips(POLICY)
    assert tally(*[False, True] * 10).trips(POLICY)
    assert not tally(*[False, False, True] * 10).trips(POLICY)


def test_old_runs_leave_the_window() -> None:
    assert not tally(*[False, True] * 10, every=10_000).trips(POLICY)
    assert not Tally().trips(POLICY)
    assert len(tally(*[True] * 500).runs) <= 200


# -- whose failure


def sorted_(error: BaseException) -> Sorting:
    return classify(error, Retry(), now=datetime(2026, 1, 1, tzinfo=UTC))


class Named(Exception):
    service = "mail-api"


class Refused(Exception):
    status_code = 400


class Throttled(Exception):
    status_code = 429


botocore_error = type("ThrottlingException", (Exception,), {"__module__": "botocore.errorfactory"})


@pytest.mark.parametrize(
    "error", [ConnectionError(), Throttled(), Transient("busy"), JobTimeout("30 s"), TimeoutError()]
)
def test_transient_and_throttled_errors_are_the_only_services_fault(error: Exception) -> None:
    assert blamed(error, sorted_(error), ["api"]) == "api"


@pytest.mark.parametrize("error", [ConnectionError(), Throttled(), JobTimeout("30 s")])
def test_with_several_services_or_none_an_unnamed_error_is_nobodys(error: Exception) -> None:
    assert blamed(error, sorted_(error), ["api", "mail-api"]) is None
    assert blamed(error, sorted_(error), []) is None


@pytest.mark.parametrize("error", [Refused(), ValueError(), StoreUnavailable("x"), MemoryError(), SystemExit()])
def test_what_says_nothing_about_the_service_is_nobodys(error: BaseException) -> None:
    assert blamed(error, sorted_(error), ["api"]) is None


def test_botocores_errors_are_nobodys() -> None:
    assert blamed(botocore_error(), Sorting("throttled"), ["api"]) is None


def test_an_error_that_names_its_service_is_that_services() -> None:
    assert blamed(Named(), sorted_(Named()), ["api", "mail-api"]) == "mail-api"
    assert blamed(Named(), sorted_(Named()), ["api"]) is None
    wrapped = Transient("later")
    wrapped.__cause__ = Named()
    assert blamed(wrapped, sorted_(wrapped), ["api", "mail-api"]) == "mail-api"


def test_a_policy_without_ramp_admits_all_at_once() -> None:
    assert admitted_share(of(closed()), NOW + 33_000, replace(POLICY, ramp=0)) == 1.0
