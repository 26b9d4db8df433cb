"""What a payload type may be made of, and its fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator
from functools import lru_cache
from typing import Any, get_origin

import msgspec
from msgspec import inspect as types

_KINDS = "a dataclass, a msgspec.Struct or (where installed) a pydantic model"


def is_pydantic(type_: Any) -> bool:
    """Asked before anything else, since a pydantic dataclass is a dataclass too. Nothing is imported for it."""
    return isinstance(type_, type) and hasattr(type_, "model_validate_json") and hasattr(type_, "model_fields")


def field_names(type_: Any) -> tuple[str, ...]:
    """The fields of a payload type, in order; empty for a plain type such as str."""
    base = get_origin(type_) or type_
    if is_pydantic(base):
        return tuple(base.model_fields)
    if isinstance(base, type) and issubclass(base, msgspec.Struct):
        return base.__struct_fields__
    if dataclasses.is_dataclass(base):
        return tuple(field.name for field in dataclasses.fields(base))
    return ()


def fields_of(value: object) -> tuple[str, ...]:
    """The fields of a payload object."""
    class_: Any = type(value)  # mypy takes a class for unhashable
    return _class_fields(class_)


@lru_cache(maxsize=1_024)
def _class_fields(type_: Hashable) -> tuple[str, ...]:
    """Of a class they never change, and every value of every message is asked."""
    return field_names(type_)


def check_type(type_: Any) -> list[str]:
    """What of the type cannot travel as JSON, each with its cure; empty when all can."""
    if is_pydantic(type_):
        return []
    try:
        root = types.type_info(type_)
        msgspec.json.Decoder(type_)
    except (TypeError, NameError, RecursionError, ValueError) as error:
        return [f"its payload type {_name(type_)} cannot be decoded: {error}. Use {_KINDS} with fields of plain types"]
    return list(_unfit(root, _name(type_), set()))


def _unfit(node: Any, path: str, seen: set[int]) -> Iterator[str]:
    if isinstance(node, (types.CustomType, types.RawType, types.ExtType)):
        kind = _name(getattr(node, "cls", type(node)))
        yield f"{path} has the type {kind}, which JSON does not carry. Use str, int, Decimal, date, UUID or {_KINDS}"
    elif isinstance(node, (types.BytesType, types.ByteArrayType, types.MemoryViewType)):
        yield f"{path} holds bytes. Store them (S3) and pass their address"
    cls = getattr(node, "cls", None)
    if cls is not None:
        if id(cls) in seen:
            return
        seen.add(id(cls))
    for label, child in _children(node):
        yield from _unfit(child, f"{path}{label}", seen)


def _children(node: Any) -> Iterator[tuple[str, Any]]:
    for field in getattr(node, "fields", ()):
        if hasattr(field, "type"):
            yield f".{field.name}", field.type
    for each in getattr(node, "types", ()):
        yield "", each
    for label, name in (("[]", "item_type"), ("{}", "value_type"), ("{key}", "key_type")):
        child = getattr(node, name, None)
        if child is not None:
            yield label, child
    for place, each in enumerate(getattr(node, "item_types", ())):
        yield f"[{place}]", each


def _name(type_: Any) -> str:
    return getattr(type_, "__name__", str(type_))
