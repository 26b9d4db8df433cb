"""A payload beside its message: an object in the environment's bucket, addressed by its content (a claim check)."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from loomjobs.core import defaults
from loomjobs.core.errors import BadEnvelope, PayloadTampered
from loomjobs.core.payload import canonical, parse

PREFIX: Final = "payloads/"
_HEX: Final = "[0-9a-f]{64}"


@dataclass(frozen=True, slots=True)
class PayloadRef:
    """The member `payload_ref`: SHA-256 of the object's bytes and their number.

    It names no bucket and no key: a worker reads from its own bucket, under the prefix of its own queue, whatever a
    message says.
    """

    sha256: str
    size: int

    def key(self, queue: str) -> str:
        return queue_prefix(queue) + self.sha256

    @property
    def digest(self) -> str:
        """The payload hash (`payload.digest`), since the object is canonical JSON: known without reading it."""
        return self.sha256[:32]


@dataclass(frozen=True, slots=True)
class Parcel:
    """An object that has to be stored before its message is sent."""

    key: str
    data: bytes


def queue_prefix(queue: str) -> str:
    """What keys of a queue's objects begin with; rights are narrowed by it."""
    return f"{PREFIX}{queue}/"


def pack(queue: str, payload_json: bytes) -> tuple[PayloadRef, Parcel]:
    """Equal payloads are one object, so to send one again stores no second, and makes the first as new."""
    data = canonical(parse(payload_json))
    ref = PayloadRef(hashlib.sha256(data).hexdigest(), len(data))
    return ref, Parcel(ref.key(queue), data)


def unpack(ref: PayloadRef, data: bytes) -> object:
    """The plain values of an object that is proven to be what the message means. Raises PayloadTampered, BadPayload."""
    if len(data) != ref.size:
        more = "more" if len(data) > ref.size else f"{len(data):,}"
        raise PayloadTampered(f"the message says {ref.size:,} bytes, and the object has {more}")
    if hashlib.sha256(data).hexdigest() != ref.sha256:
        raise PayloadTampered("the object's SHA-256 is not that of the message")
    return parse(data)


def read_ref(value: object) -> PayloadRef:
    """The member of an envelope; others in it are ignored. Raises BadEnvelope."""
    if not isinstance(value, dict):
        raise BadEnvelope('the member \'payload_ref\' is not an object; send {"sha256": "...", "size": 123}')
    sha256, size = value.get("sha256"), value.get("size")
    if not isinstance(sha256, str) or not re.fullmatch(_HEX, sha256):
        raise BadEnvelope("the member 'payload_ref.sha256' is not 64 lower-case hexadecimal digits")
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= defaults.PAYLOAD_BYTES:
        raise BadEnvelope(f"the member 'payload_ref.size' is not a number from 1 to {defaults.PAYLOAD_BYTES:,}")
    return PayloadRef(sha256, size)


def ref_schema() -> dict[str, object]:
    return {
        "type": "object",
        "required": ["sha256", "size"],
        "properties": {
            "sha256": {"type": "string", "pattern": f"^{_HEX}$"},
            "size": {"type": "integer", "minimum": 1, "maximum": defaults.PAYLOAD_BYTES},
        },
    }
