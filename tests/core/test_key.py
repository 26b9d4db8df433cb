"""Keys: one spelling for one identity, and no part may be missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomjobs.core.errors import BadKey
from loomjobs.core.key import EACH_ENQUEUE, check_key, derive


class Kind(Enum):
    A = "a"


@dataclass
class Payload:
    tenant: str | None
    number: int = 0
    on: date = date(2026, 1, 1)
    at: datetime | None = None
    total: Decimal = Decimal(0)
    ratio: float = 0.0
    kind: Kind = Kind.A
    flag: bool = False
    id: UUID = field(default_factory=lambda: UUID(int=1))
    maybe: str | None = None


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("number", "0"),
        (("tenant", "number"), "t/0"),
        (("on", "kind", "flag", "id"), "2026-01-01/a/false/00000000-0000-0000-0000-000000000001"),
        (lambda p: (p.tenant, 7), "t/7"),
        (lambda p: "x", "x"),
    ],
)
def test_a_key_is_its_parts_in_order(key: Any, text: str) -> None:
    assert derive(key, Payload("t")) == text


@given(st.lists(st.text(min_size=1), min_size=1, max_size=3), st.lists(st.text(min_size=1), min_size=1, max_size=3))
def test_two_identities_never_have_one_key(one: list[str], other: list[str]) -> None:
    spelled = [derive(lambda _, parts=parts: tuple(parts), None) for parts in (one, other)]
    assert (spelled[0] == spelled[1]) == (one == other)


@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_or_empty_part_is_refused_and_never_merged(value: Any) -> None:
    with pytest.raises(BadKey, match=r"tenant is (missing|empty)"):
        derive(("tenant", "number"), Payload(value))


def test_zero_and_false_are_parts_like_others() -> None:
    assert derive(("number", "flag"), Payload("t")) == "0/false"


@pytest.mark.parametrize("part", [Decimal(1), 1.5, datetime(2026, 1, 1), b"x", {}, [], object()])  # noqa: DTZ001
def test_a_part_with_more_than_one_spelling_is_refused(part: Any) -> None:
    with pytest.raises(BadKey, match="part 1 is a"):
        derive(lambda _: part, None)


def test_a_keys_function_that_raises_or_returns_nothing_is_a_bad_key() -> None:
    with pytest.raises(BadKey, match="raised ZeroDivisionError"):
        derive(lambda _: 1 // 0, None)
    with pytest.raises(BadKey, match="no part"):
        derive(lambda _: (), None)


@pytest.mark.parametrize("name", ["at", "total", "ratio"])
def test_a_field_whose_type_has_no_one_spelling_is_refused_at_import(name: str) -> None:
    (problem,) = check_key(name, Payload)
    assert "more than one spelling, or may be missing" in problem


def test_a_field_that_may_be_missing_is_refused_at_import() -> None:
    assert check_key("maybe", Payload)
    assert check_key("tenant", Payload)


def test_a_misspelt_field_is_refused_with_the_nearest_and_the_others() -> None:
    (problem,) = check_key(("number", "knid"), Payload)
    assert "key='knid' is not a field of Payload. Did you mean kind?" in problem


@pytest.mark.parametrize("key", ["number", ("on", "kind", "id", "flag"), EACH_ENQUEUE, lambda p: p.number])
def test_a_sound_key_has_no_problems(key: Any) -> None:
    assert check_key(key, Payload) == []


@pytest.mark.parametrize("key", [(), 7, ("a", 1), None])
def test_what_is_no_key_is_refused(key: Any) -> None:
    assert check_key(key, Payload)


def test_a_payload_without_fields_needs_a_function() -> None:
    assert "Use a function" in check_key("x", str)[0]
