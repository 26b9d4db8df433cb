"""Fields marked as sensitive: which parts of a payload they are, and the payload without their values."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from loomjobs.core.place import Place, fields, place_of

MASK: Final = "*****"
"""What stands for a masked value, as in Powertools' data masking."""

Leaf = tuple[str, Any]
"""A sensitive text or number, and the name of the payload's member that holds it."""


@dataclass(frozen=True, slots=True)
class Sensitive:
    """Marks a payload field whose value is not to be shown: `card: Annotated[str, Sensitive()]`.

    All that is within it is meant too, of whatever type. It may stand on fields of models within the payload, on
    items of a list and on values of a dict; not on keys of a dict, and not on what `key=`, `group=`, `exclusive=` or
    `rate=` of its job name.
    """


@dataclass(frozen=True, slots=True)
class Encrypted:
    """Marks a payload field as sensitive (see `Sensitive`) that travels encrypted: `iban: Annotated[str, Encrypted()]`.

    It is encrypted with the environment's KMS key when the job is sent, and decrypted in the worker that runs it. In
    the queue, the outbox and the dead-letter queue `*****` stands in its place, and the ciphertext beside the payload.
    Two payloads that differ in such fields only have the same hash: under one key the second is a duplicate.
    """


def is_marked(type_: Any) -> bool:
    """Whether anything in this payload type is sensitive; known once per type."""
    try:
        return _is_marked(type_)
    except TypeError:  # not hashable
        return any(is_sensitive(place) for _, place in places(type_))


def is_sensitive(place: Place) -> bool:
    """The class itself counts too: a mark without its parentheses must not be a mark that does nothing."""
    return is_encrypted(place) or any(isinstance(mark, Sensitive) or mark is Sensitive for mark in place.marks)


def is_encrypted(place: Place) -> bool:
    return any(isinstance(mark, Encrypted) or mark is Encrypted for mark in place.marks)


def places(type_: Any) -> Iterator[tuple[str, Place]]:
    """Every place of a type once, with its path."""
    seen: set[Any] = set()
    stack = [("", place_of(type_))]
    while stack:
        path, place = stack.pop()
        yield path, place
        fresh = tuple(each for each in place.types if isinstance(each, Hashable) and each not in seen)
        seen.update(fresh)
        stack.extend((path + step, each) for step, each in Place(fresh, ()).inner())


def marked_fields(type_: Any) -> tuple[str, ...]:
    """The top fields, by their names in Python, that are sensitive or hold what is."""
    return tuple(field.name for field in fields(type_) if is_marked(field.hint))


def leaves(data: object, type_: Any, *, everything: bool = False) -> Iterator[Leaf]:
    """The sensitive texts and numbers of plain JSON values, dict keys within sensitive fields too; `everything` takes
    all values for sensitive, for data that may not be of the type."""
    stack: list[tuple[str, Any, Place, bool]] = [("payload", data, place_of(type_), everything)]
    is_top = True
    while stack:
        name, value, place, taken = stack.pop()
        taken = taken or is_sensitive(place)
        if isinstance(value, Mapping):
            for member, each in value.items():
                inner = member if is_top and _NAME.fullmatch(str(member)) else name
                if taken and not is_top:
                    yield name, str(member)
                stack.append((inner, each, place.member(str(member)), taken))
        elif isinstance(value, (list, tuple)):
            stack.extend((name, each, place.items(), taken) for each in value)
        elif taken and value is not None and not isinstance(value, bool):
            yield name, value
        is_top = False


def mask(data: object, type_: Any) -> object:
    """Plain JSON values with `*****` for each that is sensitive, whatever it is."""
    return _mask(data, place_of(type_))


def visible(path: str, type_: Any) -> str | None:
    """The part of a path such as `$.cards[0].number` that leads to the first sensitive place; None if it meets none."""
    place, end = place_of(type_), 1
    for step in _STEP.finditer(path, 1):
        if is_sensitive(place):
            return path[:end]
        inner = _within(place, step[1])
        place = inner if inner.types or inner.marks else place  # pydantic names a union's alternatives in its paths
        end = step.end()
    return path[:end] if is_sensitive(place) else None


@lru_cache(maxsize=1_024)
def _is_marked(type_: Any) -> bool:
    return any(is_sensitive(place) for _, place in places(type_))


def _mask(value: object, place: Place) -> object:
    if is_sensitive(place):
        return MASK
    if isinstance(value, Mapping):
        return {name: _mask(each, place.member(str(name))) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mask(each, place.items()) for each in value]
    return value


def _within(place: Place, name: str | None) -> Place:
    """`[3]`, in pydantic's paths `.3`, is an item; `[…]` a value of a dict, whose key is not told."""
    if name is not None and not name.isdigit():
        return place.member(name)
    item, value = place.items(), place.member(name or "")
    return Place(item.types + value.types, item.marks + value.marks)


_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_-]{0,39}")
_STEP: Final = re.compile(r"\.([^.\[]+)|\[[^\]]*\]")
