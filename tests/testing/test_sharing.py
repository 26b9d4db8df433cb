"""The page on sharing queues: its Python runs in order, in memory."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import loomjobs
from loomjobs import JobContext, Queue, Workload, job
from loomjobs.core.registry import isolated
from loomjobs.testing import Jobs, memory

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "share-queues-fairly.md").read_text()
TENANTS, RATE, QUEUES, AGING = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@dataclass(frozen=True)
class Report:
    id: str


@dataclass(frozen=True)
class Letter:
    id: str
    customer: str


def known(rendered: list[str]) -> dict[str, Any]:
    """What the page takes for declared: a job `make` on the queue `bulk`."""
    names: dict[str, Any] = {name: getattr(loomjobs, name) for name in loomjobs.__all__}
    names |= {"timedelta": timedelta, "Report": Report, "Letter": Letter, "sent": []}
    names["bulk"] = Queue("bulk", workload=Workload.BULK, max_workers=5)
    names["render"] = lambda report: rendered.append(report.id)

    def make(report: Report, ctx: JobContext) -> None:
        rendered.append(report.id)

    names["make"] = job("reports.make", queue=names["bulk"], key="id")(make)
    return names


def groups(jobs: Jobs, queue: str = "bulk") -> list[tuple[str | None, Any]]:
    messages = jobs.backend.queues[queue].messages
    return [(message.group, json.loads(message.body).get("tenant")) for message in messages]


def test_tenants_are_the_groups_of_the_queue_and_come_as_they_were_sent() -> None:
    rendered: list[str] = []
    with isolated():
        names = known(rendered)
        with memory() as jobs:
            exec(TENANTS, names)
            assert groups(jobs) == [("acme", "acme")] * 3 + [("zeta", "zeta")]
            jobs.drain()
    assert rendered == ["r1", "r2", "r3", "r4"]


def test_a_rate_for_each_customer_spaces_its_starts_and_nobody_elses() -> None:
    with isolated():
        names = known([])
        exec(RATE, names)
        with memory() as jobs:
            for number in range(3):
                loomjobs.enqueue(names["send"], Letter(f"l{number}", "acme"), tenant="acme")
            loomjobs.enqueue(names["send"], Letter("l3", "zeta"), tenant="zeta")
            start = jobs.clock.now
            jobs.drain()
            assert sorted(names["sent"]) == [("acme", "l0"), ("acme", "l1"), ("acme", "l2"), ("zeta", "l3")]
            assert names["sent"].index(("zeta", "l3")) < 2
            assert jobs.clock.now - start >= timedelta(minutes=1)


@pytest.mark.parametrize("is_late", [True, False])
def test_an_overdue_job_is_taken_over_once_and_one_in_time_is_left(is_late: bool) -> None:
    rendered: list[str] = []
    with isolated():
        names = known(rendered)
        exec(QUEUES.replace("bulk = ", "_ = "), names)
        exec(f"from __future__ import annotations\n{AGING.partition('report = ')[0]}", names)
        with memory() as jobs:
            exec("report = " + AGING.partition("report = ")[2], names)
            if is_late:
                jobs.clock.advance(timedelta(minutes=10))
                jobs.backend.deliver("urgent")
                assert rendered == ["r5"]
            outcomes = {outcome.job: outcome.state for outcome in jobs.drain()}
    assert rendered == ["r5"]
    assert outcomes["reports.make"] == ("cancelled" if is_late else "succeeded")


@pytest.mark.parametrize("fails", [False, True])
def test_one_that_runs_when_it_is_overdue_is_waited_for(fails: bool) -> None:
    done: list[str] = []
    with isolated():
        names = known(done)
        names["urgent"] = Queue("urgent", workload=Workload.INTERACTIVE)
        exec(AGING.partition("report = ")[0], names)
        with memory() as jobs:

            def make(report: Report, ctx: JobContext) -> None:
                jobs.clock.advance(timedelta(minutes=10))
                jobs.backend.deliver("urgent")
                if fails:
                    raise ValueError("no")
                done.append("bulk")

            names["make"].function = make
            exec("report = " + AGING.partition("report = ")[2], names)
            outcomes = {outcome.job: (outcome.state, outcome.attempts) for outcome in jobs.drain()}
    assert done == (["r5"] if fails else ["bulk"])
    assert outcomes["reports.make-overdue"] == ("succeeded", 1)
    assert outcomes["reports.make"][0] == ("cancelled" if fails else "succeeded")
