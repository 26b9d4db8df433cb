"""A conditional write of one item, as data. Policy makes it; a store only carries it out.

One small language keeps every store honest: DynamoDB's adapter renders it, the in-memory store evaluates it with
`apply`, and the contract suite runs the same writes on both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Item: TypeAlias = Mapping[str, Any]
"""Attributes of a stored item: str, int, bool, lists and mappings of them, and sets of int, which are never empty."""

Operator: TypeAlias = Literal["=", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Absent:
    attribute: str


@dataclass(frozen=True, slots=True)
class Is:
    """Compares a stored attribute; an absent attribute never matches, as in DynamoDB."""

    attribute: str
    operator: Operator
    value: str | int


@dataclass(frozen=True, slots=True)
class OneOf:
    attribute: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lacks:
    """A set does not have this number; true of an absent one."""

    attribute: str
    number: int


@dataclass(frozen=True, slots=True)
class AllOf:
    """True of no parts."""

    parts: tuple[Condition, ...]

    def __init__(self, *parts: Condition) -> None:
        object.__setattr__(self, "parts", parts)


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Condition, ...]

    def __init__(self, *parts: Condition) -> None:
        object.__setattr__(self, "parts", parts)


Condition: TypeAlias = Absent | Is | OneOf | Lacks | AllOf | AnyOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """`sets` are absolute; `absent_sets` apply where the attribute is absent; `adds` count from 0; `joins` and `leaves`
    put numbers into sets and take them out.

    `wants_item` False spares the store the new item; a refusing one comes back in any case.
    """

    id: str
    condition: Condition
    sets: Mapping[str, Any]
    absent_sets: Mapping[str, Any] = field(default_factory=dict[str, Any])
    adds: Mapping[str, int] = field(default_factory=dict[str, int])
    joins: Mapping[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])
    leaves: Mapping[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])
    removes: tuple[str, ...] = ()
    wants_item: bool = True


@dataclass(frozen=True, slots=True)
class Written:
    """`item` is the new item where `applied` and wanted, else the one that refused the write (None: there was none)."""

    applied: bool
    item: Item | None


def holds(condition: Condition, item: Item | None) -> bool:
    """DynamoDB's meaning of a condition, for stores that are not DynamoDB."""
    stored = item or {}
    match condition:
        case Absent(attribute):
            return attribute not in stored
        case Is(attribute, operator, value):
            return attribute in stored and _compare(stored[attribute], operator, value)
        case OneOf(attribute, values):
            return attribute in stored and stored[attribute] in values
        case Lacks(attribute, number):
            return number not in stored.get(attribute, ())
        case AllOf(parts):
            return all(holds(part, item) for part in parts)
        case AnyOf(parts):
            return any(holds(part, item) for part in parts)


def apply(write: Write, item: Item | None) -> Written:
    """The outcome of the write on `item`, which is not changed."""
    if not holds(write.condition, item):
        return Written(False, item)
    old = item or {"id": write.id}
    new = {**write.absent_sets, **old, **write.sets}
    new |= {name: old.get(name, 0) + step for name, step in write.adds.items()}
    new |= {name: frozenset(old.get(name, ())) | numbers for name, numbers in write.joins.items()}
    new |= {name: frozenset(old.get(name, ())) - numbers for name, numbers in write.leaves.items()}
    gone = {*write.removes, *(name for name in (*write.joins, *write.leaves) if not new[name])}
    return Written(True, {name: value for name, value in new.items() if name not in gone})


def _compare(stored: Any, operator: Operator, value: str | int) -> bool:
    if isinstance(stored, str) != isinstance(value, str):
        return False
    match operator:
        case "=":
            return bool(stored == value)
        case "<":
            return bool(stored < value)
        case "<=":
            return bool(stored <= value)
        case ">":
            return bool(stored > value)
        case ">=":
            return bool(stored >= value)
