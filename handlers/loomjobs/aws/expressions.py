"""Renders a `Write` into the arguments of DynamoDB's UpdateItem."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

from loomjobs.core.write import Absent, AllOf, AnyOf, Condition, Is, Item, Lacks, OneOf, Write

_serialize = TypeSerializer().serialize
_deserialize = TypeDeserializer().deserialize


def update_arguments(write: Write) -> dict[str, Any]:
    """Key, expressions, names and values; the item comes back whether the condition holds or not."""
    terms = _Terms()
    sets = [f"{terms.name(key)} = {terms.value(value)}" for key, value in write.sets.items()]
    for key, value in write.absent_sets.items():
        name = terms.name(key)
        sets.append(f"{name} = if_not_exists({name}, {terms.value(value)})")
    for key, step in write.adds.items():
        name = terms.name(key)
        sets.append(f"{name} = if_not_exists({name}, {terms.value(0)}) + {terms.value(step)}")
    update = "SET " + ", ".join(sets)
    condition = _condition(write.condition, terms)
    if write.removes:
        update += " REMOVE " + ", ".join(terms.name(key) for key in write.removes)
    for verb, changes in (("ADD", write.joins), ("DELETE", write.leaves)):
        if changes:
            update += f" {verb} " + ", ".join(
                f"{terms.name(key)} {terms.value(set(each))}" for key, each in changes.items()
            )
    arguments = {
        "Key": {"id": {"S": write.id}},
        "UpdateExpression": update,
        "ExpressionAttributeNames": terms.names,
        "ExpressionAttributeValues": terms.values,
        "ReturnValues": "ALL_NEW" if write.wants_item else "NONE",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    # rendered before: its names and values are among the arguments
    return arguments | ({"ConditionExpression": condition} if condition else {})


def typed_item(item: Item) -> dict[str, Any]:
    """Plain values as DynamoDB's typed attributes."""
    return {name: _serialize(value) for name, value in item.items()}


def to_item(stored: dict[str, Any]) -> Item:
    """DynamoDB's typed attributes as plain values; numbers are ints, since records hold no others."""
    return {name: _plain(_deserialize(value)) for name, value in stored.items()}


class _Terms:
    """Placeholders, so that no attribute name can meet a reserved word."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.values: dict[str, Any] = {}

    def name(self, attribute: str) -> str:
        placeholder = f"#{attribute}"
        self.names[placeholder] = attribute
        return placeholder

    def value(self, value: Any) -> str:
        placeholder = f":v{len(self.values)}"
        self.values[placeholder] = _serialize(value)
        return placeholder


def _condition(condition: Condition, terms: _Terms) -> str:
    """Empty where anything goes, which only stands alone."""
    match condition:
        case AllOf(()):
            return ""
        case Lacks(attribute, number):
            return f"(NOT contains({terms.name(attribute)}, {terms.value(number)}))"
        case Absent(attribute):
            return f"attribute_not_exists({terms.name(attribute)})"
        case Is(attribute, operator, value):
            return f"{terms.name(attribute)} {operator} {terms.value(value)}"
        case OneOf(attribute, values):
            return f"{terms.name(attribute)} IN ({', '.join(terms.value(value) for value in values)})"
        case AllOf(parts):
            return "(" + " AND ".join(_condition(part, terms) for part in parts) + ")"
        case AnyOf(parts):
            return "(" + " OR ".join(_condition(part, terms) for part in parts) + ")"


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value)
    if isinstance(value, set):
        return frozenset(_plain(each) for each in value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value
