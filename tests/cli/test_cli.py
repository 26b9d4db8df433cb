"""The command line on the reference application, and on projects made for a test."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from infra.environments import ENVIRONMENTS
from loomjobs.cli import project
from loomjobs.cli.main import main
from loomjobs.core.catalogue import load
from loomjobs.core.plan import make_plan
from loomjobs.core.registry import isolated

ROOT = Path(__file__).parents[2]
STATEMENT = '{"customer_id": "1", "period": "2026-01-01"}'


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    project.root.cache_clear()
    monkeypatch.chdir(ROOT)
    yield
    project.root.cache_clear()


def test_list_shows_every_job_and_when_schedules_fire(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    for job in load("jobs").jobs:
        assert job.name in shown
    assert "cron(0 2 1 * ? *)" in shown
    assert "-01 02:00" in shown


def test_list_as_json_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    assert {each["queue"] for each in json.loads(capsys.readouterr().out)} == {
        "accounting",
        "billing",
        "interactive",
        "notifications",
    }


def test_show_says_everything_about_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "accounting.post-statement"]) == 0
    shown = capsys.readouterr().out
    for part in ("StatementId(customer_id: str", "FIFO", "visibility 3270 s", "secret accounting-token", "sent by"):
        assert part in shown


def test_an_unknown_job_is_a_wrong_call_with_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "billing.write-statment"]) == 2
    assert "Did you mean billing.write-statement?" in capsys.readouterr().err


@pytest.mark.parametrize("env", list(ENVIRONMENTS))
def test_plan_as_json_is_the_plan(capsys: pytest.CaptureFixture[str], env: str) -> None:
    assert main(["plan", "--env", env, "--json"]) == 0
    made = make_plan(load("jobs"), ENVIRONMENTS[env])
    assert json.loads(capsys.readouterr().out) == json.loads(msgspec.json.encode(made))


def test_plan_says_how_numbers_come_about_and_which_job_brought_a_grant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--env", "prod"]) == 0
    shown = capsys.readouterr().out
    assert "1020 s = 6 x 170" in shown
    assert "for billing.render-statement" in shown
    assert "parameter /loomjobs/prod/foundation/executions/name" in shown


def test_plan_of_an_unknown_environment_lists_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--env", "prd"]) == 2
    assert "Did you mean prod?" in capsys.readouterr().err


def test_check_passes_on_the_reference_application(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 0
    assert capsys.readouterr().out.startswith("0 problems in 6 jobs, 4 queues, 1 schedules")


def a_project(folder: Path, **modules: str) -> None:
    jobs = folder / "handlers" / "jobs"
    jobs.mkdir(parents=True)
    (jobs / "__init__.py").write_text("")
    for name, text in modules.items():
        (jobs / f"{name}.py").write_text(text)


QUEUES = """
from loomjobs import Queue, Workload
main = Queue("main", workload=Workload.BACKGROUND)
slow = Queue("slow", workload=Workload.BULK, fifo=True)
"""
BROKEN = """
from dataclasses import dataclass
from loomjobs import JobContext, job
from jobs.queues import main

@dataclass
class Work:
    name: str

@job("shop.work", queue=main, key="nmae", group="name")
def work(payload: Work, ctx: JobContext) -> None: ...
"""


def in_project(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the project's `jobs` is not the one of these tests."""
    command = [sys.executable, "-P", "-m", "loomjobs.cli.main", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_check_reports_all_problems_of_a_broken_catalogue_and_fails(tmp_path: Path) -> None:
    a_project(tmp_path, queues=QUEUES, broken=BROKEN, worse="import nothing_like_this\n")
    done = in_project(tmp_path, "check")
    assert done.returncode == 1
    for part in ("Did you mean name?", "group= has no effect on standard queue main", "nothing_like_this"):
        assert part in done.stdout
    listed = json.loads(in_project(tmp_path, "check", "--json").stdout)
    assert {each["severity"] for each in listed} == {"error"}


@pytest.mark.parametrize("queue", ["main", "slow"])
def test_new_writes_a_job_and_a_test_that_pass(tmp_path: Path, queue: str) -> None:
    a_project(tmp_path, queues=QUEUES)
    done = in_project(tmp_path / "handlers", "new", "shop.send-receipt", "--queue", queue)
    assert (done.returncode, done.stderr) == (0, "")
    assert in_project(tmp_path, "check").returncode == 0
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir=."]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "handlers")}
    passed = subprocess.run(
        [*command, "tests/jobs"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert "1 passed" in passed.stdout
    again = in_project(tmp_path, "new", "shop.send-receipt", "--queue", queue)
    assert again.returncode == 2
    assert "exists already; nothing was written" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("shop.send", "--queue", "man"), "Did you mean main?"),
        (("Send", "--queue", "main"), "is not a job name"),
    ],
)
def test_new_refuses_what_could_not_work(tmp_path: Path, arguments: tuple[str, ...], what: str) -> None:
    a_project(tmp_path, queues=QUEUES)
    done = in_project(tmp_path, "new", *arguments)
    assert (done.returncode, what in done.stderr) == (2, True)


