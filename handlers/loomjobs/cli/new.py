"""`loomjobs new`: a job and its test, complete."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from loomjobs.cli.project import root
from loomjobs.core.errors import LoomjobsError
from loomjobs.core.job_name import check_job_name
from loomjobs.core.problem import nearest
from loomjobs.core.queue import Queue


def add(commands: Any) -> None:
    news = commands.add_parser("new", help="write a job and its test")
    news.add_argument("job", help="its name, such as billing.send-reminder")
    news.add_argument("--queue", required=True, help="a queue of jobs/queues.py")
    news.set_defaults(run=new)


def new(given: argparse.Namespace) -> int:
    advice = check_job_name(given.job)
    if advice:
        raise LoomjobsError(f"{given.job!r} is not a job name. {advice}")
    variable, queue = _queue(given.queue)
    name = given.job.rpartition(".")[2].replace("-", "_")
    words = {"job": given.job, "name": name, "payload": _class(name), "queue": variable}
    group = '    group="subject_id",\n' if queue.fifo else ""
    files = {
        root() / "handlers" / "jobs" / f"{name}.py": _JOB.format(**words, group=group),
        root() / "tests" / "jobs" / f"test_{name}.py": _TEST.format(**words),
    }
    _write(files)
    print(f"next: say what it does in {next(iter(files)).relative_to(root())}, then")
    print(f'  loomjobs try {given.job} \'{{"subject_id": "1"}}\'')
    print(f"  pytest tests/jobs/test_{name}.py")
    return 0


def _queue(name: str) -> tuple[str, Queue]:
    """The queue of this name, and the variable in jobs/queues.py that holds it."""
    root()
    declared = importlib.import_module("jobs.queues")  # by name: it is the project's, not the library's

    queues = {queue.name: (variable, queue) for variable, queue in vars(declared).items() if isinstance(queue, Queue)}
    if name not in queues:
        known = ", ".join(sorted(queues)) or "none: declare one in handlers/jobs/queues.py"
        raise LoomjobsError(f"there is no queue {name!r}. {nearest(name, queues)}Known: {known}")
    return queues[name]


def _write(files: dict[Path, str]) -> None:
    there = [path for path in files if path.exists()]
    if there:
        raise LoomjobsError(f"{there[0].relative_to(root())} exists already; nothing was written")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(root())}")


def _class(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


_JOB = '''"""{payload}: what it is for, in one line."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.queues import {queue}
from loomjobs import JobContext, job


@dataclass(frozen=True, slots=True)
class {payload}:
    """Ids and plain values only; fetch fresh data in the job."""

    subject_id: str


@job(
    "{job}",
    queue={queue},
    key="subject_id",
{group})
def {name}(payload: {payload}, ctx: JobContext) -> str:
    """Runs at least once; with the key, its effect happens once."""
    return f"done for {{payload.subject_id}}"
'''

_TEST = '''"""{job}: tested in memory, through the real codec and executor."""

from __future__ import annotations

from jobs.{name} import {payload}, {name}
from loomjobs import enqueue, status
from loomjobs.testing import Jobs


def test_it_runs_once_however_often_it_is_enqueued(jobs: Jobs) -> None:
    for _ in range(2):
        enqueue({name}, {payload}(subject_id="1"))
    jobs.drain()
    assert status({name}, {payload}(subject_id="1")).result() == "done for 1"
    jobs.assert_enqueued({name}, times=2)
'''
