"""The page on private payloads: its Python runs in order, and what the worker writes has no sensitive value."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import boto3
import pytest
from aws_lambda_powertools import Logger

import loomjobs
from loomjobs.aws import connect, process
from loomjobs.aws.handler import make_handler
from loomjobs.core import names
from loomjobs.core.registry import isolated
from tests.aws.conftest import Aws, Context, failed
from tests.core.catalogue_fixture import BILLING, catalogue

PAGE_PATH = Path(__file__).parents[2] / "docs" / "how-to" / "keep-payloads-private.md"
PAGE = PAGE_PATH.read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
NAMES = "Sensitive Encrypted JobContext Retry DeclarationError InvalidOption call enqueue job masked".split()
IBAN = "DE02120300000000202051"


def run_page(known: dict[str, Any], blocks: list[str]) -> None:
    with isolated():
        for block in blocks:
            exec(compile(block, PAGE_PATH.name, "exec", dont_inherit=True), known)


def names_of_the_page(**more: Any) -> dict[str, Any]:
    known = {name: getattr(loomjobs, name) for name in NAMES} | {"payments": BILLING}
    return known | {"dataclass": dataclass, "Annotated": Annotated, "date": date, "sha256": sha256} | more


def test_nothing_that_a_worker_writes_has_the_value(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(names.queue_url_key("billing"), aws.urls["billing"])
    log = Logger(service="payments", utc=True)
    known = names_of_the_page(log=log)
    written: list[str] = []

    def work_off() -> None:
        event = aws.receive("billing")
        assert len(event["Records"]) == 1
        assert failed(aws.handler(known["pay"])(event, Context())) == []
        written.append(capsys.readouterr().out)

    known |= {"work_off": work_off, "logged": lambda: written[0]}
    assert len(BLOCKS) == 5
    run_page(known, BLOCKS[:4])
    shown = capsys.readouterr().out
    assert "key= names the sensitive field 'iban'" in shown
    record = aws.item("payments.pay#o-1")
    (dead,) = aws.receive("billing-dlq")["Records"]
    for text in (written[0], shown, json.dumps(record), json.dumps(dead["messageAttributes"])):
        assert IBAN not in text
        assert "1980" not in text
    assert "no bank for <iban>" in dead["messageAttributes"]["loom"]["stringValue"]
    assert json.loads(dead["body"])["payload"]["iban"] == IBAN
    lines = [json.loads(line) for line in written[0].splitlines() if line.startswith("{")]
    (own,) = [line for line in lines if line.get("message") == "paying"]
    assert own["payment"] == {"order_id": "o-1", "iban": "*****", "born": "*****"}
    (ended,) = [line for line in lines if line.get("message") == "ended"]
    assert ended["error_message"] == "no bank for <iban>"
    assert "<iban>" in ended["stack"]
    assert "payload_hash" not in ended
    with pytest.raises(loomjobs.InvalidOption):
        loomjobs.call(known["pay"], known["Payment"]("o-1", IBAN), key=IBAN)


def test_an_encrypted_field_is_not_in_the_queue(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("aws_encryption_sdk", reason="`make setup` brings it")
    key = boto3.client("kms").create_key()["KeyMetadata"]["Arn"]
    monkeypatch.setenv(names.queue_url_key("billing"), aws.urls["billing"])
    monkeypatch.setenv(names.KEY, key)
    connect.forget()
    events: list[Any] = []

    def waiting() -> Any:
        events.append(aws.receive("billing"))
        return json.loads(events[0]["Records"][0]["body"])["payload"]

    def work_off() -> None:
        environment = aws.environment("billing") | {names.KEY: key}
        worker = make_handler(process.worker_process(environment, catalogue(known["pay_out"])))
        assert failed(worker(events[0], Context())) == []

    known = names_of_the_page(paid=[], waiting=waiting, work_off=work_off)
    run_page(known, BLOCKS[4:])
    assert "{'order_id': 'o-2', 'iban': '*****'}" in capsys.readouterr().out
    assert IBAN not in json.dumps(events)
    assert known["paid"] == [IBAN]
    connect.forget()
