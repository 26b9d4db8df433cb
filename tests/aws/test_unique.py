"""`unique_for=` on the embedded AWS: its writes are DynamoDB's, and a worker takes over from the reservation."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from datetime import date, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import boto3
import pytest

from loomjobs import Producer, call, enqueue, enqueue_many, rerun, status
from loomjobs.core import names
from tests.aws.conftest import Aws, Context, failed
from tests.core.catalogue_fixture import Statement, declare

WRITE = declare("billing.write")
HOUR = timedelta(hours=1)


def one(customer: str = "c1") -> Statement:
    return Statement(customer, date(2026, 1, 1))


@pytest.fixture(autouse=True)
def here(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(names.TABLE, "executions")
    monkeypatch.setenv(names.queue_url_key("billing"), aws.urls["billing"])


def depth(aws: Aws) -> int:
    found = aws.sqs.get_queue_attributes(QueueUrl=aws.urls["billing"], AttributeNames=["All"])["Attributes"]
    return int(found["ApproximateNumberOfMessages"])


def test_a_reserved_job_is_run_by_the_worker_and_counts_for_the_window(aws: Aws) -> None:
    first = enqueue(WRITE, one(), unique_for=HOUR)
    assert enqueue(WRITE, one(), unique_for=HOUR).id == first.id
    assert status(WRITE, one()).state == "queued"
    assert failed(aws.handler(WRITE)(aws.receive("billing"), Context())) == []
    assert status(WRITE, one()).state == "succeeded"
    assert enqueue(WRITE, one(), unique_for=HOUR).outcome == "duplicate"
    assert rerun(WRITE, one()).outcome == "accepted"
    assert failed(aws.handler(WRITE)(aws.receive("billing"), Context())) == []
    assert status(WRITE, one()).state == "succeeded"
    assert depth(aws) == 0


def test_many_are_reserved_ten_to_a_call(aws: Aws) -> None:
    calls = [call(WRITE, one(f"c{number % 40}"), unique_for=HOUR) for number in range(100)]
    report = enqueue_many(calls)
    assert (report.accepted, report.duplicate, depth(aws)) == (40, 60, 40)


def test_of_many_threads_one_sends(aws: Aws) -> None:
    path = "/loomjobs/prod/foundation/executions/name"
    boto3.client("ssm").put_parameter(Name=path, Value="executions", Type="String")
    producer = Producer("prod", queues={"billing": aws.urls["billing"]})
    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(lambda _: producer.enqueue(WRITE, one(), unique_for=HOUR).outcome, range(16)))
    assert (outcomes.count("accepted"), outcomes.count("duplicate"), depth(aws)) == (1, 15, 1)


def test_the_page_does_what_it_says(aws: Aws, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "enqueue-once.md").read_text()
    import loomjobs

    known: dict[str, Any] = {name: getattr(loomjobs, name) for name in ("enqueue", "status", "wait", "rerun")}
    known |= {"write": WRITE, "Statement": Statement, "date": date, "timedelta": timedelta}

    def work() -> None:
        with redirect_stdout(StringIO()):
            aws.handler(WRITE)(aws.receive("billing"), Context())

    known["work"] = work
    found = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(found) == 3
    for block in found:
        exec(block, known)
    said = re.findall(r"print\(.*?\)  # (.*)", page)
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if not line.startswith("{")] == said  # and no log lines
