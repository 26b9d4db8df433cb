"""Encrypted fields: taken out of a payload when it is sent, as one ciphertext beside it, and put back in the worker.

The ciphertext is bound to the job and to the message's id, so that it cannot be opened as part of another message. The
payload that stays has `*****` in their places: it is what a payload's hash is made of, which therefore is the same
each time and tells nothing about them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

from loomjobs.core.errors import BadPayload, CipherUnavailable, ConfigurationError
from loomjobs.core.job import Job
from loomjobs.core.place import Place, place_of
from loomjobs.core.sensitive import MASK, is_encrypted, places

Path: TypeAlias = "tuple[str | int, ...]"

_UNFIT = "its encrypted fields do not fit the rest: it was changed after it was sent"


class Cipher(Protocol):
    """Encrypts for a job, by its name; a text can be decrypted under the same name only.

    Both raise CipherUnavailable when no answer came or access was refused; `decrypt` raises BadPayload for a text that
    is not what `encrypt` returned for this job.
    """

    def encrypt(self, text: str, /, *, job: str) -> str: ...
    def decrypt(self, text: str, /, *, job: str) -> str: ...


class NotAsked(CipherUnavailable):
    """Another message of the batch waited for an answer in vain."""


class NotAskedAgain:
    """Implements Cipher for the rest of a batch."""

    def encrypt(self, text: str, /, *, job: str) -> str:
        raise NotAsked

    def decrypt(self, text: str, /, *, job: str) -> str:
        raise NotAsked


@dataclass(frozen=True, slots=True)
class Sealed:
    """A payload's JSON without its encrypted fields, and their ciphertext; None where it has none."""

    payload: bytes
    ciphertext: str | None = None


def seal(job: Job[Any, Any], encoded: bytes, *, id: str, cipher: Cipher | None) -> Sealed:
    """Take the encrypted fields out. Raises ConfigurationError where this process has no cipher, CipherUnavailable."""
    if not has_encrypted(job.payload_type):
        return Sealed(encoded)
    taken: list[tuple[Path, object]] = []
    left = _without(json.loads(encoded), place_of(job.payload_type), (), taken)
    if not taken:
        return Sealed(encoded)
    if cipher is None:
        raise ConfigurationError(f"{job.name} has encrypted fields, and what sends it was given no cipher=")
    text = json.dumps({"id": id, "fields": taken}, ensure_ascii=False, separators=(",", ":"))
    payload = json.dumps(left, ensure_ascii=False, separators=(",", ":")).encode()
    return Sealed(payload, cipher.encrypt(text, job=job.name))


def unseal(payload: object, ciphertext: str, *, job: str, id: str | None, cipher: Cipher | None) -> object:
    """Put the fields back. `job` and `id` are the envelope's own. Raises BadPayload for a ciphertext of another message
    or one that does not fit its payload, ConfigurationError, CipherUnavailable."""
    if cipher is None:
        raise ConfigurationError(f"{job} has encrypted fields, and this worker was given no key; deploy it again")
    try:
        opened = json.loads(cipher.decrypt(ciphertext, job=job))
        bound_to, fields = opened["id"], [(tuple(path), value) for path, value in opened["fields"]]
    except (ValueError, TypeError, KeyError):
        raise BadPayload("$", _UNFIT) from None
    if bound_to != id:
        raise BadPayload("$", "its encrypted fields belong to another message")
    for path, value in fields:
        payload = _with(payload, path, value)
    return payload


def has_masks(payload: object, type_: Any) -> bool:
    """Whether the mask stands where an encrypted value belongs."""
    taken: list[tuple[Path, object]] = []
    if has_encrypted(type_):
        _without(payload, place_of(type_), (), taken)
    return any(value == MASK for _, value in taken)


def has_encrypted(type_: Any) -> bool:
    """Whether anything in this payload type is encrypted; known once per type."""
    try:
        return _has_encrypted(type_)
    except TypeError:  # not hashable
        return any(is_encrypted(place) for _, place in places(type_))


@lru_cache(maxsize=1_024)
def _has_encrypted(type_: Any) -> bool:
    return any(is_encrypted(place) for _, place in places(type_))


def _without(value: Any, place: Place, path: Path, taken: list[tuple[Path, object]]) -> object:
    if is_encrypted(place):
        taken.append((path, value))
        return MASK
    if isinstance(value, dict):
        return {name: _without(each, place.member(name), (*path, name), taken) for name, each in value.items()}
    if isinstance(value, list):
        return [_without(each, place.items(), (*path, at), taken) for at, each in enumerate(value)]
    return value


def _with(payload: Any, path: Path, value: object) -> object:
    """A copy with `value` at `path`, where only the mask may stand."""
    if not path:
        if payload != MASK:
            raise BadPayload("$", _UNFIT)
        return value
    step, *rest = path
    if isinstance(payload, Mapping) and step in payload:
        return {**payload, step: _with(payload[step], tuple(rest), value)}
    if isinstance(payload, list) and isinstance(step, int) and step < len(payload):
        return [_with(each, tuple(rest), value) if at == step else each for at, each in enumerate(payload)]
    raise BadPayload("$", _UNFIT)
