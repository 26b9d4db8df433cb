"""Counting the children of a batch: any order, any repeats, one result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomjobs.core.fan import (
    PAGE,
    Member,
    Page,
    Whole,
    bad_write,
    close_write,
    done_write,
    header_id,
    over_write,
    seal_write,
)
from loomjobs.core.write import Item, Write, apply

TTL = 2_000_000_000


@given(st.text(min_size=1), st.integers(0, 10**9 - 2))
def test_a_childs_place_survives_the_wire(batch: str, number: int) -> None:
    member = Member.of(batch, number)
    assert Member.parse(str(member)) == member
    assert member.page == number // PAGE
    assert member.id != Member.of(batch, number + 1).id


@pytest.mark.parametrize(
    "text", ["", "#1.2", "a", "a#", "a#1", "a#1.", "a#.1", "a#-1.2", "a#1.x", "a#1.2.3", "a#0.1234567890", "a#\u0661.2"]
)
def test_what_is_no_place_is_none(text: str) -> None:
    assert Member.parse(text) is None


class Items:
    """A store, as far as this needs one."""

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}

    def write(self, write: Write) -> Item:
        written = apply(write, self.items.get(write.id))
        if written.applied and written.item is not None:
            self.items[write.id] = written.item
        return self.items.get(write.id, {})

    def mark(self, write: Write, batch: str, page: int) -> None:
        state = Page.of(self.write(write))
        if state.is_over or state.is_sound:
            self.write(over_write(batch, page, sound=state.is_sound, expires=TTL))

    @property
    def whole(self) -> Whole:
        return Whole.of(self.items.get(header_id("b"), {}))


@given(st.integers(0, 260), st.data())
def test_in_any_order_and_however_often_a_batch_ends_with_its_last_child_and_not_before(total: int, data: Any) -> None:
    store = Items()
    children: Sequence[int] = data.draw(st.permutations(range(total)))
    repeats = data.draw(st.lists(st.sampled_from(range(total)), max_size=30)) if total else []
    closes = data.draw(st.integers(0, total))
    store.items[header_id("b")] = {"id": "x", "n": total}

    def close() -> None:
        if total % PAGE:
            store.mark(seal_write("b", total // PAGE, total % PAGE, expires=TTL), "b", total // PAGE)
        store.write(close_write("b", total, expires=TTL))

    seen: set[int] = set()
    for place, number in enumerate([*children, *repeats]):
        if place == closes:
            close()
        assert store.whole.is_complete == (place >= closes and len(seen) == total)
        store.mark(done_write("b", number // PAGE, [number], expires=TTL), "b", number // PAGE)
        seen.add(number)
    if closes >= len(children) + len(repeats):
        close()
    assert store.whole.is_complete
    assert not store.whole.has_failed


def test_a_failed_child_is_told_apart_and_makes_way_for_its_success() -> None:
    store = Items()
    store.items[header_id("b")] = {"id": "x", "n": 3}
    store.mark(done_write("b", 0, [0, 2], expires=TTL), "b", 0)
    store.mark(bad_write(Member.of("b", 1), "a.b k exhausted", expires=TTL), "b", 0)
    store.mark(seal_write("b", 0, 3, expires=TTL), "b", 0)
    store.write(close_write("b", 3, expires=TTL))
    assert store.whole.has_failed
    assert Page.of(store.items["batch-page:0:b"]).failures == {1: "a.b k exhausted"}
    store.mark(done_write("b", 0, [1], expires=TTL), "b", 0)
    assert store.whole.is_complete
    assert not store.whole.has_failed
    assert Page.of(store.items["batch-page:0:b"]).failures == {}
    store.mark(bad_write(Member.of("b", 1), "a.b k key-conflict", expires=TTL), "b", 0)  # of a double
    assert store.whole.is_complete
    assert Page.of(store.items["batch-page:0:b"]).bad == frozenset()


def test_a_batch_is_closed_with_one_number() -> None:
    store = Items()
    store.items[header_id("b")] = {"id": "x", "n": 3}
    assert Whole.of(store.write(close_write("b", 2, expires=TTL))).total is None
    assert Whole.of(store.write(close_write("b", 3, expires=TTL))).total == 3
    assert Whole.of(store.write(close_write("b", 3, expires=TTL))).total == 3


def test_a_page_fits_a_kilobyte_so_that_a_mark_is_one_write_unit() -> None:
    """https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html: a number takes
    about a byte for each two digits, and one more."""
    number = 10_000_000
    size = sum(len(str(number)) // 2 + 2 for _ in range(PAGE)) + len("batch:some-batch/2026-01:99999") + 60
    assert size < 1024
