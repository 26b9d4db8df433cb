"""Limiting a rate: slots never come closer than the rate allows, whatever the clocks and the workers' number."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomjobs.core.rate import (
    HORIZON,
    SLOT_GRACE,
    interval_of,
    is_due,
    is_lost,
    job_rate_id,
    reserve,
    reserve_again,
    service_rate_id,
)
from loomjobs.core.uses import Rate
from loomjobs.core.write import Item, apply

NOW = 1_800_000_000_000
MINUTE = timedelta(minutes=1)
NINETY = Rate(90, per=MINUTE)


class Limiter:
    """One stored item, asked as the runtime asks it: at most two writes."""

    def __init__(self, rate: Rate = NINETY, item: Item | None = None) -> None:
        self.rate = rate
        self.item = item
        self.writes = 0

    def ask(self, wanted: int, now: int) -> Sequence[int]:
        first = reserve("~rate#x", self.rate, wanted, now=now)
        slots = self._carry_out(first)
        if slots is not None:
            return slots
        second = reserve_again("~rate#x", self.rate, wanted, self.item, now=now)
        return [] if second is None else self._carry_out(second) or []

    def _carry_out(self, reservation: Any) -> Sequence[int] | None:
        self.writes += 1
        written = apply(reservation.write, self.item)
        if not written.applied or written.item is None:
            return None
        self.item = written.item
        return list(reservation.slots(written.item))


def test_an_idle_limiter_gives_slots_from_now_on() -> None:
    limiter = Limiter(Rate(60, per=MINUTE))
    assert limiter.ask(3, NOW) == [NOW, NOW + 1_000, NOW + 2_000]
    assert limiter.writes == 2
    assert limiter.item is not None
    assert limiter.item["expiration"] * 1000 > NOW + HORIZON * 1000


def test_a_busy_limiter_goes_on_where_it_is_and_costs_one_write() -> None:
    limiter = Limiter(Rate(60, per=MINUTE))
    limiter.ask(3, NOW)
    limiter.writes = 0
    assert limiter.ask(2, NOW + 500) == [NOW + 3_000, NOW + 4_000]
    assert limiter.writes == 1


def test_unused_time_is_not_saved_up() -> None:
    limiter = Limiter(Rate(60, per=MINUTE))
    limiter.ask(1, NOW)
    later = NOW + 3_600_000
    assert limiter.ask(2, later) == [later, later + 1_000]


def test_no_slot_lies_beyond_the_horizon() -> None:
    limiter = Limiter(Rate(60, per=MINUTE))
    slots = limiter.ask(2_000, NOW)
    assert len(slots) == HORIZON + 1
    assert slots[-1] == NOW + HORIZON * 1000
    assert limiter.ask(5, NOW) == []
    assert limiter.ask(5, NOW + 2_000) == [NOW + (HORIZON + 1) * 1000, NOW + (HORIZON + 2) * 1000]


def test_a_limiter_slower_than_the_horizon_still_gives_its_next_slot() -> None:
    limiter = Limiter(Rate(1, per=timedelta(hours=1)))
    assert limiter.ask(2, NOW) == [NOW]
    assert limiter.ask(1, NOW + 60_000) == []
    assert limiter.ask(1, NOW + 2_800_000) == [NOW + 3_600_000]


def test_two_workers_that_start_an_idle_limiter_do_not_share_slots() -> None:
    """Both were refused by the absent item; the second's restart must not win over the first's."""
    one, two = (reserve_again("~rate#x", NINETY, 3, None, now=NOW + skew) for skew in (0, 1_000))
    assert one is not None
    assert two is not None
    stored = apply(one.write, None).item
    assert not apply(two.write, stored).applied


@pytest.mark.parametrize(
    ("rate", "microseconds"),
    [
        (NINETY, 666_667),
        (Rate(300, per=timedelta(seconds=1)), 3_334),
        (Rate(7, per=timedelta(seconds=1)), 142_858),
        (Rate(1, per=timedelta(microseconds=1)), 1),
    ],
)
def test_the_interval_is_rounded_up_by_less_than_a_microsecond(rate: Rate, microseconds: int) -> None:
    assert interval_of(rate) == microseconds
    assert interval_of(rate) * rate.count >= rate.per / timedelta(microseconds=1)


def test_a_slot_may_be_used_within_its_grace() -> None:
    grace = SLOT_GRACE * 1000
    assert [is_due(NOW, NOW + late) for late in (-1, 0, grace, grace + 1)] == [False, True, True, False]
    assert [is_lost(NOW, NOW + late) for late in (-1, 0, grace, grace + 1)] == [False, False, False, True]


def test_ids_of_limiters_do_not_meet() -> None:
    ids = {service_rate_id("mail"), job_rate_id("a.b", None), job_rate_id("a.b", "x"), job_rate_id("a.b", "x#y")}
    assert len(ids) == 4
    assert all(id.startswith("~rate#") for id in ids)
    assert len(job_rate_id("a.b", "x" * 4_000).encode()) < 2_048


# A worker's ask: real ms since the one before, which worker, how many slots.
asks = st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 4), st.integers(1, 25)), min_size=1, max_size=60)
clocks = st.lists(st.tuples(st.integers(-5_000, 5_000), st.floats(-1e-3, 1e-3)), min_size=5, max_size=5)
rates = st.builds(Rate, st.integers(1, 200), per=st.sampled_from([timedelta(seconds=1), MINUTE, timedelta(hours=1)]))


def slots_of(rate: Rate, steps: Sequence[tuple[int, int, int]], skews: Sequence[tuple[int, float]]) -> list[list[int]]:
    limiter, real, waves = Limiter(rate), NOW, []
    for pause, worker, wanted in steps:
        real += pause
        skew, drift = skews[worker]
        waves.append(list(limiter.ask(wanted, real + skew + round((real - NOW) * drift))))
    return waves


@given(rates, asks, clocks)
@settings(max_examples=300, deadline=None)
def test_no_window_holds_more_than_count_and_one_slots(rate: Rate, steps: Any, skews: Any) -> None:
    slots = sorted(slot for wave in slots_of(rate, steps, skews) for slot in wave)
    per = rate.per / timedelta(milliseconds=1)
    for first, slot in enumerate(slots):
        assert sum(1 for other in slots[first:] if other <= slot + per) <= rate.count + 1


@given(rates, asks, clocks)
@settings(max_examples=200, deadline=None)
def test_slots_are_given_in_the_order_of_asking(rate: Rate, steps: Any, skews: Any) -> None:
    """Fair: whoever reserved earlier, on whatever worker, runs earlier."""
    slots = [slot for wave in slots_of(rate, steps, skews) for slot in wave]
    assert slots == sorted(slots)


@given(asks, clocks)
@settings(max_examples=200, deadline=None)
def test_slots_of_a_wave_are_distinct_and_within_the_horizon(steps: Any, skews: Any) -> None:
    for wave in slots_of(NINETY, steps, skews):
        assert len(set(wave)) == len(wave)
    furthest = max((slot for wave in slots_of(NINETY, steps, skews) for slot in wave), default=NOW)
    assert furthest <= NOW + sum(pause for pause, _, _ in steps) + 7_000 + HORIZON * 1000


@given(asks, clocks, st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_starts_within_a_window_are_those_slots_of_it_its_grace_and_the_skew(steps: Any, skews: Any, draw: Any) -> None:
    """A run starts up to the grace after its slot by its own clock, so a burst is bounded by the slots of that time."""
    starts = sorted(
        slot + draw.uniform(-5_000, SLOT_GRACE * 1000 + 5_000)
        for wave in slots_of(NINETY, steps, skews)
        for slot in wave
    )
    window = 60_000
    bound = (window + SLOT_GRACE * 1000 + 10_000) * 90 / 60_000 + 1
    for first, start in enumerate(starts):
        assert sum(1 for other in starts[first:] if other <= start + window) <= bound


def test_a_backlog_on_many_workers_runs_at_the_rate_and_meets_its_limiter_twice() -> None:
    """600 jobs on 10 workers in waves of 10: reserved once, then run in their slot."""
    limiter = Limiter()
    slots = [slot for wave in range(60) for slot in limiter.ask(10, NOW + wave * 20)]
    assert len(slots) == 600
    assert slots[-1] - slots[0] == pytest.approx(599 * 60_000 / 90, abs=2)
    assert limiter.writes == 61
