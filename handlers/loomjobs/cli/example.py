"""An example value of a payload type, the same each time."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect as types

from loomjobs.core.payload import decode
from loomjobs.core.payload_type import is_pydantic

_TEXTS: dict[type, Any] = {
    types.IntType: 1,
    types.FloatType: 1.5,
    types.BoolType: True,
    types.StrType: "00001",
    types.DecimalType: "12.50",
    types.DateType: "2026-01-01",
    types.DateTimeType: "2026-01-01T02:00:00Z",
    types.TimeType: "02:00:00Z",
    types.TimeDeltaType: "PT1H",
    types.UUIDType: "00000000-0000-4000-8000-000000000001",
    types.AnyType: "anything",
    types.NoneType: None,
}


def example(type_: Any) -> Any:
    """A payload of this type, every field filled. Raises BadPayload where its own checks refuse the examples."""
    if is_pydantic(type_):
        return type_.model_construct()
    return decode(_value(types.type_info(type_)), type_)


def _value(node: Any) -> Any:
    if type(node) in _TEXTS:
        return _TEXTS[type(node)]
    if isinstance(node, types.EnumType):
        return msgspec.to_builtins(next(iter(node.cls)))
    if isinstance(node, types.LiteralType):
        return node.values[0]
    if isinstance(node, types.UnionType):
        return _value(next(each for each in node.types if not isinstance(each, types.NoneType)))
    if isinstance(node, (types.ListType, types.SetType, types.FrozenSetType, types.VarTupleType)):
        return [_value(node.item_type)]
    if isinstance(node, types.TupleType):
        return [_value(each) for each in node.item_types]
    if isinstance(node, types.DictType):
        return {"key": _value(node.value_type)}
    return {field.encode_name: _value(field.type) for field in getattr(node, "fields", ())}
