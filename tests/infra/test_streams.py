"""The embedded AWS's stream mappings: which records reach the function, and where the stream goes on after it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.emulator.inside.batch import Reply
from infra.emulator.inside.streams import finished, matches

BATCH = [{"eventName": "INSERT", "dynamodb": {"SequenceNumber": str(100 + place)}} for place in range(4)]


def failing(*sequence: str) -> Reply:
    return Reply({"batchItemFailures": [{"itemIdentifier": each} for each in sequence]})


@pytest.mark.parametrize(
    ("reply", "done"),
    [
        (Reply(), 4),
        (failing(), 4),
        (failing("102"), 2),
        (failing("103", "101"), 1),  # the lowest one counts, and what is behind it comes again
        (failing("unknown"), 0),
        (Reply(error="it died"), 0),
    ],
)
def test_the_stream_goes_on_at_the_first_record_that_was_named(reply: Reply, done: int) -> None:
    assert finished(reply, BATCH, reports=True) == done


def test_without_item_failures_an_answer_is_a_success() -> None:
    assert finished(failing("101"), BATCH, reports=False) == 4


@pytest.mark.parametrize(("event", "wanted"), [("INSERT", True), ("REMOVE", False)])
def test_a_filter_names_the_values_of_a_member(event: str, wanted: bool) -> None:
    mapping: dict[str, Any] = {"FilterCriteria": {"Filters": [{"Pattern": json.dumps({"eventName": ["INSERT"]})}]}}
    assert matches({"eventName": event}, mapping) is wanted
    assert matches({"eventName": event}, {}) is True
