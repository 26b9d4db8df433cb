"""The idempotency key: which parts of a payload identify the work, as one unambiguous text."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from enum import Enum
from typing import Any, Final, TypeAlias, get_args, get_type_hints
from uuid import UUID

from loomjobs.core.errors import BadKey
from loomjobs.core.payload_type import field_names
from loomjobs.core.problem import nearest


class _EachEnqueue(Enum):
    """The type of EACH_ENQUEUE."""

    TOKEN = "each enqueue"  # noqa: S105 not a password


EACH_ENQUEUE: Final = _EachEnqueue.TOKEN
"""No business identity: every enqueue is work of its own, and only deliveries of one message are duplicates."""

KeyPart: TypeAlias = str | int | bool | date | UUID | Enum
Key: TypeAlias = str | tuple[str, ...] | _EachEnqueue | Callable[[Any], KeyPart | tuple[KeyPart, ...]]

_SPELLED = "str, int, bool, date, UUID or Enum"


def check_key(key: Key, type_: Any) -> list[str]:
    """What is wrong with a declared key; a function's parts are checked when it runs."""
    if key is EACH_ENQUEUE or (callable(key) and not isinstance(key, (str, tuple))):
        return []
    if not isinstance(key, (str, tuple)) or not key or not all(isinstance(name, str) for name in _names(key)):
        return [f"key={key!r} is not a key. Use a field name, a tuple of them, a function, or EACH_ENQUEUE"]
    known = field_names(type_)
    if not known:
        return [f"key={key!r} names a field, and {type_!r} has none. Use a function of the payload"]
    found = [_unknown(name, known, type_) for name in _names(key) if name not in known]
    return found + [_unfit(name, type_) for name in _names(key) if name in known and not _fits(name, type_)]


def derive(key: Key, payload: Any) -> str:
    """The key of a payload. Raises BadKey naming the part that is missing, empty or has no one spelling."""
    if isinstance(key, (str, tuple)):
        return "/".join(_spell(getattr(payload, name, None), name) for name in _names(key))
    if isinstance(key, Enum):
        raise BadKey("EACH_ENQUEUE has no key before it is sent")
    try:
        value = key(payload)
    except Exception as error:  # the author's function: whatever it raises is the key's fault
        raise BadKey(f"the key's function raised {type(error).__name__}: {error}") from error
    parts = value if isinstance(value, tuple) else (value,)
    if not parts:
        raise BadKey("the key's function returned no part")
    return "/".join(_spell(part, f"part {place}") for place, part in enumerate(parts, 1))


def _names(key: str | tuple[str, ...]) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else key


def _spell(value: Any, name: str) -> str:
    """One spelling for one value; `/` and `%` inside a part are escaped, so that parts never run together."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, (str, int, UUID)):
        text = str(value)
    elif isinstance(value, date) and not isinstance(value, datetime):
        text = value.isoformat()
    elif value is None:
        raise BadKey(f"the key's part {name} is missing")
    else:
        raise BadKey(f"the key's part {name} is a {type(value).__name__}; a part is {_SPELLED}")
    if not text:
        raise BadKey(f"the key's part {name} is empty")
    return text.replace("%", "%25").replace("/", "%2F")


def _unknown(name: str, known: tuple[str, ...], type_: Any) -> str:
    return f"key={name!r} is not a field of {_name(type_)}. {nearest(name, known)}Its fields are {', '.join(known)}"


def _unfit(name: str, type_: Any) -> str:
    return (
        f"key={name!r} is of a type with more than one spelling, or may be missing. A part is {_SPELLED}; "
        "for anything else use a function"
    )


def _fits(name: str, type_: Any) -> bool:
    try:
        hint = get_type_hints(type_).get(name, str)
    except (NameError, TypeError):
        return True  # a finding of the payload type already
    alternatives = get_args(hint) if not isinstance(hint, type) else (hint,)
    return all(_spelled(each) for each in alternatives or (hint,))


def _spelled(hint: Any) -> bool:
    if isinstance(hint, (str, int, bool)):
        return True  # a member of a Literal
    return isinstance(hint, type) and issubclass(hint, (str, int, date, UUID, Enum)) and not issubclass(hint, datetime)


def _name(type_: Any) -> str:
    return getattr(type_, "__name__", str(type_))
