"""The page on following jobs: its Python runs in order, in memory."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aws_lambda_powertools import Logger

import loomjobs
from loomjobs import JobContext, Queue, Workload, job
from loomjobs.core.registry import isolated
from loomjobs.runtime.caller import XRAY
from loomjobs.testing import memory

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "follow-a-job.md").read_text()
BULK = Queue("bulk", workload=Workload.BULK)


@dataclass(frozen=True)
class Report:
    id: str


@pytest.fixture
def _forgetful() -> Iterator[None]:
    """One Logger a service is kept by Powertools."""
    yield
    Logger(service="orders").set_correlation_id(None)


@pytest.mark.usefixtures("_forgetful")
def test_its_python_does_what_it_says(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(XRAY, "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1")
    of_logger, of_block, making, tracing = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    known: dict[str, Any] = {name: getattr(loomjobs, name) for name in loomjobs.__all__}
    known |= {"Report": Report, "Logger": Logger, "made": [], "carriers": []}
    exec(making, known)
    exec(tracing, known)

    def make(report: Report, ctx: JobContext) -> None:
        known["make_report"](report, ctx)
        known["traced"](report, ctx)

    with isolated():
        known["make"] = job("reports.make", queue=BULK, key="id")(make)
        with memory() as jobs:
            exec(of_logger, known)
            known["logger"].registered_handler.setStream(sys.stdout)
            exec(of_block, known)
            known["logger"].set_correlation_id("of another invocation")
            jobs.drain()
    assert known["made"] == [("r1", "req-1"), ("r2", "req-2")]
    assert known["carriers"] == [{"traceparent": "00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01"}] * 2
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["message"], line["correlation_id"]) for line in lines] == [
        ("ordered", "req-2"),
        ("making", "req-1"),
        ("making", "req-2"),
    ]
