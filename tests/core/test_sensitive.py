"""Which parts of a payload are marked, in every kind of type, and what is left when they are masked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Generic, NamedTuple, NewType, NotRequired, TypedDict, TypeVar

import msgspec
import pydantic
import pytest

from loomjobs import Sensitive, masked
from loomjobs.core.errors import BadPayload
from loomjobs.core.payload import decode, encode, plain
from loomjobs.core.sensitive import is_marked, leaves, marked_fields, mask, visible

T = TypeVar("T")
Pan = Annotated[str, Sensitive()]
Typed = NewType("Typed", Pan)  # type: ignore[valid-newtype]


@dataclass(frozen=True)
class Box(Generic[T]):
    inside: T


class Keys(TypedDict):
    open: str
    hidden: NotRequired[Annotated[str, Sensitive()]]


class Pair(NamedTuple):
    open: str
    hidden: Annotated[str, Sensitive()]


@dataclass(frozen=True)
class Card:
    holder: str
    number: Annotated[str, Sensitive()]


@dataclass(frozen=True)
class Tree:
    name: str
    secret: Annotated[str | None, Sensitive()] = None
    children: list[Tree] = field(default_factory=list["Tree"])


class Struct(msgspec.Struct, rename="camel"):
    open_field: str
    card_number: Annotated[str, Sensitive()] | None = None


class Row(msgspec.Struct, array_like=True):
    open: str
    hidden: Annotated[str, Sensitive()]


class Model(pydantic.BaseModel):
    open: str
    hidden: Annotated[str, Sensitive()] = ""
    renamed: Annotated[str, Sensitive()] = pydantic.Field("", validation_alias="wireName")
    inner: list[Annotated[str, Sensitive()]] = []


KINDS: list[tuple[Any, Any, list[Any]]] = [
    (Card, {"holder": "h", "number": "n1"}, ["n1"]),
    (Struct, {"openField": "o", "cardNumber": "n1"}, ["n1"]),
    (Row, ["o", "n1"], ["o", "n1"]),
    (Model, {"open": "o", "hidden": "n1", "wireName": "n2", "inner": ["n3"]}, ["n1", "n2", "n3"]),
    (
        Tree,
        {"name": "o", "children": [{"name": "p", "secret": "n1", "children": [{"name": "q", "secret": "n2"}]}]},
        ["n1", "n2"],
    ),
    (list[Card], [{"holder": "h", "number": "n1"}], ["n1"]),
    (Box[Card], {"inside": {"holder": "h", "number": "n1"}}, ["n1"]),
    (Box[Annotated[str, Sensitive()]], {"inside": "n1"}, ["n1"]),
    (Box[list[Annotated[int, Sensitive()]]], {"inside": [1, 2]}, [1, 2]),
    (Box[dict[str, Pan]], {"inside": {"a": "n1"}}, ["n1"]),
    (Box[Mapping[str, Sequence[Pan]]], {"inside": {"a": ["n1"]}}, ["n1"]),
    (Box[Annotated[dict[str, str], Sensitive()]], {"inside": {"key1": "n1"}}, ["key1", "n1"]),
    (Box[Annotated[Card, Sensitive()]], {"inside": {"holder": "h", "number": "n1"}}, ["h", "holder", "n1", "number"]),
    (Box[Pan | None], {"inside": None}, []),
    (Box[Pan | Card], {"inside": {"holder": "h", "number": "n1"}}, ["h", "holder", "n1", "number"]),
    (Box[tuple[str, Pan]], {"inside": ["o", "n1"]}, ["n1", "o"]),
    (Box[Typed], {"inside": "n1"}, ["n1"]),
    (Box[Keys], {"inside": {"open": "o", "hidden": "n1"}}, ["n1"]),
    (Box[Pair], {"inside": ["o", "n1"]}, ["n1", "o"]),
    (Box[Annotated[str, Sensitive]], {"inside": "n1"}, ["n1"]),
    (Box[Annotated[float, Sensitive()]], {"inside": 1.5}, [1.5]),
    (Box[Annotated[bool, Sensitive()]], {"inside": True}, []),
]


@pytest.mark.parametrize(("type_", "data", "found"), KINDS, ids=lambda value: str(value)[:60])
def test_what_is_marked_is_found_in_every_kind_of_type(type_: Any, data: Any, found: list[Any]) -> None:
    assert is_marked(type_)
    assert sorted((value for _, value in leaves(data, type_)), key=str) == sorted(found, key=str)
    hidden = mask(data, type_)
    assert "*****" in str(hidden)
    assert not any(f"'{value}'" in str(hidden) for value in found if str(value)[0] == "n")


@pytest.mark.parametrize(
    "type_", [str, int, dict[str, int], list[date], Any, object, Box[str], Box[Decimal], Pair.__mro__[1]]
)
def test_a_type_without_marks_has_none(type_: Any) -> None:
    assert not is_marked(type_)
    assert list(leaves({"a": ["x"]}, type_)) == []
    assert mask({"a": ["x"]}, type_) == {"a": ["x"]}


def test_a_leaf_is_named_by_the_top_member_that_holds_it() -> None:
    data = {"name": "o", "children": [{"name": "p", "secret": "n1"}], "secret": "n2"}
    assert set(leaves(data, Tree)) == {("children", "n1"), ("secret", "n2")}
    assert list(leaves({"name": 7}, Tree, everything=True)) == [("name", 7)]


def test_data_that_is_not_of_its_type_is_walked_without_an_error() -> None:
    for data in ("text", 1, None, [[]], {"number": {"x": ["deep"]}}, {"holder": {"number": "open"}}):
        list(leaves(data, Card))
        mask(data, Card)
    assert list(leaves({"number": {"x": ["deep"]}}, Card)) == [("number", "x"), ("number", "deep")]


def test_the_top_fields_that_hold_something_marked_are_known() -> None:
    assert marked_fields(Card) == ("number",)
    assert marked_fields(Tree) == ("secret", "children")
    assert marked_fields(str) == ()


@pytest.mark.parametrize(
    ("path", "type_", "shown"),
    [
        ("$.number", Card, "$.number"),
        ("$.number.4111.x", Card, "$.number"),
        ("$.holder", Card, None),
        ("$", Card, None),
        ("$.children[0].secret.x", Tree, "$.children[0].secret"),
        ("$.inside[…].alice", Box[dict[str, Pan]], "$.inside[…]"),
        ("$.inner.0.alice", Model, "$.inner.0"),
        ("$.inside.Card.number.4111", Box[Card | int], "$.inside.Card.number"),
    ],
)
def test_a_path_ends_at_what_is_marked(path: str, type_: Any, shown: str | None) -> None:
    assert visible(path, type_) == shown


def test_a_payload_to_be_logged_has_its_values_masked() -> None:
    assert masked(Card("Alice", "4111")) == {"holder": "Alice", "number": "*****"}
    assert masked(Tree("a", None)) == {"name": "a", "secret": "*****", "children": []}
    assert masked(Model(open="o", hidden="x"))["hidden"] == "*****"  # type: ignore[index]


class Checked(msgspec.Struct):
    pin: Annotated[str, Sensitive()]
    name: str = ""

    def __post_init__(self) -> None:
        if self.pin != "good":
            raise ValueError(f"{self.name} has the pin {self.pin}")


class CheckedModel(pydantic.BaseModel):
    pin: Annotated[str, Sensitive()]

    @pydantic.model_validator(mode="after")
    def check(self) -> CheckedModel:
        raise ValueError(f"the pin {self.pin}")


class FieldModel(pydantic.BaseModel):
    pins: Annotated[dict[str, int], Sensitive()]


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        (Checked, {"pin": "hunter2"}),
        (CheckedModel, {"pin": "hunter2"}),
        (FieldModel, {"pins": {"hunter2": "x"}}),
        (Box[Annotated[dict[str, int], Sensitive()]], {"inside": {"hunter2": "x"}}),
        (Card, {"holder": "x", "number": {"hunter2": 1}}),
        (Card, {"holder": {"hunter2": 1}, "number": "x"}),
        (Card, {"holder": 7, "number": "hunter2"}),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_a_refusal_and_its_causes_tell_no_value(type_: Any, data: Any, strict: bool) -> None:
    with pytest.raises(BadPayload) as caught:
        decode(data, type_, strict=strict)
    error: BaseException | None = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    assert "hunter2" not in str(error)


def test_an_unknown_member_within_a_sensitive_field_is_not_named() -> None:
    with pytest.raises(BadPayload) as caught:
        decode({"inside": {"holder": "h", "number": "n", "hunter2": 1}}, Box[Annotated[Card, Sensitive()]], strict=True)
    assert str(caught.value) == "$.inside: refused; no more is told of what is marked as sensitive"


def test_a_wrong_type_is_still_said() -> None:
    with pytest.raises(BadPayload, match=r"^\$.number: Expected `str`, got `int`$"):
        decode({"holder": "x", "number": 4111}, Card)
    with pytest.raises(BadPayload, match=r"^\$.holder: Expected `str`, got `int`$"):
        decode({"holder": 7, "number": "4111"}, Card)


@pytest.mark.parametrize(
    "payload",
    [Card("x", 41119999), Card(object(), "hunter2"), Card("\ud800", "hunter2")],  # type: ignore[arg-type]
)
def test_what_cannot_be_encoded_is_refused_without_its_values(payload: Any) -> None:
    with pytest.raises(BadPayload) as caught:
        encode(payload, type(payload))
    assert "hunter2" not in str(caught.value)
    assert "4111" not in str(caught.value)


def test_a_payload_with_marks_comes_back_as_it_was() -> None:
    for payload in (Card("é", "n1"), Tree("a", "s", [Tree("b", "t")]), Struct("o", "n"), Model(open="o", inner=["x"])):
        assert decode(plain(payload), type(payload)) == payload
        assert encode(payload, type(payload))
