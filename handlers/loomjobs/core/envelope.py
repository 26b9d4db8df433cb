"""The envelope: a message body, version 1, or 2 where it has encrypted fields. Its JSON Schema is `loomjobs schema`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from loomjobs.core import defaults
from loomjobs.core.errors import BadEnvelope, BadPayload
from loomjobs.core.job_name import check_job_name
from loomjobs.core.later import literal
from loomjobs.core.offload import PayloadRef, read_ref, ref_schema
from loomjobs.core.payload import parse

VERSION = 1
SEALED_VERSION = 2
"""Of envelopes with `sealed`: a worker that does not know it must not take the masks in the payload for values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """`payload` holds plain JSON values, or `payload_ref` says where they are: one of the two is there. A foreign
    producer may give `job` and `payload` alone."""

    job: str
    payload: object = field(default=None, repr=False)
    payload_ref: PayloadRef | None = None
    v: int = VERSION
    id: str | None = None
    key: str | None = None
    payload_version: int = 1
    enqueued_at: datetime | None = None
    due: datetime | None = None
    expires: datetime | None = None
    group: str | None = None
    tenant: str | None = None
    trace: str | None = None
    correlation: str | None = None
    hops: int = 0
    redrives: int = 0
    batch: str | None = None
    then: dict[str, Any] | None = None
    sealed: str | None = None

    @property
    def stored_until(self) -> datetime | None:
        """How late it may be due for its payload to be there, where that is beside it."""
        if self.payload_ref is None or self.enqueued_at is None:
            return None
        return self.enqueued_at + timedelta(seconds=defaults.PAYLOAD_DELAY)

    @classmethod
    def parse(cls, body: str) -> Envelope:
        """Read a body strictly; members it does not know are ignored. Raises BadEnvelope naming the member."""
        try:
            data = parse(body)
        except BadPayload as error:
            raise BadEnvelope(f"the body is not an envelope: {error}") from None
        if not isinstance(data, dict):
            raise BadEnvelope('the body is not a JSON object; send {"job": "...", "payload": {...}}')
        for member in ("job", "payload"):
            if member not in data and (member == "job" or "payload_ref" not in data):
                raise BadEnvelope(f'the member {member!r} is missing; send {{"job": "...", "payload": {{...}}}}')
        if "payload" in data and "payload_ref" in data:
            raise BadEnvelope("the members 'payload' and 'payload_ref' are both there; send one of them")
        advice = check_job_name(data["job"])
        if advice:
            raise BadEnvelope(f"the member 'job' is not a job name. {advice}")
        return cls(**{name: _member(name, data[name]) for name in cls.__dataclass_fields__ if name in data})


def render(
    *,
    job: str,
    payload: bytes | PayloadRef,
    id: str,
    key: str,
    enqueued_at: datetime | None,
    payload_version: int = 1,
    trace: str | None = None,
    correlation: str | None = None,
    hops: int = 0,
    redrives: int = 0,
    due: datetime | None = None,
    expires: datetime | None = None,
    group: str | None = None,
    batch: str | None = None,
    then: dict[str, Any] | None = None,
    tenant: str | None = None,
    sealed: str | None = None,
) -> str:
    """A body of characters that SQS takes, with the payload as JSON or by reference: JSON escapes control characters,
    and U+FFFE and U+FFFF are escaped here, as is what EventBridge Scheduler would replace."""
    members: dict[str, Any] = {
        "v": VERSION if sealed is None else SEALED_VERSION,
        "job": job,
        "id": id,
        "key": key,
        **({"payload_ref": payload} if isinstance(payload, PayloadRef) else {"payload": msgspec.Raw(payload)}),
        "payload_version": payload_version,
    }
    given = (("enqueued_at", enqueued_at), ("due", due), ("expires", expires))
    moments = {name: stamp(at) for name, at in given if at is not None}
    optional = {
        "batch": batch,
        "then": then,
        "group": group,
        "tenant": tenant,
        "trace": trace,
        "correlation": correlation,
        "sealed": sealed,
    }
    counts = {"hops": hops, "redrives": redrives}
    members |= moments | {name: value for name, value in (optional | counts).items() if value}
    return wire_text(members)


