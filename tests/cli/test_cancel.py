"""`loomjobs cancel`, on records in memory, and once on an environment's table."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

from loomjobs.cli import cancel
from loomjobs.cli.main import main
from loomjobs.core import names
from loomjobs.core.key import EACH_ENQUEUE
from loomjobs.core.record import record_id
from loomjobs.local.store import MemoryStore
from loomjobs.runtime.status import reading
from tests.core.catalogue_fixture import DEV, catalogue, declare

PAYLOAD = '{"customer_id": "c1", "period": "2026-01-01"}'
KEY = "c1/2026-01-01"
ID = record_id("billing.write", KEY)
LATER = int((datetime.now(UTC) + timedelta(days=1)).timestamp())


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryStore]:
    known = catalogue(declare("billing.write"), declare("billing.any", key=EACH_ENQUEUE))
    monkeypatch.setattr(cancel, "catalogue", lambda: known)
    made = MemoryStore()
    with reading(made):
        yield made


def test_it_says_what_the_cancel_came_to(store: MemoryStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cancel", "billing.write", PAYLOAD]) == 0
    assert capsys.readouterr().out == f"billing.write {KEY}: cancelled, it will not run (state: cancelled)\n"
    assert store.items[ID]["status"] == "CANCELLED"


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [("INPROGRESS", 0, "requested, it is running"), ("COMPLETED", 1, "too-late, it has ended (state: succeeded)")],
)
def test_too_late_is_an_exit_code_of_1(
    store: MemoryStore, capsys: pytest.CaptureFixture[str], status: str, code: int, says: str
) -> None:
    store.items[ID] = {"id": ID, "status": status, "owner": "o", "epoch": 1, "expiration": LATER}
    assert main(["cancel", "billing.write", "--key", KEY]) == code
    assert says in capsys.readouterr().out


def test_a_payload_may_come_from_a_file_or_standard_input(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.json").write_text(PAYLOAD)
    assert main(["cancel", "billing.write", f"@{tmp_path / 'one.json'}"]) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO(PAYLOAD))
    assert main(["cancel", "billing.write", "-"]) == 0
    assert list(store.items) == [ID]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["billing.write"], "Give its payload, or --key KEY"),
        (["billing.write", PAYLOAD, "--key", KEY], "Give its payload, or --key KEY"),
        (["billing.write", "{"], "not JSON"),
        (["billing.write", "@/nowhere"], "cannot be read"),
        (["billing.wirte", PAYLOAD], "Did you mean billing.write?"),
        (["billing.any", PAYLOAD], "Pass key= with the id"),
    ],
)
def test_a_wrong_call_writes_nothing_and_says_what_to_do(
    store: MemoryStore, capsys: pytest.CaptureFixture[str], arguments: list[str], what: str
) -> None:
    assert main(["cancel", *arguments]) == 2
    assert what in capsys.readouterr().err
    assert not store.items


def test_an_environment_is_where_its_table_is_and_not_what_the_shell_has(
    monkeypatch: pytest.MonkeyPatch, store: MemoryStore
) -> None:
    monkeypatch.setattr(cancel, "environment", lambda name: DEV)
    for name, value in ((names.ENV, "prod"), (names.APP, "other"), (names.TABLE, "elsewhere")):
        monkeypatch.setenv(name, value)
    assert main(["cancel", "billing.write", PAYLOAD, "--env", "dev"]) == 0
    assert (cancel.os.environ[names.ENV], cancel.os.environ[names.APP]) == (DEV.name, DEV.app)
    assert names.TABLE not in cancel.os.environ


JOBS = """
from dataclasses import dataclass
from loomjobs import JobContext, Queue, Workload, job, tombstone

main = Queue("main", workload=Workload.BACKGROUND)

@dataclass(frozen=True)
class Work:
    name: str

@job("shop.work", queue=main, key="name")
def work(payload: Work, ctx: JobContext) -> None: ...

tombstone("shop.old-work", queue=main, why="replaced by shop.work in 2026-10")
"""


def in_project(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    jobs = folder / "handlers" / "jobs"
    jobs.mkdir(parents=True, exist_ok=True)
    (jobs / "__init__.py").write_text("")
    (jobs / "work.py").write_text(JOBS)
    (folder / "infra").mkdir(exist_ok=True)
    environments = (
        "from loomjobs.core.environment import Environment\nENVIRONMENTS = {'dev': Environment(name='dev')}\n"
    )
    (folder / "infra" / "environments.py").write_text(environments)
    command = [sys.executable, "-P", "-m", "loomjobs.cli.main", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_job_of_an_environment_is_cancelled_in_its_table(tmp_path: Path, account: str) -> None:
    boto3.client("dynamodb").create_table(
        TableName="executions",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    path = names.parameter("loomjobs", "dev", "foundation", "executions", "name")
    boto3.client("ssm").put_parameter(Name=path, Value="executions", Type="String")
    for _ in range(2):
        done = in_project(tmp_path, "cancel", "shop.work", '{"name": "n1"}', "--env", "dev")
        assert (done.returncode, done.stderr) == (0, "")
        assert "shop.work n1: cancelled" in done.stdout
    found: Any = boto3.client("dynamodb").get_item(TableName="executions", Key={"id": {"S": "shop.work#n1"}})
    assert found["Item"]["status"] == {"S": "CANCELLED"}
    assert "N" in found["Item"]["cancel"]


def test_a_removed_job_is_listed_with_its_reason(tmp_path: Path) -> None:
    shown = in_project(tmp_path, "list")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "shop.old-work  main   replaced by shop.work in 2026-10" in shown.stdout
    assert '"removed": "replaced by shop.work in 2026-10"' in in_project(tmp_path, "list", "--json").stdout
