"""The page on sending jobs: its Python runs in order, and the worker reads what it shows for other languages."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

import loomjobs
from loomjobs.core import names
from tests.aws.conftest import Aws, Context, failed
from tests.core.catalogue_fixture import Statement, declare

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "send-jobs.md").read_text()
WRITE = declare("billing.write")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_its_python_sends_what_it_says(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(names.queue_url_key("billing"), aws.urls["billing"])
    known: dict[str, Any] = vars(loomjobs) | {
        name: getattr(loomjobs, name)
        for name in ("Producer", "aenqueue", "aenqueue_many", "enqueue", "enqueue_many", "call", "NotSent")
    }
    known |= {"write": WRITE, "Statement": Statement, "date": date, "timedelta": timedelta}
    known |= {"boto3": boto3, "billing_url": aws.urls["billing"], "AsyncIterator": AsyncIterator}
    found = blocks("python")
    assert len(found) == 6
    for block in found:
        exec(block, known)

    async def customers() -> AsyncIterator[str]:
        for number in range(7):
            yield f"d{number}"

    asyncio.run(known["handle"](customers()))
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch("[0-9a-f]{32} .*c1.* accepted", first)
    assert second == "1000 accepted"
    counted = aws.sqs.get_queue_attributes(QueueUrl=aws.urls["billing"], AttributeNames=["All"])["Attributes"]
    depth = int(counted["ApproximateNumberOfMessages"]) + int(counted["ApproximateNumberOfMessagesDelayed"])
    assert depth == 1 + 2 + 1_000 + 2 + 2 + 1 + 7


@pytest.mark.parametrize("language", ["shell", "javascript"])
def test_a_message_of_another_language_is_read_by_the_worker(aws: Aws, language: str) -> None:
    if language == "shell":
        (shown,) = re.findall(r"--message-body '(.*?)'", PAGE)
        body = shown
    else:
        (block,) = blocks("javascript")
        (literal,) = re.findall(r"JSON.stringify\((.*)\)", block)
        body = re.sub(r"([{ ])(\w+):", r'\1"\2":', literal)
    assert json.loads(body)["job"] == "billing.write"
    aws.sqs.send_message(QueueUrl=aws.urls["billing"], MessageBody=body)
    event = aws.receive("billing")
    assert failed(aws.handler(WRITE)(event, Context())) == []
    record = aws.item(f"billing.write#{key(body)}")
    assert record is not None
    assert record["status"] == {"S": "COMPLETED"}


def key(body: str) -> str:
    payload = json.loads(body)["payload"]
    return loomjobs.call(WRITE, Statement(payload["customer_id"], date.fromisoformat(payload["period"]))).key or ""