def wire_text(members: Mapping[str, Any]) -> str:
    """As SQS takes it, and EventBridge Scheduler passes it on."""
    body = literal(msgspec.json.encode(members).decode())
    return body.replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")


def schema() -> dict[str, Any]:
    """The envelope's JSON Schema, 2020-12, for producers in other languages."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Loomjobs envelope",
        "description": "The body of a message. `job` and `payload` are enough; the rest is what our own producers add.",
        "type": "object",
        "required": ["job"],
        "oneOf": [{"required": ["payload"]}, {"required": ["payload_ref"]}],
        "additionalProperties": True,
        "properties": {name: {"description": text} | shape for name, (shape, text) in _MEMBERS.items()},
    }


_TEXT = {"type": "string", "minLength": 1}
_MOST = 1_000_000
_COUNT = {"type": "integer", "minimum": 0, "maximum": _MOST}
_VERSION = {"type": "integer", "minimum": 1, "maximum": _MOST}
_MOMENT = {"type": "string", "format": "date-time"}

_MEMBERS: dict[str, tuple[dict[str, Any], str]] = {
    "v": (_VERSION, "Version of the envelope; 1 when left out, 2 with `sealed`."),
    "job": (
        {"type": "string", "pattern": r"^[a-z][a-z0-9-]*(\.[a-z][a-z0-9-]*)+$", "maxLength": 100},
        "Name of the job, as declared.",
    ),
    "id": (_TEXT, "Id of this enqueue; the SQS message id stands in when left out."),
    "key": (_TEXT, "Idempotency key; derived from the payload when left out."),
    "payload": ({}, 'What the job needs; its shape is the job\'s. Money is a string such as "12.50".'),
    "payload_ref": (
        ref_schema(),
        "In place of `payload`, with `key`: the object payloads/<queue>/<sha256> of the environment's bucket holds it.",
    ),
    "payload_version": (
        _VERSION,
        "Version of the payload's shape; 1 when left out.",
    ),
    "enqueued_at": (_MOMENT, "When it was enqueued, RFC 3339 with a zone."),
    "due": (_MOMENT, "When it was due, where that is later than `enqueued_at`; it is no delay by itself."),
    "expires": (_MOMENT, "After this instant it is not worth running."),
    "group": (_TEXT, "Its FIFO group, where a one-off schedule sends it."),
    "tenant": (_TEXT, "On whose behalf; on a standard queue it is the MessageGroupId too, for fairness among tenants."),
    "trace": (
        {"type": "string", "pattern": "^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"},
        "W3C traceparent of the caller.",
    ),
    "correlation": (_TEXT, "Correlation id of the caller, for log lines."),
    "hops": (_COUNT, "Jobs before this one in a chain of jobs that send jobs."),
    "redrives": (_COUNT, "How often it came back from the dead-letter queue."),
    "batch": (_TEXT, "The batch it belongs to, and its place there."),
    "then": ({"type": "object"}, "What is sent when it has succeeded; our own producers' affair."),
    "sealed": (_TEXT, "Ciphertext of the payload's encrypted fields, in whose places ***** stands."),
}


def _member(name: str, value: Any) -> Any:
    shape = _MEMBERS[name][0]
    if name == "payload_ref":
        return read_ref(value)
    if shape.get("format") == "date-time":
        return _moment(name, value)
    kind = shape.get("type")
    if kind == "integer":
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not shape["minimum"] <= value <= shape["maximum"]:
            raise BadEnvelope(
                f"the member {name!r} is not a whole number from {shape['minimum']} to {shape['maximum']:,}"
            )
    elif kind == "object" and not isinstance(value, dict):
        raise BadEnvelope(f"the member {name!r} is not an object")
    elif kind == "string" and (not isinstance(value, str) or not value):
        raise BadEnvelope(f"the member {name!r} is not a non-empty text")
    return value


def _moment(name: str, value: Any) -> datetime:
    try:
        moment = msgspec.convert(value, datetime)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (msgspec.ValidationError, OverflowError):
        pass
    raise BadEnvelope(f"the member {name!r} is not an RFC 3339 instant with a zone, such as 2026-01-31T02:00:00Z")


def stamp(moment: datetime) -> str:
    """As it stands in an envelope, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
