"""Places in a payload: which types may stand at one, what is marked on them, and the places within."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import (
    Annotated,
    Any,
    Final,
    NewType,
    NotRequired,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from loomjobs.core.payload_type import is_pydantic


@dataclass(frozen=True, slots=True)
class Field:
    """`name` in Python, `members` in JSON: more than one where a pydantic model has aliases."""

    name: str
    members: tuple[str, ...]
    hint: Any


@dataclass(frozen=True, slots=True)
class Place:
    """`types` may stand here, with `Annotated`, `| None` and the like taken off; `marks` is what stood in them."""

    types: tuple[Any, ...]
    marks: tuple[Any, ...]

    def member(self, name: str) -> Place:
        """The value of a member of a JSON object that stands here."""
        named = (field for each in self.types for field in fields(each) if name in field.members)
        return _merged(*(field.hint for field in named), *self._values())

    def items(self) -> Place:
        """Each item of a JSON array that stands here; models too may be written as arrays."""
        inner = [field.hint for each in self.types for field in fields(each)]
        inner += [arg for each in self.types if not _is_mapping(each) for arg in get_args(each) if not fields(each)]
        return _merged(*inner)

    def keys(self) -> Place:
        return _merged(*(get_args(each)[0] for each in self.types if _is_mapping(each)))

    def inner(self) -> Iterator[tuple[str, Place]]:
        """All the places directly within, each with how a path goes on to it."""
        yield from ((f".{f.name}", place_of(f.hint)) for each in self.types for f in fields(each))
        if any(get_args(each) and not fields(each) and not _is_mapping(each) for each in self.types):
            yield "[]", self.items()
        if any(map(_is_mapping, self.types)):
            yield "{}", _merged(*self._values())
            yield "{key}", self.keys()

    def _values(self) -> Iterator[Any]:
        return (get_args(each)[1] for each in self.types if _is_mapping(each))


def place_of(hint: Any) -> Place:
    """The place that a type hint describes."""
    return _merged(hint)


def fields(type_: Any) -> tuple[Field, ...]:
    """The fields of a dataclass, Struct, TypedDict, NamedTuple or pydantic model, with what is annotated on them."""
    try:
        return _fields(type_)
    except TypeError:  # not hashable, so no class
        return ()


@lru_cache(maxsize=1_024)
def _fields(type_: Any) -> tuple[Field, ...]:
    cls = get_origin(type_) or type_
    if not isinstance(cls, type):
        return ()
    if is_pydantic(cls):
        return tuple(_pydantic(cls))
    if issubclass(cls, msgspec.Struct):
        return tuple(Field(each.name, (each.encode_name,), each.type) for each in msgspec.structs.fields(type_))
    if not (dataclasses.is_dataclass(cls) or is_typeddict(cls) or hasattr(cls, "_fields")):
        return ()
    hints = get_type_hints(cls, include_extras=True)
    names = [each.name for each in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else list(hints)
    given = dict(zip(getattr(cls, "__parameters__", ()), get_args(type_), strict=False))
    return tuple(Field(name, (name,), _filled(hints[name], given)) for name in names)


def _pydantic(cls: Any) -> Iterator[Field]:
    for name, info in cls.model_fields.items():
        aliases = {info.alias, info.serialization_alias, info.validation_alias}
        members = (name, *(each for each in aliases if isinstance(each, str) and each != name))
        marked = [each for each in info.metadata if each is not None]
        yield Field(name, members, Annotated[(info.annotation, *marked)] if marked else info.annotation)


def _filled(hint: Any, given: Mapping[Any, Any]) -> Any:
    """The hint of a generic class's field, with its type variables replaced."""
    if isinstance(hint, TypeVar):
        return given.get(hint, hint)
    open_ = getattr(hint, "__parameters__", ())
    return hint[tuple(given.get(each, each) for each in open_)] if given and open_ else hint


_TRANSPARENT: Final = (Required, NotRequired, Final)


def _merged(*hints: Any) -> Place:
    """One place for all of these."""
    found: list[Any] = []
    marks: list[Any] = []
    stack = list(hints)
    while stack:
        hint = stack.pop(0)
        origin = get_origin(hint)
        if origin is Annotated:
            marks.extend(hint.__metadata__)
            stack.append(hint.__origin__)
        elif origin in (Union, types.UnionType):
            stack.extend(get_args(hint))
        elif origin in _TRANSPARENT:
            stack.append(get_args(hint)[0])
        elif isinstance(hint, NewType):
            stack.append(hint.__supertype__)
        elif type(hint).__name__ == "TypeAliasType":  # Python 3.12's `type X = ...`
            stack.append(hint.__value__)
        elif hint is not type(None):
            found.append(hint)
    return Place(tuple(found), tuple(marks))


def _is_mapping(type_: Any) -> bool:
    origin = get_origin(type_)
    return isinstance(origin, type) and issubclass(origin, Mapping) and len(get_args(type_)) == 2
