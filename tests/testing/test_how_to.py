"""The page on full queues: its Python runs in order, in memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import loomjobs
from loomjobs import JobContext, job
from loomjobs.core.registry import isolated
from loomjobs.testing import memory

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "hold-back-when-a-queue-is-full.md").read_text()


@dataclass(frozen=True)
class Row:
    id: str


def run(row: Row, ctx: JobContext) -> None:
    """Load a row."""


def test_its_python_does_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    declared, single, many, delaying = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    known: dict[str, Any] = {name: getattr(loomjobs, name) for name in loomjobs.__all__}
    known |= {"timedelta": timedelta, "Row": Row}
    exec(declared, known)
    exec(delaying, known)
    with isolated():
        load = known["load"] = job("imports.load", queue=known["imports"], key="id")(run)
        report = job("reports.make", queue=known["reports"], key="id")(run)
        with memory() as jobs:

            def wait(span: timedelta) -> None:
                jobs.drain()
                jobs.clock.advance(span)

            known["wait"] = wait
            for number in range(200):
                loomjobs.enqueue(load, Row(f"{number}"))
            exec(single, known)
            assert capsys.readouterr().out == (
                "imports queue imports is full: 200 messages of at most 200 "
                "(0 visible, 0 in flight, 0 delayed; counted 0 s ago, and 200 sent since). "
                f"Send again after {known['seconds']:g} s, shed the work, or raise admit= of the queue\n"
            )
            wait(timedelta(seconds=10))
            exec(many, known)
            assert len(jobs.enqueued(load)) == 200 + 300
            outcomes = [loomjobs.enqueue(report, Row(f"{number}")).outcome for number in range(101)]
            assert outcomes == ["accepted"] * 100 + ["delayed"]
