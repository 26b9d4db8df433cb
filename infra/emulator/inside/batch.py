"""A batch on its way to a function and back, by Lambda's documented rules. Pure.

https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html
https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class Reply:
    """What an invocation ended with: what the handler returned, or `error` when it raised, died or ran out of time."""

    body: object = None
    error: str | None = None


def records(messages: Iterable[Mapping[str, Any]], arn: str) -> list[dict[str, Any]]:
    """MiniStack's messages as the records of an event. Stock MiniStack leaves group, sequence, deduplication id and
    trace header out."""
    return [_record(message, arn) for message in messages]


def unfinished(reply: Reply, batch: Sequence[Mapping[str, Any]], *, reports: bool) -> set[str]:
    """Message ids that go back to the queue: those that the function named, or all of them when it failed or when its
    answer is not one that Lambda can read. With `reports` off, an answer is a success of the whole batch."""
    every = {record["messageId"] for record in batch}
    if reply.error is not None:
        return every
    named = _named(reply.body) if reports else set[str]()
    return named if named is not None and named <= every else every


def _record(message: Mapping[str, Any], arn: str) -> dict[str, Any]:
    _, _, _, region, account, _ = arn.split(":", 5)
    return {
        "messageId": message["id"],
        "receiptHandle": message["receipt_handle"],
        "body": message["body"],
        "attributes": _system(message, account),
        "messageAttributes": {name: _attribute(value) for name, value in (message["message_attributes"] or {}).items()},
        "md5OfBody": message["md5_body"],
        "eventSource": "aws:sqs",
        "eventSourceARN": arn,
        "awsRegion": region,
    }


def _system(message: Mapping[str, Any], account: str) -> dict[str, str]:
    found = {
        "ApproximateReceiveCount": str(message["receive_count"]),
        "SentTimestamp": str(int(message["sent_at"] * 1000)),
        "SenderId": message["sys"].get("SenderId", account),
        "ApproximateFirstReceiveTimestamp": str(int(message["first_receive_at"] * 1000)),
        "MessageGroupId": message["group_id"],
        "SequenceNumber": message["seq"],
        "MessageDeduplicationId": message["dedup_id"],
        "AWSTraceHeader": message["sys"].get("AWSTraceHeader"),
    }
    return {name: value for name, value in found.items() if value}


def _attribute(value: Mapping[str, Any]) -> dict[str, Any]:
    given = {name[0].lower() + name[1:]: part for name, part in value.items()}
    return {"stringListValues": [], "binaryListValues": []} | given


def _named(body: object) -> set[str] | None:
    """Ids in an answer; None when Lambda could not read it."""
    if body is None:
        return set()
    if not isinstance(body, dict):
        return None
    failures = cast("dict[str, object]", body).get("batchItemFailures")
    if failures is None:
        return set()
    return _identifiers(cast("list[object]", failures)) if isinstance(failures, list) else None


def _identifiers(failures: list[object]) -> set[str] | None:
    found = [cast("dict[str, object]", item).get("itemIdentifier") for item in failures if isinstance(item, dict)]
    names = {name for name in found if isinstance(name, str) and name}
    return names if len(found) == len(failures) and len(names) == len(set(found)) else None
