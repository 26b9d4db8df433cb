"""Payloads on the wire: strict JSON both ways. Every failure is one BadPayload with the place, never the value.

msgspec does the typed work. Around it stands what it is lenient about: NaN becomes null, naive datetimes and the
Decimal "NaN" pass, duplicate members keep the last, encoding checks no types, deep nesting ends in RecursionError.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence, Set
from datetime import datetime, time
from decimal import Decimal
from typing import Any, NoReturn, TypeVar

import msgspec

from loomjobs.core.errors import BadPayload
from loomjobs.core.payload_type import fields_of, is_pydantic
from loomjobs.core.redact import scrub
from loomjobs.core.sensitive import is_marked, leaves, visible

T = TypeVar("T")

DEPTH = 64
"""Deepest nesting of a payload."""


def encode(payload: object, type_: Any, /) -> bytes:
    """The payload as JSON, decoded again as a check: what a worker could not read is refused in the caller."""
    try:
        return _encode(payload, type_)
    except BadPayload as error:
        if not is_marked(type_):
            raise
        refusal = _veiled(error, type_, _plain(payload))
    raise refusal  # outside of the handler, so that no chained error tells more


def decode(data: object, type_: type[T], /, *, strict: bool = False) -> T:
    """Plain values as a payload. Unknown members are ignored (rolling deploys); `strict` refuses them at any depth."""
    try:
        return _decode(data, type_, strict)
    except BadPayload as error:
        if not is_marked(type_):
            raise
        refusal = _veiled(error, type_, data)
    raise refusal


def parse(text: str | bytes, /) -> object:
    """JSON text as plain values: no duplicate members, no NaN or Infinity, nesting up to 64."""
    try:
        data = _parsed(text)
    except BadPayload:
        raise
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise BadPayload("$", f"not JSON: {_short(error)}") from None
    _walk(data, "$", 0)
    return data


def plain(payload: object, /) -> object:
    """A payload as plain JSON values."""
    return json.loads(_dump(payload, type(payload)))


def digest(data: object, /) -> str:
    """The hash that tells two payloads apart: 32 hex digits of SHA-256 over canonical JSON."""
    return hashlib.sha256(canonical(data)).hexdigest()[:32]


def canonical(data: object, /) -> bytes:
    """The one spelling of plain values: members sorted, no spaces, ASCII."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _encode(payload: object, type_: Any) -> bytes:
    _walk(payload, "$", 0)
    try:
        encoded = _dump(payload, type_)
        again = _dump(_convert(_parsed(encoded), type_), type_)  # its values were walked above
    except BadPayload:
        raise
    except (TypeError, ValueError, RecursionError, AttributeError, msgspec.MsgspecError) as error:
        raise BadPayload("$", f"it is not {_name(type_)}: {_short(error)}") from None
    if again != encoded:
        raise BadPayload("$", f"it is not {_name(type_)}: it reads back as something else ({type(payload).__name__})")
    return encoded


def _decode(data: object, type_: type[T], strict: bool) -> T:
    try:
        value = _convert(data, type_)
    except BadPayload:
        raise
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise _located(error) from None
    except Exception as error:  # what a payload's own __post_init__ raises is the payload's fault
        raise BadPayload("$", f"its type refused it: {type(error).__name__}") from error
    _walk(value, "$", 0)
    if strict:
        _no_extra(data, json.loads(_dump(value, type_)), "$")
    result: T = value
    return result


def _veiled(error: BadPayload, type_: Any, data: object) -> BadPayload:
    """The refusal of a payload that has sensitive fields: no path into them, and no value in its text."""
    path = visible(error.path, type_)
    if _EXPECTED.fullmatch(error.what):
        return BadPayload(path or error.path, error.what)
    if path is not None or data is None:
        return BadPayload(path or error.path, "refused; no more is told of what is marked as sensitive")
    return BadPayload(error.path, scrub(error.what, leaves(data, type_, everything=True)))


def _plain(payload: object) -> object:
    try:
        return plain(payload)
    except Exception:  # noqa: BLE001 the payload is refused already, and this was to tell why
        return None


_EXPECTED = re.compile(r"Expected `[a-z| ]+`, got `[a-z]+`")
"""What msgspec says of a wrong type: no value is in it."""


def _dump(payload: Any, type_: Any) -> bytes:
    if is_pydantic(type(payload)):
        return bytes(payload.model_dump_json().encode())
    return msgspec.json.encode(payload)


def _convert(data: object, type_: Any) -> Any:
    if is_pydantic(type_):
        return type_.model_validate_json(json.dumps(data), strict=True)
    return msgspec.convert(data, type_, strict=True)


def _parsed(text: str | bytes) -> Any:
    return json.loads(text, object_pairs_hook=_members, parse_constant=_constant)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadPayload("$", f"the member {twice!r} stands twice in one object")
    return members


def _constant(name: str) -> NoReturn:
    raise BadPayload("$", f"{name} is not JSON")


def _walk(value: Any, path: str, depth: int) -> None:
    """Refuse what JSON cannot carry faithfully, wherever it is."""
    if depth > DEPTH:
        raise BadPayload("$", f"nested deeper than {DEPTH} levels")
    if isinstance(value, str):
        _text(value, path)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise BadPayload(path, "not a finite number; JSON has no NaN or Infinity")
    elif isinstance(value, Decimal):
        if not value.is_finite():
            raise BadPayload(path, "not a finite decimal")
    elif isinstance(value, (datetime, time)):
        if value.tzinfo is None:
            raise BadPayload(path, f"a {type(value).__name__} without time zone; use one with tzinfo=UTC")
    elif isinstance(value, Mapping):
        for key, each in value.items():
            _walk(key, f"{path}.<key>", depth + 1)
            _walk(
                each,
                f"{path}.{key}" if isinstance(key, str) and key.isidentifier() else f"{path}[…]",
                depth + 1,
            )
    elif isinstance(value, (Sequence, Set)) and not isinstance(value, (bytes, bytearray)):
        for place, each in enumerate(value):
            _walk(each, f"{path}[{place}]", depth + 1)
    else:
        for name in fields_of(value):
            _walk(getattr(value, name), f"{path}.{name}", depth + 1)


def _text(value: str, path: str) -> None:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadPayload(path, "text with a lone surrogate, which is not Unicode") from None


def _no_extra(given: Any, known: Any, path: str) -> None:
    if isinstance(given, dict) and isinstance(known, dict):
        for name, each in given.items():
            if name not in known:
                raise BadPayload(f"{path}.{name}", "an unknown field")
            _no_extra(each, known[name], f"{path}.{name}")
    elif isinstance(given, list) and isinstance(known, list):
        for place, (one, other) in enumerate(zip(given, known, strict=False)):
            _no_extra(one, other, f"{path}[{place}]")


def _located(error: Exception) -> BadPayload:
    """msgspec ends its messages with ` - at `$.path``; pydantic's errors have a location."""
    locate = getattr(error, "errors", None)
    if callable(locate):
        first: Any = locate(include_input=False, include_url=False)
        first = first[0]
        return BadPayload(".".join(["$", *(str(part) for part in first["loc"])]), str(first["msg"]))
    text, _, path = str(error).partition(" - at `")
    return BadPayload(path.rstrip("`") or "$", text or type(error).__name__)


def _short(error: Exception) -> str:
    if callable(getattr(error, "errors", None)):
        return str(_located(error))
    return str(error)[:200] or type(error).__name__


def _name(type_: Any) -> str:
    return getattr(type_, "__name__", str(type_))
