"""A lock: one holder at a time, taken over only when its lease and the skew are over."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomjobs.core.lock import (
    acquire_write,
    busy,
    is_ours,
    lease_end,
    lock_id,
    release_write,
    renew_write,
)
from loomjobs.core.write import Item, apply

NOW = 1_800_000_000_000
UNTIL = NOW + 60_000
ID = lock_id("billing.write", "acc-1")


def held(owner: str = "one", *, until: int = UNTIL) -> Item:
    stored = apply(acquire_write(ID, owner, now=NOW, until=until), None).item
    assert stored is not None
    return stored


def takes(item: Item | None, now: int) -> bool:
    return apply(acquire_write(ID, "two", now=now, until=now + 60_000), item).applied


def test_a_lease_covers_the_timeout_and_a_margin() -> None:
    assert lease_end(NOW, timedelta(seconds=15)) == NOW + 45_000


def test_a_lock_has_one_holder() -> None:
    assert takes(None, NOW)
    assert not takes(held(), NOW)


@pytest.mark.parametrize(("late", "taken"), [(-1, False), (0, False), (4_999, False), (5_000, True), (90_000, True)])
def test_a_lapsed_lease_is_taken_over_only_after_the_skew(late: int, taken: bool) -> None:
    assert takes(held(), UNTIL + late) is taken


def test_only_its_owner_releases_it() -> None:
    assert not apply(release_write(ID, "two", now=NOW), held()).applied
    freed = apply(release_write(ID, "one", now=NOW), held())
    assert freed.applied
    assert takes(freed.item, NOW)
    assert not apply(release_write(ID, "one", now=NOW), freed.item).applied


def test_only_its_owner_renews_it() -> None:
    renewed = apply(renew_write(ID, "one", until=UNTIL + 60_000), held())
    assert renewed.applied
    assert not takes(renewed.item, UNTIL + 10_000)
    assert not apply(renew_write(ID, "two", until=UNTIL), held()).applied
    taken = apply(acquire_write(ID, "two", now=UNTIL + 5_000, until=UNTIL + 60_000), held()).item
    assert not apply(renew_write(ID, "one", until=UNTIL + 90_000), taken).applied
    assert not apply(release_write(ID, "one", now=UNTIL + 6_000), taken).applied


def test_a_refusal_by_ones_own_write_is_a_lost_reply() -> None:
    refused = apply(acquire_write(ID, "one", now=NOW, until=UNTIL), held())
    assert not refused.applied
    assert is_ours(refused.item, "one")
    assert not is_ours(refused.item, "two")
    assert not is_ours(None, "one")


def test_its_item_outlives_its_lease_and_is_swept_by_ttl() -> None:
    assert held()["expiration"] > UNTIL // 1000


@given(st.integers(-10_000, 1_000_000), st.integers(0, 2_000), st.floats(0, 1, exclude_max=True))
def test_a_wait_is_bounded_and_never_past_the_end_of_the_lease(left: int, receives: int, roll: float) -> None:
    wait = busy(held(until=NOW + left), now=NOW, receives=receives, roll=roll).wait
    assert 0 <= wait <= 60
    assert wait <= max(0.0, left / 1000 + 5)


def test_waits_lengthen_with_the_receives() -> None:
    waits = [busy(held(until=NOW + 900_000), now=NOW, receives=n, roll=0.999).wait for n in (1, 2, 3, 4, 5, 6, 100)]
    assert [round(wait) for wait in waits] == [4, 8, 16, 32, 60, 60, 60]
    assert busy(held(until=NOW + 900_000), now=NOW, receives=9, roll=0.0).wait == 1.0


def test_ids_tell_jobs_and_values_apart() -> None:
    assert len({lock_id("a.b", "x"), lock_id("a.c", "x"), lock_id("a.b", "y")}) == 3
    assert len(lock_id("a.b", "x" * 4_000).encode()) < 2_048
