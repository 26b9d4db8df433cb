"""SQS: sending batches, parking dead letters, and setting visibilities."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, EndpointConnectionError

from loomjobs.core import limits
from loomjobs.core.delivery import Attribute, Delivery
from loomjobs.core.letter import Letter
from loomjobs.core.outgoing import Sendable, Sent
from loomjobs.core.trace import to_xray
from loomjobs.runtime.caller import XRAY

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


class SqsSender:
    """Implements the runtime's Sender, and the relay's. `url_of` finds a queue's URL, or raises ConfigurationError."""

    def __init__(self, client: SQSClient, url_of: Callable[[str], str]) -> None:
        self._client = client
        self._url_of = url_of

    def send(self, queue: str, messages: Sequence[Sendable], /) -> Sequence[Sent]:
        entries: Any = [_entry(place, message) for place, message in enumerate(messages)]
        try:
            answer = self._client.send_message_batch(QueueUrl=self._url_of(queue), Entries=entries)
        except ClientError as error:
            return [answered(error)] * len(messages)
        except (EndpointConnectionError, ConnectTimeoutError) as error:
            return [Sent("refused", f"queue {queue} cannot be reached: {error}")] * len(messages)
        except BotoCoreError as error:  # the request may have arrived
            return [Sent("unknown", f"{type(error).__name__}: {error}")] * len(messages)
        return _outcomes(len(messages), answer)


class SqsDeadLetters:
    """Implements the runtime's DeadLetterQueue."""

    def __init__(self, client: SQSClient, url: str) -> None:
        self._client = client
        self._url = url

    def park(self, letter: Letter, /) -> None:
        arguments: dict[str, Any] = {"QueueUrl": self._url, "MessageBody": letter.body}
        if letter.attributes:
            arguments["MessageAttributes"] = {name: _attribute(value) for name, value in letter.attributes.items()}
        if letter.group is not None:
            arguments["MessageGroupId"] = letter.group
        if letter.dedup is not None:
            arguments["MessageDeduplicationId"] = letter.dedup
        if letter.trace_header is not None:
            arguments["MessageSystemAttributes"] = _traced(letter.trace_header)
        self._client.send_message(**arguments)


class SqsMessages:
    """Implements the runtime's Messages. What SQS did not do is reported to `trouble`."""

    def __init__(self, client: SQSClient, url: str, trouble: Callable[[str], None]) -> None:
        self._client = client
        self._url = url
        self._trouble = trouble

    def delete(self, deliveries: Sequence[Delivery], /) -> None:
        entries = [{"ReceiptHandle": each.receipt} for each in deliveries]
        self._in_tens("deleted", self._client.delete_message_batch, entries)

    def hide(self, waits: Sequence[tuple[Delivery, int]], /) -> None:
        entries = [{"ReceiptHandle": each.receipt, "VisibilityTimeout": seconds} for each, seconds in waits]
        self._in_tens("hidden", self._client.change_message_visibility_batch, entries)

    def _in_tens(self, done: str, call: Callable[..., Any], entries: Sequence[Mapping[str, Any]]) -> None:
        for start in range(0, len(entries), limits.SQS_BATCH_ENTRIES):
            part = [
                {"Id": str(place), **entry}
                for place, entry in enumerate(entries[start : start + limits.SQS_BATCH_ENTRIES])
            ]
            try:
                answer = call(QueueUrl=self._url, Entries=part)
            except (ClientError, BotoCoreError) as error:
                self._trouble(f"{len(part)} messages not {done}: {type(error).__name__}: {error}")
                continue
            for failed in answer.get("Failed", []):
                self._trouble(f"a message was not {done}: {failed.get('Code')}: {failed.get('Message')}")


def _entry(place: int, message: Sendable) -> dict[str, Any]:
    entry: dict[str, Any] = {"Id": str(place), "MessageBody": message.body}
    if message.group is not None:
        entry["MessageGroupId"] = message.group
    if message.dedup is not None:
        entry["MessageDeduplicationId"] = message.dedup
    if message.delay:
        entry["DelaySeconds"] = message.delay
    header = None if message.trace is None else to_xray(message.trace, beside=os.environ.get(XRAY, ""))
    if header is not None:
        entry["MessageSystemAttributes"] = _traced(header)
    return entry


def _traced(header: str) -> dict[str, Any]:
    """A system attribute counts neither among the ten nor in the message's size.

    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
    """
    return {"AWSTraceHeader": {"DataType": "String", "StringValue": header}}


def _outcomes(count: int, answer: Any) -> list[Sent]:
    """SQS answers 200 with failures inside; a message that it does not mention has no known outcome."""
    outcomes = [Sent("unknown", "SQS did not say what became of it")] * count
    for entry in answer.get("Successful", []):
        outcomes[int(entry["Id"])] = Sent("accepted")
    for entry in answer.get("Failed", []):
        reason = f"{entry.get('Code')}: {entry.get('Message', '')}"
        outcomes[int(entry["Id"])] = Sent("refused" if entry.get("SenderFault") else "again", reason)
    return outcomes


def answered(error: ClientError) -> Sent:
    """An error answer: nothing was taken. Its own faults and throttling are worth another try, ours are not."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    again = status >= 500 or "Throttl" in code or code == "OverLimit"
    return Sent("again" if again else "refused", f"{code}: {error}")


def _attribute(value: Attribute) -> dict[str, Any]:
    rendered: dict[str, Any] = {"DataType": value.type}
    if value.binary is not None:
        rendered["BinaryValue"] = value.binary
    else:
        rendered["StringValue"] = value.text or ""
    return rendered
