"""What circuits, locks, limiters and ended-without-a-run records store, attribute by attribute."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from loomjobs.core import defaults
from loomjobs.core.breaker import (
    Admit,
    Breaker,
    Deny,
    Policy,
    Probe,
    Tally,
    admission,
    admitted_share,
    breaker_id,
    probe_failed_write,
    probe_left_write,
    probe_passed_write,
    probe_renew_write,
    probe_write,
    trip_write,
)
from loomjobs.core.cancel import asked, next_step, unless_cancelled
from loomjobs.core.claim import Claim
from loomjobs.core.ending import defer_write
from loomjobs.core.expiry import expire_write
from loomjobs.core.lock import acquire_write, busy, is_ours, lease_end, lock_id, release_write, renew_write
from loomjobs.core.rate import HORIZON, SLOT_GRACE, interval_of, is_due, is_lost, reserve, reserve_again
from loomjobs.core.record import Record
from loomjobs.core.unrun import cause, flip, insert, renew, stale
from loomjobs.core.uses import Rate
from loomjobs.core.write import Write, apply

NOW = 1_800_000_000_000
SECOND = NOW // 1000
POLICY = Policy()
ID = breaker_id("api")


def after(write: Write, item: dict[str, Any] | None = None) -> Any:
    written = apply(write, item)
    assert written.applied, (write, item)
    return written.item


def refused(write: Write, item: dict[str, Any] | None) -> bool:
    return not apply(write, item).applied


def read(item: dict[str, Any] | None, *, now: int = NOW) -> Breaker:
    return Breaker.of("api", item, now=now)


# -- the circuit ------------------------------------------------------------------------------------
def opened() -> dict[str, Any]:
    item: dict[str, Any] = after(trip_write(read(None), admitted=NOW, now=NOW, failures=5, policy=POLICY))
    return item


def half_open(**more: Any) -> dict[str, Any]:
    item: dict[str, Any] = after(probe_write(read(opened()), "me", now=NOW + 30_000, lease=20), opened())
    return item | more


def test_an_opened_circuit_is_stored_as_powertools_has_it() -> None:
    item = opened()
    expires = item.pop("expiration")
    assert expires > SECOND + POLICY.longest_recovery
    assert item == {
        "id": ID,
        "state": "OPEN",
        "failure_count": 5,
        "opened_at": SECOND,
        "recovery_timeout": 30,
        "probe_successes": 0,
    }


def test_the_first_to_open_it_stands() -> None:
    again = trip_write(read(None), admitted=NOW, now=NOW + 9, failures=5, policy=POLICY)
    assert refused(again, opened())
    assert refused(again, half_open())
    assert not refused(again, {"id": ID})
    assert not refused(again, opened() | {"expiration": (NOW + 9) // 1000})
    assert refused(again, opened() | {"expiration": (NOW + 9) // 1000 + 1})


@pytest.mark.parametrize(("closed_at", "trips"), [(None, True), (NOW, True), (NOW + 1, False)])
def test_a_run_of_before_the_last_closing_opens_nothing(closed_at: int | None, trips: bool) -> None:
    closed = {"id": ID, "state": "CLOSED", "expiration": SECOND + 9_999}
    closed |= {} if closed_at is None else {"closed_at": closed_at}
    write = trip_write(read(None), admitted=NOW, now=NOW + 5, failures=5, policy=POLICY)
    assert refused(write, closed) is not trips


def test_a_probe_is_one_at_a_time_and_a_lapsed_one_is_taken_over_after_the_skew() -> None:
    assert half_open() == opened() | {
        "state": "HALF_OPEN",
        "half_open_owner": "me",
        "probe_lease_expiry": SECOND + 50,
        "expiration": half_open()["expiration"],
    }
    assert half_open()["expiration"] > opened()["expiration"]
    record = read(half_open())
    lapsed = (SECOND + 50 + defaults.CLOCK_SKEW) * 1000
    assert refused(probe_write(record, "you", now=lapsed - 1_000, lease=20), half_open())
    assert after(probe_write(record, "you", now=lapsed, lease=20), half_open())["half_open_owner"] == "you"
    free = {name: value for name, value in half_open().items() if name != "half_open_owner"}
    assert not refused(probe_write(record, "you", now=NOW, lease=20), free)
    assert refused(probe_write(read(opened()), "you", now=NOW, lease=20), opened() | {"opened_at": SECOND + 1})
    assert refused(probe_write(read(opened()), "you", now=NOW, lease=20), opened() | {"half_open_owner": "x"})
    assert refused(probe_write(read(opened()), "you", now=NOW, lease=20), opened() | {"state": "CLOSED"})
    bare = {name: value for name, value in opened().items() if name != "opened_at"}
    assert not refused(probe_write(read(bare), "you", now=NOW, lease=20), bare)
    assert refused(probe_write(read(bare), "you", now=NOW, lease=20), opened())


def test_successes_are_counted_and_the_last_one_starts_the_ramp() -> None:
    now = NOW + 31_000
    once = after(probe_passed_write(read(half_open()), "me", now=now, policy=POLICY), half_open())
    assert (once["state"], once["probe_successes"], once["probe_lease_expiry"]) == ("HALF_OPEN", 1, now // 1000)
    assert "half_open_owner" not in once
    last = half_open(probe_successes=2)
    closed = after(probe_passed_write(read(last), "me", now=now, policy=POLICY), last)
    assert {name: closed[name] for name in ("state", "failure_count", "probe_successes", "closed_at")} == {
        "state": "CLOSED",
        "failure_count": 0,
        "probe_successes": 0,
        "closed_at": now,
    }
    assert not {"opened_at", "probe_lease_expiry", "half_open_owner"} & set(closed)
    assert refused(probe_passed_write(read(last), "you", now=now, policy=POLICY), last)


def test_a_failed_probe_opens_for_twice_as_long_up_to_the_longest() -> None:
    now = NOW + 31_000
    failed = after(probe_failed_write(read(half_open()), "me", now=now, policy=POLICY), half_open())
    assert (failed["state"], failed["recovery_timeout"], failed["opened_at"]) == ("OPEN", 60, now // 1000)
    assert (failed["failure_count"], failed["probe_successes"]) == (0, 0)
    assert not {"half_open_owner", "probe_lease_expiry", "closed_at"} & set(failed)
    long = half_open(recovery_timeout=400)
    assert after(probe_failed_write(read(long), "me", now=now, policy=POLICY), long)["recovery_timeout"] == 600


def test_a_probe_that_said_nothing_leaves_room_for_the_next_at_once() -> None:
    item = half_open(probe_successes=1)
    left = after(probe_left_write(read(item), "me", now=NOW + 31_000), item)
    assert (left["state"], left["probe_successes"], left["probe_lease_expiry"]) == ("HALF_OPEN", 1, SECOND + 31)
    assert "half_open_owner" not in left
    kept = after(probe_renew_write(read(item), "me", now=NOW + 31_000, lease=60), item)
    assert kept == item | {"probe_lease_expiry": SECOND + 91}
    assert refused(probe_renew_write(read(item), "you", now=NOW, lease=60), item)


def test_a_circuit_reads_every_attribute_and_counts_as_closed_where_it_says_nothing() -> None:
    item = half_open(probe_successes=2, closed_at=7)
    record = read(item)
    assert (record.state, record.failures, record.opened_at, record.owner) == ("HALF_OPEN", 5, SECOND, "me")
    assert (record.lease, record.recovery, record.successes, record.closed_at) == (SECOND + 50, 30, 2, 7)
    bare = read({"state": "OPEN"})
    assert (bare.failures, bare.lease, bare.successes, bare.closed_at) == (0, 0, 0, 0)
    assert (bare.opened_at, bare.recovery, bare.owner) == (None, None, "")
    for nothing in (None, {}, {"state": "odd"}, opened() | {"expiration": SECOND}):
        assert read(nothing) == Breaker(service="api")


def test_an_open_circuit_says_when_it_may_be_tried() -> None:
    record = read(opened())
    assert record.reopens_in(NOW, POLICY) == 30.0
    assert record.reopens_in(NOW + 29_500, POLICY) == 0.5
    assert record.reopens_in(NOW + 31_000, POLICY) == 0.0
    assert read(half_open()).reopens_in(NOW, POLICY) == 0.0
    assert isinstance(admission(record, NOW + 29_999, 0.5, POLICY), Deny)
    assert admission(record, NOW + 30_000, 0.5, POLICY) == Probe()
    assert admission(record, NOW, 0.0, POLICY) == Deny(30.0, "the circuit of api is open")
    assert admission(record, NOW + 20_000, 0.5, POLICY) == Deny(25.0, "the circuit of api is open")


def test_the_ramp_is_linear_from_its_first_share_to_all() -> None:
    record = Breaker(service="api", closed_at=NOW)
    shares = [admitted_share(record, NOW + at * 1000, POLICY) for at in (-5, 0, 90, 180, 500)]
    assert shares == [0.25, 0.25, 0.625, 1.0, 1.0]
    assert admission(record, NOW, 0.2499, POLICY) == Admit()
    denied = admission(record, NOW, 0.25, POLICY)
    assert denied == Deny(2.0, "api recovers: 25% admitted")
    assert admission(record, NOW, 0.625, POLICY) == Deny(8.5, "api recovers: 25% admitted")
    assert admitted_share(Breaker(service="api"), NOW, POLICY) == 1.0
    assert admitted_share(record, NOW, replace(POLICY, ramp=0)) == 1.0


def test_a_tally_trips_on_a_streak_or_on_half_of_a_busy_minute() -> None:
    tally = Tally()
    for number in range(4):
        tally = tally.after(NOW + number, failed=True, policy=POLICY)
    assert (tally.failures, tally.trips(POLICY)) == (4, False)
    assert tally.after(NOW, failed=False, policy=POLICY).failures == 0
    assert tally.after(NOW, failed=True, policy=POLICY).trips(POLICY)
    mixed = Tally()
    for number in range(19):
        mixed = mixed.after(NOW + number, failed=number % 2 == 1, policy=POLICY)
    assert not mixed.trips(POLICY)
    assert mixed.after(NOW + 20, failed=True, policy=POLICY).trips(POLICY)
    assert not mixed.after(NOW + 70_000, failed=True, policy=POLICY).trips(POLICY)


# -- locks ------------------------------------------------------------------------------------------
LOCK = lock_id("a.b", "v")


def test_a_lock_is_taken_kept_and_freed_by_its_owner_only() -> None:
    until = lease_end(NOW, timedelta(seconds=10))
    assert until == NOW + 40_000
    held = after(acquire_write(LOCK, "me", now=NOW, until=until))
    assert held == {"id": LOCK, "owner": "me", "until": until, "expiration": until // 1000 + 3_600}
    assert refused(acquire_write(LOCK, "you", now=until + 4_999, until=until), held)
    assert not refused(acquire_write(LOCK, "you", now=until + 5_000, until=until), held)
    longer = after(renew_write(LOCK, "me", until=until + 1_000), held)
    assert longer == held | {"until": until + 1_000, "expiration": (until + 1_000) // 1000 + 3_600}
    assert refused(renew_write(LOCK, "you", until=1), held)
    assert refused(release_write(LOCK, "you", now=NOW), held)
    freed = after(release_write(LOCK, "me", now=NOW + 7), held)
    assert freed == {"id": LOCK, "until": NOW + 7, "expiration": (NOW + 7) // 1000 + 3_600}
    assert not refused(acquire_write(LOCK, "you", now=NOW, until=until), freed)
    assert not refused(acquire_write(LOCK, "you", now=NOW, until=until), {"id": LOCK, "owner": "x"})
    assert is_ours(held, "me")
    assert not is_ours(held, "you")
    assert not is_ours(None, "me")


@pytest.mark.parametrize(
    ("receives", "roll", "wait"), [(1, 0.0, 1.0), (0, 0.0, 1.0), (10, 1.0, 45.0), (99, 1.0, 45.0), (99, 0.5, 30.5)]
)
def test_a_busy_locks_wait_lengthens_and_ends_with_the_lease(receives: int, roll: float, wait: float) -> None:
    held = {"owner": "x", "until": NOW + 40_000}
    assert busy(held, now=NOW, receives=receives, roll=roll).wait == wait
    assert busy(None, now=NOW, receives=receives, roll=1.0).wait <= 5.0
    assert busy({"owner": "x", "until": NOW - 60_000}, now=NOW, receives=receives, roll=roll).wait == 0.0


# -- rates ------------------------------------------------------------------------------------------
def test_slots_are_evenly_spaced_and_reserved_by_two_shapes_of_write() -> None:
    rate = Rate(90, per=timedelta(minutes=1))
    assert interval_of(rate) == 666_667
    assert interval_of(Rate(10**9, per=timedelta(milliseconds=1))) == 1
    assert refused(reserve("r", rate, 3, now=NOW).write, None)
    idle = reserve_again("r", rate, 3, None, now=NOW)
    assert idle is not None
    item = after(idle.write)
    assert item["next"] == NOW * 1000 + 3 * 666_667
    assert idle.slots(item) == [NOW, NOW + 667, NOW + 1_334]
    busy_ = reserve("r", rate, 2, now=NOW)
    more = after(busy_.write, item)
    assert busy_.slots(more) == [NOW + 2_001, NOW + 2_667]
    assert more["expiration"] > SECOND + HORIZON


def test_no_slot_lies_beyond_the_horizon() -> None:
    rate = Rate(1, per=timedelta(minutes=5))
    first = reserve_again("r", rate, 100, None, now=NOW)
    assert first is not None
    assert first.count == 4
    full = after(first.write)
    assert refused(reserve("r", rate, 1, now=NOW).write, full)
    assert reserve_again("r", rate, 1, full, now=NOW) is None
    later = reserve_again("r", rate, 2, full, now=NOW + 300_000)
    assert later is not None
    assert later.count == 1
    assert not refused(later.write, full)


def test_a_slot_is_good_from_its_instant_for_its_grace() -> None:
    grace = SLOT_GRACE * 1000
    assert [is_due(NOW, NOW + at) for at in (-1, 0, grace, grace + 1)] == [False, True, True, False]
    assert [is_lost(NOW, NOW + at) for at in (-1, grace, grace + 1)] == [False, False, True]


# -- ended without a run ----------------------------------------------------------------------------
CLAIM = Claim(
    id="a.b#1", owner="me", now=NOW, lease=NOW, payload_hash="p", message="m", sent=NOW - 1, expires=SECOND + 9,
    version="r", redrives=1, receives=2,
)  # fmt: skip
FIRST = {"id": "a.b#1", "epoch": 1, "n": 0, "susp": 0, "free": 0}


def test_a_late_first_delivery_stores_an_expired_record() -> None:
    assert after(expire_write(CLAIM)) == FIRST | {
        "status": "EXPIRED",
        "owner": "me",
        "ph": "p",
        "mid": "m",
        "sent": NOW - 1,
        "rd": 1,
        "rc": 2,
        "ver": "r",
        "ended": NOW,
        "expiration": SECOND + 9,
    }
    assert expire_write(CLAIM).wants_item is False


def test_a_stale_record_begins_anew_with_its_end() -> None:
    old: dict[str, Any] = dict.fromkeys(("nb", "slot", "dead_at", "ck", "ckv", "data", "cont", "cancel", "ph"), 1)
    old |= {"id": "a.b#1", "status": "DEAD", "owner": "x", "epoch": 4, "n": 5, "susp": 1, "free": 2, "expiration": 7}
    old |= {"why": "w", "hist": [{}]}
    write = renew(Record.of(old), {"status": "CANCELLED", "cancel": 3, "expiration": 99})
    assert after(write, old) == FIRST | {
        "status": "CANCELLED", "cancel": 3, "expiration": 99, "epoch": 5, "owner": "x"
    }  # fmt: skip
    assert refused(write, old | {"expiration": 8})
    assert refused(write, old | {"owner": "y"})
    assert refused(write, old | {"status": "INPROGRESS"})
    assert write.wants_item is False


def test_a_waiting_record_is_flipped_with_its_history() -> None:
    old = {"id": "a.b#1", "status": "WAITING", "epoch": 0, "n": 2, "nb": 5, "slot": 5, "hist": [{}], "expiration": 9}
    write = flip(Record.of(old), {"status": "EXPIRED"})
    assert after(write, old) == {"id": "a.b#1", "status": "EXPIRED", "epoch": 0, "n": 2, "hist": [{}], "expiration": 9}
    for moved in ({"owner": "x"}, {"epoch": 1}, {"status": "INPROGRESS"}):
        assert refused(write, old | moved)
    assert insert("x", {"status": "CANCELLED"}).wants_item is False


@pytest.mark.parametrize(
    ("status", "lease", "is_stale"),
    [
        ("WAITING", NOW + 9_999, True),
        ("INPROGRESS", NOW - 5_000, True),
        ("INPROGRESS", NOW - 4_999, False),
        ("INPROGRESS", NOW + 1, False),
    ],
)
def test_a_record_past_its_ttl_counts_as_absent_unless_it_still_runs(status: str, lease: int, is_stale: bool) -> None:
    record = Record.of({"id": "x", "status": status, "in_progress_expiration": lease, "expiration": SECOND})
    assert stale(record, NOW) is is_stale
    assert stale(record, NOW - 1) is False


@pytest.mark.parametrize(
    ("status", "cancel", "why"),
    [
        ("CANCELLED", {}, "cancelled"),
        ("EXPIRED", {"cancel": 1}, "expired"),
        ("COMPLETED", {"cancel": 1}, "duplicate"),
        ("COMPLETED", {}, "duplicate"),
        ("WAITING", {"cancel": 1}, "cancelled"),
        ("WAITING", {}, "duplicate"),
    ],
)
def test_why_a_delivery_of_an_ended_record_is_acknowledged(status: str, cancel: dict[str, int], why: str) -> None:
    assert cause(Record.of({"id": "x", "status": status} | cancel)) == why


def test_a_wait_is_refused_once_somebody_asked_to_cancel_and_only_its_owner_is_told() -> None:
    held = {"id": "x", "status": "INPROGRESS", "owner": "me"}
    record = Record.of(held)
    write = unless_cancelled(defer_write(record, not_before=1, expires=1))
    assert not refused(write, held)
    assert refused(write, held | {"cancel": 1})
    assert asked(record, held | {"cancel": 1}) is True
    assert asked(record, held) is False
    assert asked(record, held | {"cancel": 1, "owner": "you"}) is False
    assert asked(record, held | {"cancel": 1, "status": "WAITING"}) is False
    assert asked(record, None) is False


def test_asking_to_cancel_leaves_word_and_changes_nothing_else() -> None:
    held = {
        "id": "x",
        "status": "INPROGRESS",
        "owner": "me",
        "epoch": 1,
        "in_progress_expiration": NOW,
        "expiration": SECOND + 9,
    }
    step: Any = next_step("x", Record.of(held), now=NOW, expires=1)
    assert after(step.write, held) == held | {"cancel": NOW}
    assert refused(step.write, held | {"owner": "you"})
    assert step.write.wants_item is False
