"""What Lambda gives to a worker: its context, and received messages as an event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Context:
    """Lambda's context, as far as a worker uses it."""

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


def event_of(messages: Sequence[Any]) -> dict[str, Any]:
    """Of what `receive_message` answered."""
    return {"Records": [_record(message) for message in messages]}


def _record(message: Any) -> dict[str, Any]:
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message["Attributes"],
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:bench",
        "awsRegion": "us-east-1",
    }
