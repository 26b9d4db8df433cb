"""A dead letter: the message as it came, and the short failure report that travels with it in one attribute."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from loomjobs.core import limits
from loomjobs.core.decision import DeadLetter
from loomjobs.core.delivery import Attribute, Delivery
from loomjobs.core.errors import BadPayload
from loomjobs.core.payload import parse
from loomjobs.core.redact import redact
from loomjobs.core.trace import is_xray

ATTRIBUTE: Final = "loom"
"""The one message attribute of ours; everything else of ours is in the envelope."""
_TEXT_BYTES: Final = 1_024
_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html"""


@dataclass(frozen=True, slots=True)
class Letter:
    """What is sent to the dead-letter queue. `dedup` and `group` are for FIFO queues."""

    body: str = field(repr=False)
    group: str | None
    dedup: str | None
    attributes: dict[str, Attribute]
    trace_header: str | None = None


def make_letter(
    delivery: Delivery, dead: DeadLetter, *, identity: str, job: str | None, at: str, key: str | None = None
) -> Letter:
    """Body, group and attributes as they came; the report only where an attribute and its bytes are free.

    The report is cut before anything of the message is: first the error's text, then all of it. Its error is redacted
    (see `redact`); parts of `key`, by default the envelope's, stay readable in it.
    """
    attributes = {name: value for name, value in delivery.attributes.items() if name != ATTRIBUTE}
    report = _report(delivery, dead, identity=identity, job=job, at=at, key=key)
    for candidate in (report, report | {"error": report["error"][:80]}, {"v": 1, "reason": dead.reason}):
        packed = Attribute("String", json.dumps(candidate, separators=(",", ":")))
        if _fits(delivery.body, attributes, packed):
            attributes[ATTRIBUTE] = packed
            break
    return Letter(
        body=delivery.body,
        group=delivery.group,
        dedup=delivery.message_id if delivery.kind == "fifo" else None,
        attributes=attributes,
        trace_header=delivery.trace_header if is_xray(delivery.trace_header or "") else None,
    )


def read_report(attributes: dict[str, Attribute]) -> dict[str, Any] | None:
    """The failure report of a dead letter; None where only SQS's own redrive saw the message."""
    packed = attributes.get(ATTRIBUTE)
    if packed is None or packed.text is None:
        return None
    try:
        report = json.loads(packed.text)
    except ValueError:
        return None
    return report if isinstance(report, dict) else None


def legal(text: str) -> str:
    """`text` with U+FFFD for each character that SQS does not take in a body or an attribute."""
    return _ILLEGAL.sub("\ufffd", text)


def _report(
    delivery: Delivery, dead: DeadLetter, *, identity: str, job: str | None, at: str, key: str | None
) -> dict[str, Any]:
    failure = dead.failure
    return {
        "v": 1,
        "reason": dead.reason,
        "job": job,
        "id": identity,
        "error": f"{failure.kind}: {_told(failure.message, delivery.body, key)}"[:_TEXT_BYTES] if failure else "",
        "fingerprint": failure.fingerprint if failure else "",
        "attempts": dead.attempts,
        "receives": delivery.receives,
        "queue": delivery.queue,
        "message": delivery.message_id,
        "at": at,
    }


def _told(message: str, body: str, key: str | None) -> str:
    """What may be told of an error. The body may be anything: what is no envelope is redacted as a whole."""
    try:
        data: object = parse(body)
    except BadPayload:
        data = body
    if not isinstance(data, dict):
        return legal(redact(message, data))
    given = data.get("key")
    known = key if key is not None else given if isinstance(given, str) else ""
    return legal(redact(message, data.get("payload", None if "payload_ref" in data else data), key=known))


def _fits(body: str, attributes: dict[str, Attribute], packed: Attribute) -> bool:
    if len(attributes) >= limits.SQS_ATTRIBUTES:
        return False
    size = len(body.encode("utf-8", "surrogatepass")) + packed.size(ATTRIBUTE)
    return size + sum(value.size(name) for name, value in attributes.items()) <= limits.SQS_MESSAGE_BYTES
