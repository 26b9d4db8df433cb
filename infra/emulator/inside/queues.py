"""AWS::SQS::Queue in a template, with all its attributes.

Stock MiniStack drops RedrivePolicy and the FIFO attributes, makes a standard queue of a FIFO queue without a name,
and empties a queue when a property of it changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

Created = tuple[str, dict[str, str]]

LARGEST: Final = 1_048_576
"""Bytes of a message that SQS accepts, and the default of a new queue (MiniStack: 262,144).
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_CreateQueue.html"""

_NOT_ATTRIBUTES: Final = {"QueueName", "Tags"}


def correct() -> None:
    sqs: Any = import_module("ministack.services.sqs")
    sqs._NUMERIC_ATTR_RANGES["MaximumMessageSize"] = (1024, LARGEST)
    handlers: Any = import_module("ministack.services.cloudformation.provisioners")
    handlers._RESOURCE_HANDLERS["AWS::SQS::Queue"].update(create=_create, update=_update)


def attributes(properties: Mapping[str, Any]) -> dict[str, str]:
    """A template's properties as the attributes of SQS's API: text, and JSON for what is structured."""
    found = {name: _text(value) for name, value in properties.items() if name not in _NOT_ATTRIBUTES}
    return {"MaximumMessageSize": str(LARGEST)} | found


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _create(logical_id: str, properties: dict[str, Any], stack: str) -> Created:
    sqs: Any = import_module("ministack.services.sqs")
    name = properties.get("QueueName") or _name(stack, logical_id, fifo=properties.get("FifoQueue") in (True, "true"))
    url = sqs._act_create_queue({"QueueName": name, "Attributes": attributes(properties)}, "")["QueueUrl"]
    return _created(sqs, url)


def _update(url: str, old: dict[str, Any], new: dict[str, Any], stack: str) -> Created:
    """In place, keeping the messages. A property that is taken away keeps its last value here."""
    sqs: Any = import_module("ministack.services.sqs")
    sqs._act_set_queue_attributes({"QueueUrl": url, "Attributes": attributes(new)}, url)
    return _created(sqs, url)


def _created(sqs: Any, url: str) -> Created:
    queue = sqs._queues[url]
    return url, {"Arn": queue["attributes"]["QueueArn"], "QueueName": queue["name"], "QueueUrl": url}


def _name(stack: str, logical_id: str, *, fifo: bool) -> str:
    handlers: Any = import_module("ministack.services.cloudformation.provisioners")
    suffix = ".fifo" if fifo else ""
    return str(handlers._physical_name(stack, logical_id, max_len=80 - len(suffix))) + suffix
