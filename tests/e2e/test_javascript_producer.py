"""A producer in another language gets its job run by the deployed stack."""

from __future__ import annotations

import os
import subprocess
import time
from datetime import date
from pathlib import Path

import pytest

from demo.cloud import Cloud
from demo.purchases import month
from infra.emulator import start

pytestmark = pytest.mark.e2e
PRODUCER = Path(__file__).parent / "producer.mjs"


def test_an_envelope_sent_by_the_javascript_sdk_writes_its_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start(tmp_path / "aws") as emulator:
        environment = emulator.environment()
        for name in [name for name in environment if name.startswith("AWS_")]:
            monkeypatch.setenv(name, environment[name])
        emulator.deploy("local", say=lambda text: None)
        cloud = Cloud(emulator.endpoint)
        ((customer, purchases),) = month(date(1997, 1, 1), customers=1).items()
        cloud.load(purchases)
        url = cloud.parameter("queues", "billing", "url")
        command = ["node", str(PRODUCER), url, customer, "1997-01-01"]
        sent = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        message = sent.stdout.strip()
        record = _record(cloud, f"billing.write-statement#{customer}/1997-01-01")
        assert (record["status"], record["mid"]) == ("COMPLETED", message)
        found = {each.kind: each.total for each in cloud.effects() if each.customer == customer}
        assert found["statement"] == sum(each.amount for each in purchases)
    assert "AWS_ENDPOINT_URL" in os.environ  # of this test only: monkeypatch takes it back


def _record(cloud: Cloud, id: str) -> dict[str, object]:
    """The record once it has ended; a minute at the most."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for record in cloud.records():
            if record["id"] == id and record["status"] != "INPROGRESS":
                return record
        time.sleep(0.5)
    raise AssertionError(f"{id} did not end within a minute")
