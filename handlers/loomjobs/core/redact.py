"""Redaction of error texts before they travel: secrets by their shape, the payload's own values, sensitive fields."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime
from typing import Any, Final
from urllib.parse import quote, quote_plus

TEXT_CHARACTERS: Final = 4_000
"""Longest text that is looked at; more is cut off."""
VALUES: Final = 200_000
"""Most values of a payload that are looked at, above what one message can hold; beyond it the text is left out."""
SHORTEST: Final = 6
"""Characters from which a payload's text is masked: shorter ones are words of any message."""
SHORTEST_ALONE: Final = 3
"""Characters from which a sensitive value is masked where it stands alone, not as part of a longer word or number."""
SCRUBBED_CHARACTERS: Final = 40_000
"""Longest text that is looked at for sensitive values: the end of a longer one."""

_MASK: Final = "<redacted>"
_LEFT_OUT: Final = "(left out: it could not be redacted)"
_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_-]{0,39}")


def redact(text: str, payload: object = None, *, key: str = "") -> str:
    """`text` with what looks secret as `<redacted>` or the like, and each string of `payload` as `<field>`, by the name
    of the payload's member that holds it. Parts of the job's key stay readable: they are in every log line.

    Idempotent, and it never raises: a text that cannot be redacted is left out.
    """
    try:
        text = text[:TEXT_CHARACTERS]
        return _shapes(_values(text, payload, key))
    except Exception:  # noqa: BLE001 a report without its text is better than one that leaks, or none
        return _LEFT_OUT


