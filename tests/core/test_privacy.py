"""Marks that would be ignored, or whose values would be names, are refused at import with a cure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Generic, TypeVar

import pytest

from loomjobs import EACH_ENQUEUE, DeclarationError, InvalidOption, JobContext, Rate, Sensitive, call
from tests.core.catalogue_fixture import BILLING, LEDGER, declare

T = TypeVar("T")


@dataclass(frozen=True)
class Card:
    id: str
    number: Annotated[str, Sensitive()]


@dataclass(frozen=True)
class Box(Generic[T]):
    id: str
    inside: T


def pay(card: Card, ctx: JobContext) -> None: ...


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"key": "number"}, "key= names the sensitive field 'number'"),
        ({"key": ("id", "number")}, "or key= as a function that hashes it"),
        ({"key": "id", "exclusive": "number"}, "exclusive= names the sensitive field 'number'"),
        ({"key": "id", "exclusive": ("id", "number")}, "Use a surrogate id"),
        (
            {"key": "id", "rate": Rate(1, per=timedelta(seconds=1), key="number")},
            "the key of rate= names the sensitive",
        ),
        ({"key": "id", "queue": LEDGER, "group": "number"}, "group= names the sensitive field 'number'"),
    ],
)
def test_a_sensitive_field_is_no_name(options: dict[str, Any], what: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        declare("billing.pay", function=pay, **options)
    assert what in str(caught.value)
    assert "billing.pay" in caught.value.problems[0].where


def test_every_such_option_is_reported_at_once() -> None:
    with pytest.raises(DeclarationError) as caught:
        declare("billing.pay", function=pay, key="number", exclusive="number")
    assert len(caught.value.problems) == 2


def whole(card: Annotated[Card, Sensitive()], ctx: JobContext) -> None: ...
def text(number: Annotated[str, Sensitive()], ctx: JobContext) -> None: ...
def generic(box: Box[Annotated[str, Sensitive()]], ctx: JobContext) -> None: ...
def keys(box: Box[dict[Annotated[str, Sensitive()], int]], ctx: JobContext) -> None: ...
def result(card: Card, ctx: JobContext) -> Annotated[str, Sensitive()]: ...
def result_type(card: Card, ctx: JobContext) -> Card | None: ...


@dataclass(frozen=True)
class ByNumber:
    id: str
    totals: dict[Annotated[str, Sensitive()], int]


def dict_keys(totals: ByNumber, ctx: JobContext) -> None: ...


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (whole, "in the function's signature. Mark the fields of its type"),
        (text, "in the function's signature. Mark the fields of its type, a dataclass"),
        (generic, "in the function's signature"),
        (keys, "in the function's signature"),
        (result, "its result has a sensitive part"),
        (result_type, "its result has a sensitive part"),
        (dict_keys, "marks the keys of totals as sensitive. Mark the whole field"),
    ],
)
def test_a_mark_without_effect_is_refused(function: Any, what: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        declare("billing.pay", function=function, key=EACH_ENQUEUE)
    assert what in str(caught.value)


def test_a_key_whose_function_gives_a_sensitive_value_is_refused_when_it_is_called() -> None:
    for key in (lambda card: card.number, lambda card: (card.id, f"card-{card.number}")):
        job = declare("billing.pay", function=pay, key=key)
        with pytest.raises(InvalidOption, match="the value of a sensitive field") as caught:
            call(job, Card("1", "4111-1111/1"))
        assert "4111" not in str(caught.value)
    hashed = declare("billing.pay", function=pay, key=lambda card: hashlib.sha256(card.number.encode()).hexdigest())
    assert call(hashed, Card("1", "4111-1111/1")).key


def test_a_key_or_group_that_is_given_may_not_have_it_either() -> None:
    job = declare("billing.pay", BILLING, pay, key="id")
    with pytest.raises(InvalidOption, match="its key has"):
        call(job, Card("1", "4111-1111"), key="4111-1111")
    fifo = declare("billing.pay", LEDGER, pay, key="id", group="id")
    with pytest.raises(InvalidOption, match="its group has"):
        call(fifo, Card("1", "4111-1111"), group="of 4111-1111")
    assert call(fifo, Card("1", "4111-1111"), group="g", key="k").group == "g"


@dataclass(frozen=True)
class Order:
    id: str
    amount: Annotated[int, Sensitive()] = 0
    note: Annotated[str, Sensitive()] = ""


def order(order: Order, ctx: JobContext) -> None: ...


def test_a_value_that_is_in_the_key_by_chance_is_no_reason_to_refuse() -> None:
    for key in ("id", lambda order: order.id):
        job = declare("billing.order", function=order, key=key)
        assert call(job, Order("100", 100)).key == "100"
        assert call(job, Order("2026-001", note="2026-001")).key == "2026-001"
        assert call(job, Order("x-2026-001", note="2026-001")).key == "x-2026-001"


@dataclass(frozen=True)
class Unresolved:
    id: str
    other: Nowhere  # type: ignore[name-defined]  # noqa: F821


def unresolved(payload: Unresolved, ctx: JobContext) -> None: ...


def test_a_payload_type_whose_hints_do_not_resolve_is_a_finding_and_no_crash() -> None:
    with pytest.raises(DeclarationError, match="cannot be decoded"):
        declare("billing.open", function=unresolved, key="id")
