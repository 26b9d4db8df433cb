"""The small language of conditional writes has DynamoDB's meaning."""

from __future__ import annotations

import pytest

from loomjobs.core.write import Absent, AllOf, AnyOf, Condition, Is, Item, OneOf, Write, apply, holds


@pytest.mark.parametrize(
    ("condition", "item", "expected"),
    [
        (Absent("a"), None, True),
        (Absent("a"), {"a": 0}, False),
        (Is("a", "=", 1), {"a": 1}, True),
        (Is("a", "=", 1), {}, False),
        (Is("a", "<", 2), {"a": 1}, True),
        (Is("a", "<", 2), {"a": 2}, False),
        (Is("a", "<=", 2), {"a": 2}, True),
        (Is("a", ">", 2), {"a": 2}, False),
        (Is("a", ">", 2), {"a": 3}, True),
        (Is("a", ">=", 2), {"a": 2}, True),
        (Is("a", "<", 2), {"a": "1"}, False),
        (Is("a", ">", "b"), {"a": 1}, False),
        (OneOf("a", ("x", "y")), {"a": "y"}, True),
        (OneOf("a", ("x", "y")), {"a": "z"}, False),
        (OneOf("a", ("x", "y")), {}, False),
        (AllOf(Is("a", "=", 1), Is("b", "=", 2)), {"a": 1, "b": 2}, True),
        (AllOf(Is("a", "=", 1), Is("b", "=", 2)), {"a": 1}, False),
        (AnyOf(Absent("a"), Is("a", "=", 2)), {"a": 2}, True),
        (AnyOf(Absent("a"), Is("a", "=", 2)), {"a": 3}, False),
    ],
)
def test_a_condition_means_what_dynamodb_means(condition: Condition, item: Item | None, expected: bool) -> None:
    assert holds(condition, item) is expected


def test_a_refused_write_shows_the_item_that_refused_it_and_changes_nothing() -> None:
    item = {"id": "x", "n": 1}
    written = apply(Write(id="x", condition=Absent("id"), sets={"n": 2}), item)
    assert (written.applied, written.item) == (False, {"id": "x", "n": 1})


def test_a_write_creates_what_is_absent() -> None:
    write = Write(id="x", condition=Absent("id"), sets={"s": "new"}, absent_sets={"n": 0}, adds={"epoch": 1})
    assert apply(write, None).item == {"id": "x", "s": "new", "n": 0, "epoch": 1}


def test_defaults_keep_what_is_there_and_sums_add_to_it() -> None:
    write = Write(
        id="x",
        condition=Is("n", "=", 7),
        sets={"s": "b"},
        absent_sets={"n": 0},
        adds={"epoch": 2},
        removes=("old",),
    )
    item = {"id": "x", "n": 7, "epoch": 3, "old": 1, "s": "a"}
    assert apply(write, item).item == {"id": "x", "n": 7, "epoch": 5, "s": "b"}
    assert item["old"] == 1
