"""Payloads: strict both ways, one error, a place and never a value."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomjobs.core.errors import BadPayload
from loomjobs.core.payload import DEPTH, decode, digest, encode, parse
from loomjobs.core.payload_type import check_type, field_names


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Line:
    sku: str
    price: Decimal


@dataclass(frozen=True)
class Order:
    id: int
    name: str
    on: date
    lines: list[Line] = field(default_factory=list[Line])
    at: datetime | None = None
    color: Color = Color.RED
    ratio: float = 0.5
    tags: dict[str, int] = field(default_factory=dict[str, int])
    kind: Literal["a", "b"] = "a"
    token: UUID | None = None


class Struct(msgspec.Struct, frozen=True):
    id: int
    at: datetime | None = None


class Model(pydantic.BaseModel):
    id: int
    price: Decimal = Decimal(1)


@dataclass
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("odd")


ORDER = Order(1, "é☃", date(2026, 1, 1), [Line("x", Decimal("12.50"))], datetime(2026, 1, 1, tzinfo=UTC))


def back(value: Any, type_: Any) -> Any:
    return decode(parse(encode(value, type_)), type_)


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (ORDER, Order),
        (Struct(2**62, datetime(2026, 1, 1, tzinfo=UTC)), Struct),
        (Model(id=1, price=Decimal("0.10")), Model),
        (Even(2), Even),
        ("text", str),
        ({"a": 1}, dict[str, int]),
        ([1, 2], list[int]),
        (timedelta(hours=1), timedelta),
        (time(2, tzinfo=UTC), time),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_a_payload_comes_back_as_it_was(value: Any, type_: Any) -> None:
    assert back(value, type_) == value


@given(
    st.builds(
        Order,
        st.integers(-(2**63), 2**63 - 1),
        st.text(st.characters(exclude_categories=["Cs"])),
        st.dates(),
        st.lists(
            st.builds(Line, st.text("ab\x00\t\ufffe\uffff€😀"), st.decimals(allow_nan=False, allow_infinity=False))
        ),
        st.none() | st.datetimes(timezones=st.just(UTC)),
        st.sampled_from(Color),
        st.floats(allow_nan=False, allow_infinity=False),
    )
)
def test_whatever_can_be_encoded_comes_back_as_it_was(order: Order) -> None:
    assert back(order, Order) == order


@pytest.mark.parametrize(
    ("value", "path", "what"),
    [
        (Order(1, "x", date(2026, 1, 1), ratio=float("nan")), "$.ratio", "finite"),
        (Order(1, "x", date(2026, 1, 1), ratio=float("-inf")), "$.ratio", "finite"),
        (Order(1, "x", date(2026, 1, 1), [Line("x", Decimal("NaN"))]), "$.lines[0].price", "finite decimal"),
        (Order(1, "x", date(2026, 1, 1), at=datetime(2026, 1, 1)), "$.at", "without time zone"),  # noqa: DTZ001
        (Order(1, "\ud800", date(2026, 1, 1)), "$.name", "surrogate"),
        (Order(1, "x", date(2026, 1, 1), tags={"\udfff": 1}), "$.tags.<key>", "surrogate"),
    ],
)
def test_what_json_cannot_carry_is_refused_with_its_place(value: Any, path: str, what: str) -> None:
    with pytest.raises(BadPayload, match=what) as caught:
        encode(value, Order)
    assert caught.value.path == path


@pytest.mark.parametrize(
    "wrong",
    [
        Order("1", "x", date(2026, 1, 1)),  # type: ignore[arg-type]
        Order(1, "x", "2026-13-01"),  # type: ignore[arg-type]
        Order(1, "x", date(2026, 1, 1), [{"sku": 1}]),  # type: ignore[list-item]
        Line("x", Decimal(1)),
        None,
        object(),
        {"id": 1},
    ],
)
def test_a_value_of_the_wrong_type_is_refused_where_it_is_sent(wrong: Any) -> None:
    with pytest.raises(BadPayload):
        encode(wrong, Order)


def test_a_refused_value_is_not_in_the_message() -> None:
    with pytest.raises(BadPayload) as caught:
        decode({"id": "s3cret", "name": "x", "on": "2026-01-01"}, Order)
    assert "s3cret" not in str(caught.value)
    assert caught.value.path == "$.id"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"id": 1, "id": 2}', "stands twice"),
        ('{"a": {"b": 1, "b": 2}}', "stands twice"),
        ('{"id": NaN}', "NaN is not JSON"),
        ('{"id": -Infinity}', "-Infinity is not JSON"),
        ('{"id": 1e999}', "finite"),
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[" * (DEPTH + 2) + "]" * (DEPTH + 2), "nested deeper"),
        ("[" * 100_000 + "]" * 100_000, "not JSON|nested"),
        ('"\\ud800"', "surrogate"),
    ],
    ids=range(10),
)
def test_text_that_json_leaves_open_is_refused(text: str, what: str) -> None:
    with pytest.raises(BadPayload, match=what):
        parse(text)


@given(st.text() | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(repr))
def test_no_text_raises_anything_but_bad_payload(text: str) -> None:
    with suppress(BadPayload):
        decode(parse(text), Order)


def test_unknown_fields_are_ignored_unless_the_job_is_strict() -> None:
    data: Any = {"id": 1, "name": "x", "on": "2026-01-01", "new": 1, "lines": [{"sku": "a", "price": "1", "extra": 2}]}
    assert decode(data, Order).id == 1
    with pytest.raises(BadPayload, match="unknown field") as caught:
        decode(data, Order, strict=True)
    assert caught.value.path == "$.new"
    del data["new"]
    with pytest.raises(BadPayload) as caught:
        decode(data, Order, strict=True)
    assert caught.value.path == "$.lines[0].extra"


def test_a_types_own_check_is_a_bad_payload() -> None:
    with pytest.raises(BadPayload, match="odd"):
        decode({"number": 1}, Even)


def test_a_decimal_travels_as_text() -> None:
    assert json.loads(encode(ORDER, Order))["lines"][0]["price"] == "12.50"


def test_a_digest_ignores_the_order_of_members_and_nothing_else() -> None:
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
    assert len({digest(value) for value in ({"a": 1}, {"a": 2}, {"a": "1"}, {"a": 1.5}, {"b": 1}, [1], None)}) == 7


@dataclass
class WithObject:
    thing: complex


@dataclass
class WithBytes:
    inner: list[bytes]


@pytest.mark.parametrize(
    ("type_", "what"), [(WithObject, "complex"), (WithBytes, "holds bytes"), (set[WithObject], "complex")]
)
def test_a_type_that_cannot_travel_is_refused_with_the_cure(type_: Any, what: str) -> None:
    (problem,) = check_type(type_)
    assert what in problem


@pytest.mark.parametrize("type_", [Order, Struct, Model, Even, str, dict[str, Line], list[Order]])
def test_a_type_of_plain_fields_has_no_problems(type_: Any) -> None:
    assert check_type(type_) == []


@dataclass
class Tree:
    name: str
    children: list[Tree]


def test_a_type_that_contains_itself_is_fine() -> None:
    assert check_type(Tree) == []
    tree = Tree("a", [Tree("b", [])])
    assert back(tree, Tree) == tree


def test_fields_are_known_for_every_kind() -> None:
    assert field_names(Line) == ("sku", "price")
    assert field_names(Struct) == ("id", "at")
    assert field_names(Model) == ("id", "price")
    assert field_names(str) == ()
