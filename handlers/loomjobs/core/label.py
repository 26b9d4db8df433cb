"""Short texts that travel beside the payload: a tenant, a correlation id, a key or group that the caller gives."""

from __future__ import annotations

from loomjobs.core.errors import InvalidOption


def checked_label(where: str, option: str, value: object, *, most: int | None = None) -> str:
    """`value` where it is a text that UTF-8 can carry, of `most` characters at most. Control characters may stay: JSON
    escapes them in the body, and what SQS does not take as a group id is hashed. Raises InvalidOption."""
    if not isinstance(value, str):
        raise InvalidOption(f"{where}: {option}= is a {type(value).__name__}; give a text")
    if not value:
        raise InvalidOption(f"{where}: {option}= is empty; leave it out")
    if most is not None and len(value) > most:
        raise InvalidOption(f"{where}: {option}= has {len(value):,} characters, more than {most:,}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidOption(
            f"{where}: {option}= has half of a surrogate pair at {error.start}, which no encoding carries"
        ) from None
    return value
