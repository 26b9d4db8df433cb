"""The sample events: what Lambda hands to a worker, made by the code that makes real ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from loomjobs.cli.example import example
from loomjobs.core import names
from loomjobs.core.address import address
from loomjobs.core.call import call
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.decision import DeadLetter, Failure
from loomjobs.core.delivery import Attribute, Delivery
from loomjobs.core.job import Job
from loomjobs.core.letter import make_letter
from loomjobs.core.outgoing import Origin
from loomjobs.local.cipher import MemoryCipher

AT = datetime(2026, 1, 1, 2, 0, tzinfo=UTC)
_MILLIS = str(int(AT.timestamp() * 1000))


def samples(known: Catalogue) -> dict[str, Any]:
    """Events by file name; those of a kind that the project has no job for are left out."""
    standard = next((job for job in known.jobs if not job.queue.fifo), None)
    fifo = next((job for job in known.jobs if job.queue.fifo), None)
    made: dict[str, Any] = {}
    if standard is not None:
        good = _body(standard)
        name = standard.queue.name
        made["sqs-standard"] = _event(name, [good])
        made["sqs-mixed"] = _event(name, [good, _body(standard, job="billing.removed"), _bad_payload(standard), "{"])
        made["sqs-poison"] = _event(name, ["\ufeffnot an envelope"])
        made["sqs-duplicate"] = _event(name, [good, good])
        made["sqs-dead-letter"] = _dead_letter(standard)
    if fifo is not None:
        made["sqs-fifo"] = _event(fifo.queue.name, [_body(fifo)], group=str(call(fifo, _payload(fifo)).group))
    if known.schedules:
        tick = {"job": names.TICK_JOB, "payload": {"schedule": known.schedules[0].name, "at": "2026-01-01T02:00:00Z"}}
        made["scheduler-tick"] = _event(names.TICKS, [json.dumps(tick)])
    return made


def _payload(job: Job[Any, Any]) -> Any:
    return example(job.payload_type)


def _body(declared: Job[Any, Any], /, **members: Any) -> str:
    message = address(call(declared, _payload(declared)), id="0" * 32, now=AT, origin=Origin(), cipher=MemoryCipher())
    return json.dumps(json.loads(message.body) | members) if members else message.body


def _bad_payload(job: Job[Any, Any]) -> str:
    return _body(job, payload={"nothing": "that it needs"}, id="1" * 32)


def _dead_letter(job: Job[Any, Any]) -> dict[str, Any]:
    body = _body(job)
    delivery = Delivery(
        message_id=_id(job.queue.name, 0), body=body, receipt="r", queue=job.queue.name, sent_at=AT, received_at=AT
    )
    dead = DeadLetter("permanent", Failure("loomjobs.core.signals.Permanent", "refused", "0a1b2c3d4e5f"), attempts=1)
    letter = make_letter(delivery, dead, identity="0" * 32, job=job.name, at=AT.isoformat(timespec="seconds"))
    return _event(f"{job.queue.name}-dlq", [body], attributes=letter.attributes)


def _event(
    queue: str, bodies: Sequence[str], *, group: str | None = None, attributes: Mapping[str, Attribute] | None = None
) -> dict[str, Any]:
    return {"Records": list(_records(queue, bodies, group, attributes or {}))}


def _records(
    queue: str, bodies: Sequence[str], group: str | None, attributes: Mapping[str, Attribute]
) -> Iterator[dict[str, Any]]:
    """As documented: https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html#example-standard-queue-message-event"""
    for place, body in enumerate(bodies):
        system = {
            "ApproximateReceiveCount": "1",
            "SentTimestamp": _MILLIS,
            "SenderId": "AIDAEXAMPLE",
            "ApproximateFirstReceiveTimestamp": _MILLIS,
        }
        if group is not None:
            system |= {
                "SequenceNumber": f"{place + 1:020d}",
                "MessageGroupId": group,
                "MessageDeduplicationId": hashlib.sha256(body.encode()).hexdigest(),
            }
        yield {
            "messageId": _id(queue, place),
            "receiptHandle": f"receipt-{place}",
            "body": body,
            "attributes": system,
            "messageAttributes": {
                name: {"stringValue": each.text, "stringListValues": [], "binaryListValues": [], "dataType": each.type}
                for name, each in attributes.items()
            },
            "md5OfBody": hashlib.md5(body.encode(), usedforsecurity=False).hexdigest(),
            "eventSource": "aws:sqs",
            "eventSourceARN": f"arn:aws:sqs:eu-central-1:123456789012:{queue}{'.fifo' if group is not None else ''}",
            "awsRegion": "eu-central-1",
        }


def _id(queue: str, place: int) -> str:
    digits = hashlib.sha256(f"{queue}{place}".encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"
