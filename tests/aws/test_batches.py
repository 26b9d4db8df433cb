"""Batches and chains on the embedded AWS, and the page that shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from datetime import date
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import loomjobs
from loomjobs.core import names
from tests.aws.conftest import Aws, Context, failed
from tests.core.catalogue_fixture import MAIL, Statement, declare

ENDS = [declare(f"mail.{name}", MAIL) for name in ("report", "alert", "mail")]
RENDER = declare("mail.render", MAIL, sends=[ENDS[2]])
WRITE = declare("billing.write", sends=[*ENDS, RENDER])


@pytest.fixture(autouse=True)
def here(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(names.TABLE, "executions")
    aws.queue("mail-dlq")
    for queue in ("billing", "mail"):
        monkeypatch.setenv(names.queue_url_key(queue), aws.urls[queue])


def work(aws: Aws, queue: str, *jobs: Any) -> list[str]:
    """Run what the queue holds; the names of its jobs, in order."""
    ran: list[str] = []
    handler = aws.handler(*jobs, queue=queue)
    with redirect_stdout(StringIO()):
        while event := aws.receive(queue):
            if not event["Records"]:
                return ran
            assert failed(handler(event, Context())) == []
            ran += [re.findall(r'"job":"([^"]*)"', record["body"])[0] for record in event["Records"]]
    return ran


def customers() -> Iterator[str]:
    return (f"c{number}" for number in range(250))


def test_the_page_does_what_it_says(aws: Aws, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "many-jobs-as-one.md").read_text()
    known: dict[str, Any] = {name: getattr(loomjobs, name) for name in ("enqueue", "call", "Batch", "batch_status")}
    known |= {"write": WRITE, "render": RENDER, "report": ENDS[0], "alert": ENDS[1], "mail": ENDS[2]}
    known |= {"Statement": Statement, "date": date, "customers": customers}
    known |= {"statement": Statement("x", date(2026, 1, 1)), "month": Statement("month", date(2026, 1, 1))}
    chain, batch, looks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)

    exec(chain, known)
    assert work(aws, "billing", WRITE) == ["billing.write"]
    assert work(aws, "mail", RENDER, *ENDS) == ["mail.render", "mail.mail"]

    exec(batch, known)
    assert len(work(aws, "billing", WRITE)) == 250
    assert work(aws, "mail", RENDER, *ENDS) == ["mail.report"]

    exec(looks, known)
    printed = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("{")]
    assert printed == re.findall(r"print\(.*?\)  # (.*)", page)