def scrub(text: str, secrets: Iterable[tuple[str, Any]]) -> str:
    """`text` with each sensitive value as `<field>`: anywhere from 6 characters on, from 3 where it stands alone.

    Found are a value as it is and each of its lines, in a repr, in JSON, in JSON within JSON, in a URL, a number with
    thousands separators, and a date as Python writes it. It never raises: what cannot be scrubbed is left out.
    """
    try:
        secrets = list(secrets)
        if len(text) > SCRUBBED_CHARACTERS:
            if any(len(str(value)) > SCRUBBED_CHARACTERS // 2 for _, value in secrets):
                return _LEFT_OUT  # the cut could leave the end of a value that nobody recognizes
            text = text[-SCRUBBED_CHARACTERS:]
        return _scrub(text, secrets)
    except Exception:  # noqa: BLE001 as above
        return _LEFT_OUT


def _scrub(text: str, secrets: list[tuple[str, Any]]) -> str:
    names: dict[str, str] = {}
    for name, value in secrets:
        for form in _forms(value):
            if len(form) >= SHORTEST_ALONE and form in text:
                names.setdefault(form, name)
        if isinstance(value, str) and len(value) >= SHORTEST and (begun := _begun(text, value)):
            names.setdefault(begun, name)
    if not names:
        return text
    marks = "|".join(sorted({re.escape(f"<{name}>") for name, _ in secrets}))
    masked = "|".join(map(_found, sorted(names, key=lambda form: (-len(form), form))))
    pattern = re.compile(f"({marks})|({masked})")
    return pattern.sub(lambda found: found[1] or f"<{names[found[2]]}>", text)


def _found(form: str) -> str:
    """A pattern for the form; a short one has no letter or digit beside it, unless that belongs to an escape."""
    return re.escape(form) if len(form) >= SHORTEST else f"{_BEFORE}{re.escape(form)}{_AFTER}"


_BEFORE: Final = r"(?:(?<![^\W_])(?<!\d[.,])|(?<=\\[nrtbf])|(?<=\\x[0-9a-f]{2})|(?<=\\u[0-9a-f]{4})|(?<=%[0-9A-F]{2}))"
_AFTER: Final = r"(?![^\W_]|[.,]\d)"


def _forms(value: Any) -> set[str]:
    if isinstance(value, float):
        return {str(value), json.dumps(value)}
    if isinstance(value, int):
        return {str(value), f"{value:,}", f"{value:_}"}
    twice = json.dumps(json.dumps(value)[1:-1])[1:-1]
    lines = set(value.splitlines())  # a group of exceptions indents each
    return _spellings(value) | {twice, quote(value, safe=""), quote_plus(value), quote(value)} | lines | _dates(value)


def _dates(value: str) -> set[str]:
    try:
        moment = datetime.fromisoformat(value)
        if len(value) == len("2026-01-31"):
            return {repr(date.fromisoformat(value))}
        return {str(moment), repr(moment), moment.isoformat()}
    except ValueError:
        return set()


def _values(text: str, payload: object, key: str) -> str:
    kept = {part.replace("%2F", "/").replace("%25", "%") for part in (key, *key.split("/"))}
    names: dict[str, str] = {}
    marks: set[str] = set()
    for name, value in _strings(payload):
        marks.add(f"<{name}>")
        if value in kept:
            continue
        for form in _spellings(value):
            if form in text:
                names.setdefault(form, name)
        begun = _begun(text, value)
        if begun:
            names.setdefault(begun, name)
    if not names:
        return text
    marked = "|".join(re.escape(mark) for mark in sorted(marks))
    masked = "|".join(re.escape(form) for form in sorted(names, key=lambda form: (-len(form), form)))
    pattern = re.compile(f"({marked})|({masked})")
    return pattern.sub(lambda found: found[1] or f"<{names[found[2]]}>", text)


def _strings(payload: object) -> Iterator[tuple[str, str]]:
    """The payload's texts with the name of the top member that holds each; without recursion, since it may be deep."""
    stack: list[tuple[str, Any]] = [("payload", payload)]
    if isinstance(payload, Mapping):
        stack = [(_name(member), value) for member, value in payload.items()]
    seen = 0
    while stack:
        name, value = stack.pop()
        seen += 1
        if seen > VALUES:
            raise ValueError("the payload is larger than a message")
        if isinstance(value, str):
            if len(value) >= SHORTEST:
                yield name, value
        elif isinstance(value, Mapping):
            stack.extend((name, each) for each in value.values())
        elif isinstance(value, (list, tuple)):
            stack.extend((name, each) for each in value)


def _name(member: object) -> str:
    return member if isinstance(member, str) and _NAME.fullmatch(member) else "payload"


def _spellings(value: str) -> set[str]:
    """As it is, and as a message quotes it: in a repr, and in JSON."""
    if value.isalnum() and value.isascii():
        return {value}
    return {value, repr(value)[1:-1], json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}


def _begun(text: str, value: str) -> str:
    """The part of `value` that a cut at the end of `text` left over."""
    at = text.rfind(value[:SHORTEST])
    rest = text[at:] if at >= 0 else ""
    return rest if rest and len(rest) < len(value) and value.startswith(rest) else ""


def _shapes(text: str) -> str:
    for pattern, replacement in _SHAPES:
        text = pattern.sub(replacement, text)
    return text


def _card(found: re.Match[str]) -> str:
    """Card numbers have 15 or 16 digits; the rarer lengths need their check digit, since timestamps look alike."""
    digits = [int(c) for c in found[0] if c.isdecimal()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    valid = (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
    return "<card>" if valid or len(digits) in (15, 16) else found[0]


def _long_key(found: re.Match[str]) -> str:
    """Forty characters of base64 are an AWS secret key when they are mixed; a SHA-1 in hex is not."""
    text = found[0]
    mixed = any(c.isupper() for c in text) and any(c.islower() for c in text) and any(c.isdigit() for c in text)
    return "<aws-key>" if mixed else text


_WORDS = (
    "password|passwd|passphrase|passcode|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential|"
    "session[_-]?id|cookie|signature"
)
_VALUE = (
    r'\\"[^"\\]*(?:\\"|$)'  # in JSON that stands in JSON
    r'|"(?:[^"\\]|\\.)*(?:"|\\?$)'
    r"|'(?:[^'\\]|\\.)*(?:'|\\?$)"
    r"|<redacted>|[^\s,;&)}\]\"'\\]+"
)

_LOCAL = r"[^\s@<>\"'(),:;*=/\[\]{}\\]"
"""A character of the part before the @ of an e-mail address."""

_SHAPES: Final[tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = (
    (
        re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|$)", re.DOTALL),
        "<private-key>",
    ),
    (re.compile(r"://[^\s/@:<>]*:[^\s/@<>]+@"), f"://{_MASK}@"),
    (
        re.compile(
            r"(authorization(?:\\?[\"'])?\s{0,3}[=:]\s{0,3}(?:\\?[\"'])?)(?:[a-z0-9-]{1,30}\s+)?[^\s\"',;\\<]+",
            re.IGNORECASE,
        ),
        rf"\1{_MASK}",
    ),
    (re.compile(r"\b(bearer\s+)[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE), rf"\1{_MASK}"),
    (re.compile(r"\b([Bb]asic\s+|BASIC\s+)(?![A-Z]?[a-z]+\b(?!=))[A-Za-z0-9+/]{6,}={0,2}"), rf"\1{_MASK}"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,2}"), "<token>"),
    (
        re.compile(
            rf"((?:{_WORDS})[\w.-]{{0,40}}(?:\\?[\"'])?\s{{0,3}}(?:=>|[=:])\s{{0,3}})(?:{_VALUE})", re.IGNORECASE
        ),
        rf"\1{_MASK}",
    ),
    (re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA|AGPA|ANPA|APKA|ABIA|ACCA|ASCA)[A-Z0-9]{16}\b"), "<aws-key>"),
    (re.compile(r"\b(?:IQoJ|FwoG|FQoG)[A-Za-z0-9+/=]{20,}"), "<aws-key>"),
    (re.compile(r"(?<![A-Za-z0-9/+=])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])"), _long_key),
    (
        re.compile(
            rf"(?:{_LOCAL}|(?<={_LOCAL})'(?={_LOCAL})){{1,64}}(?=@[A-Za-z0-9-]{{1,63}}(?:\.[A-Za-z0-9-]{{1,63}})+)"
        ),
        "***",
    ),
    (
        re.compile(r"(?<!\d)(?:\d{4}([ -])\d{4}\1\d{4}\1\d{1,7}|\d{4}([ -])\d{6}\2\d{5}|\d{13,19})(?!\d)", re.ASCII),
        _card,
    ),
)
"""Order matters: what contains the others comes first. No replacement is matched again by any of them."""