def test_outside_a_project_the_command_says_so(tmp_path: Path) -> None:
    done = in_project(tmp_path, "list")
    assert done.returncode == 2
    assert "is not inside a project" in done.stderr


def test_try_runs_a_job_in_memory_and_prints_the_decision(tmp_path: Path) -> None:
    a_project(tmp_path, queues=QUEUES)
    in_project(tmp_path, "new", "shop.send-receipt", "--queue", "main")
    done = in_project(tmp_path, "try", "shop.send-receipt", '{"subject_id": "7"}')
    assert (done.returncode, done.stdout) == (0, done.stdout)
    assert "shop.send-receipt 7 attempt 1: succeeded" in done.stdout


def test_try_of_a_job_that_fails_says_why_and_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["try", "billing.write-statement", STATEMENT]) == 1
    assert "retry in" in capsys.readouterr().out
    assert main(["try", "billing.write-statement", STATEMENT, "--drain"]) == 1
    assert "dead letter, exhausted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("payload", "what"),
    [("{", "not JSON"), ('{"customer_id": 7}', "$.customer_id"), ("@/nowhere", "cannot be read")],
)
def test_try_names_what_is_wrong_with_a_payload(capsys: pytest.CaptureFixture[str], payload: str, what: str) -> None:
    assert main(["try", "billing.write-statement", payload]) == 2
    assert what in capsys.readouterr().err


def test_try_reads_a_file_and_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "payload.json").write_text(STATEMENT)
    assert main(["try", "billing.write-statement", f"@{tmp_path / 'payload.json'}"]) == 1
    monkeypatch.setattr("sys.stdin", io.StringIO(STATEMENT))
    assert main(["try", "billing.write-statement", "-"]) == 1
    assert capsys.readouterr().out.count("attempt 1") == 2


def test_schema_prints_the_envelopes_and_a_payloads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["required"] == ["job"]
    assert main(["schema", "billing.write-statement"]) == 0
    assert "customer_id" in capsys.readouterr().out


def test_the_sample_events_are_up_to_date() -> None:
    assert main(["events", "--check"]) == 0


def test_a_stale_sample_event_is_noticed_and_written_anew(tmp_path: Path) -> None:
    a_project(tmp_path, queues=QUEUES)
    in_project(tmp_path, "new", "shop.send-receipt", "--queue", "main")
    assert in_project(tmp_path, "events", "--check").returncode == 1
    assert in_project(tmp_path, "events").returncode == 0
    assert in_project(tmp_path, "events", "--check").returncode == 0
    (tmp_path / "events" / "sqs-poison.json").write_text("{}")
    stale = in_project(tmp_path, "events", "--check")
    assert (stale.returncode, "sqs-poison.json is stale" in stale.stderr) == (1, True)


def test_an_error_of_ours_is_one_line_and_its_stack_comes_with_debug(capsys: pytest.CaptureFixture[str]) -> None:
    from loomjobs.core.errors import LoomjobsError

    assert main(["show", "no.such"]) == 2
    assert "Traceback" not in capsys.readouterr().err
    with pytest.raises(LoomjobsError):
        main(["--debug", "show", "no.such"])


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith("loomjobs 0.")


@pytest.mark.slow
def test_clean_start_leaves_a_project_that_passes(tmp_path: Path) -> None:
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in filter(None, files):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    (tmp_path / "node_modules").symlink_to(ROOT / "node_modules")
    environment = {
        "PYTHONPATH": f"{tmp_path}/handlers:{tmp_path}",
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
    }

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=500
        )

    assert run(sys.executable, "-m", "loomjobs.cli.main", "clean-start").returncode == 0
    check = run(sys.executable, "-m", "loomjobs.cli.main", "check")
    assert (check.returncode, check.stdout.startswith("0 problems in 0 jobs")) == (0, True)
    tests = run(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider")
    assert tests.returncode == 0, tests.stdout[-3000:]
    with isolated():
        new = run(sys.executable, "-m", "loomjobs.cli.main", "new", "shop.send-receipt", "--queue", "default")
    assert new.returncode == 0
    assert run(sys.executable, "-m", "pytest", "-q", "tests/jobs").returncode == 0
