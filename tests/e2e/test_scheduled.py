"""Calls that are due later than SQS can hold them, on the embedded AWS: listed, moved, cancelled, sent and run."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from demo.cloud import Cloud
from demo.purchases import month
from infra.emulator import start
from jobs.post_statement import post_statement
from jobs.statement import StatementId
from jobs.write_statement import write_statement
from loomjobs import enqueue
from loomjobs.aws import clients, connect
from loomjobs.cli.main import main
from loomjobs.core import names

pytestmark = pytest.mark.e2e
JANUARY = date(1997, 1, 1)
DAY = timedelta(days=1)


def test_a_schedule_sends_to_standard_and_fifo_queues_and_a_moved_one_when_it_was_moved_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with start(tmp_path / "aws") as emulator:
        for name, value in emulator.environment().items():
            if name.startswith("AWS_"):
                monkeypatch.setenv(name, value)
        monkeypatch.setenv(names.ENV, "local")
        connect.forget()
        clients.forget()
        emulator.deploy("local", say=lambda text: None)
        cloud = Cloud(emulator.endpoint)
        ((customer, purchases),) = month(JANUARY, customers=1).items()
        cloud.load(purchases)

        far = enqueue(write_statement, StatementId(customer, JANUARY), delay=30 * DAY)
        unwanted = enqueue(write_statement, StatementId("unwanted", JANUARY), delay=DAY)
        soon = datetime.now(UTC) + timedelta(seconds=5)
        enqueue(post_statement, StatementId("nobody", JANUARY), at=soon)  # dead: there is no such statement
        assert main(["scheduled", "list", "--queue", "billing"]) == 0
        assert [line.split()[2] for line in capsys.readouterr().out.splitlines()[1:]] == ["billing.write-statement"] * 2
        assert main(["scheduled", "cancel", f"billing-{unwanted.id}"]) == 0
        assert main(["scheduled", "move", f"billing-{far.id}", "--at", soon.isoformat()]) == 0

        assert _ended(cloud, f"billing.write-statement#{customer}/1997-01-01") == "COMPLETED"
        assert _ended(cloud, "accounting.post-statement#nobody/1997-01-01") == "DEAD"
        assert main(["scheduled", "list"]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "nothing waits"
    connect.forget()
    clients.forget()


def _ended(cloud: Cloud, id: str) -> object:
    """Schedules fire in the next whole minute."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        for record in cloud.records():
            if record["id"] == id and record["status"] in ("COMPLETED", "DEAD"):
                return record["status"]
        time.sleep(0.5)
    raise AssertionError(f"{id} did not end within two minutes")
