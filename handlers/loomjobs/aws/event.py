"""Lambda's SQS event, read into deliveries."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from loomjobs.core.delivery import Attribute, Delivery


class ForeignEvent(ValueError):
    """The function was invoked with something that is not an SQS event; no message is at stake."""


def check_event(event: Any) -> list[dict[str, Any]]:
    """The records of an SQS event. Raises ForeignEvent for anything else: an answer would look like success."""
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list):
        kind = ", ".join(sorted(event)[:5]) if isinstance(event, Mapping) else type(event).__name__
        raise ForeignEvent(
            f"a worker takes SQS events (Records of aws:sqs), not one with {kind}. "
            "Send a message to its queue, or invoke it with a sample from events/."
        )
    for record in records:
        if not isinstance(record, dict):
            raise ForeignEvent(f"a record that is a {type(record).__name__}, and no message")
        if record.get("eventSource") != "aws:sqs" or not record.get("messageId"):
            raise ForeignEvent(
                f"a record of source {record.get('eventSource')!r} with id {record.get('messageId')!r}: "
                "a worker answers for SQS messages only, and needs the id of each"
            )
    return records


def delivery_of(record: SQSRecord, *, queue: str, now: datetime) -> Delivery:
    """A record as a delivery to `queue`; `now` stands in where an emulator leaves a timestamp out."""
    system: Mapping[str, Any] = record.raw_event.get("attributes") or {}
    return Delivery(
        message_id=record.message_id,
        body=record.body,
        receipt=record.receipt_handle,
        queue=queue,
        sent_at=_moment(system.get("SentTimestamp"), now),
        received_at=now,
        receives=_count(system.get("ApproximateReceiveCount")),
        group=system.get("MessageGroupId"),
        dedup=system.get("MessageDeduplicationId"),
        trace_header=system.get("AWSTraceHeader"),
        attributes={name: _attribute(value) for name, value in _user_attributes(record).items() if value},
        kind="fifo" if str(record.raw_event.get("eventSourceARN", "")).endswith(".fifo") else "standard",
    )


def _user_attributes(record: SQSRecord) -> Mapping[str, Any]:
    return record.raw_event.get("messageAttributes") or {}


def _attribute(raw: Mapping[str, Any]) -> Attribute:
    binary = raw.get("binaryValue")
    return Attribute(
        type=raw.get("dataType", "String"),
        text=raw.get("stringValue"),
        binary=base64.b64decode(binary) if binary is not None else None,
    )


def _moment(milliseconds: Any, now: datetime) -> datetime:
    text = str(milliseconds)
    return datetime.fromtimestamp(int(text) / 1000, UTC) if re.fullmatch("[0-9]{1,14}", text) else now


def _count(receives: Any) -> int:
    text = str(receives)
    return max(1, int(text)) if re.fullmatch("[0-9]{1,9}", text) else 1
