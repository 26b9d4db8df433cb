"""Renders a `Write` as a PartiQL statement, so that one BatchExecuteStatement carries many."""

from __future__ import annotations

from typing import Any, TypeAlias

from boto3.dynamodb.types import TypeSerializer

from loomjobs.core.write import Absent, AllOf, Condition, Is, Write

Statement: TypeAlias = dict[str, Any]

_serialize = TypeSerializer().serialize


def statement(write: Write, table: str) -> Statement | None:
    """The statement, or None for a write that PartiQL cannot say (`absent_sets`, `adds`, other conditions).

    An INSERT is refused where the item exists; an UPDATE never makes an item.
    """
    if write.condition == Absent("id"):
        return None if write.adds or write.removes or write.joins or write.leaves else _insert(write, table)
    where = _where(write.condition)
    if not where or write.absent_sets or write.adds or write.joins or write.leaves:
        return None
    sets = " ".join(f'SET "{name}"=?' for name in write.sets)
    removes = "".join(f' REMOVE "{name}"' for name in write.removes)
    values = [*write.sets.values(), write.id, *(value for _, value in where)]
    conditions = "".join(f" AND {term}" for term, _ in where)
    return _statement(f'UPDATE "{table}" {sets}{removes} WHERE "id"=?{conditions}', values)


def _insert(write: Write, table: str) -> Statement:
    item = {"id": write.id, **write.absent_sets, **write.sets}
    members = ", ".join(f"'{name}': ?" for name in item)
    return _statement(f'INSERT INTO "{table}" VALUE {{{members}}}', list(item.values()))


def _where(condition: Condition) -> list[tuple[str, Any]] | None:
    """Comparisons joined by AND, which is what every fenced write asks for."""
    parts = condition.parts if isinstance(condition, AllOf) else (condition,)
    if not all(isinstance(part, Is) for part in parts):
        return None
    return [(f'"{part.attribute}"{part.operator}?', part.value) for part in parts if isinstance(part, Is)]


def _statement(text: str, values: list[Any]) -> Statement:
    return {
        "Statement": text,
        "Parameters": [_serialize(value) for value in values],
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
