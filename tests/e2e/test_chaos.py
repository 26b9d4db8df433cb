"""Workers killed on the embedded AWS, as a real kernel kills: SIGKILL, no goodbye."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3
import pytest

from infra.emulator import Emulator, start
from infra.emulator.address import REGION
from loomjobs.core import names
from tests.e2e.emulated import until

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]

ENVIRONMENTS = '''"""One environment, for the jobs that misbehave."""

from loomjobs.core.environment import Environment

ENVIRONMENTS = {{
    "local": Environment(
        name="local",
        retain=False,
        log_retention_days=1,
        architecture="host",
        local=True,
        settings={{"diary": {diary!r}}},
    )
}}
'''


@dataclass(frozen=True, slots=True)
class Chaos:
    aws: Emulator
    diary: Path

    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.aws.endpoint,
            region_name=REGION,
            aws_access_key_id="000000000000",
            aws_secret_access_key="local",
        )

    def parameter(self, *path: str) -> str:
        name = names.parameter("loomjobs", "local", *path)
        return str(self.client("ssm").get_parameter(Name=name)["Parameter"]["Value"])

    def send(self, queue: str, *orders: dict[str, Any]) -> None:
        """All in one request, so that one delivery batch holds them."""
        bodies = [json.dumps({"job": f"chaos.{queue}", "payload": order}) for order in orders]
        self.client("sqs").send_message_batch(
            QueueUrl=self.parameter("queues", queue, "url"),
            Entries=[{"Id": str(place), "MessageBody": body} for place, body in enumerate(bodies)],
        )

    def lines(self, what: str, *, name: str | None = None) -> list[dict[str, Any]]:
        entries = [json.loads(line) for line in self.diary.read_text().splitlines()]
        return [each for each in entries if each["what"] == what and name in (None, each["name"])]

    def record(self, queue: str, name: str) -> dict[str, Any]:
        item = self.client("dynamodb").get_item(
            TableName=self.parameter("foundation", "executions", "name"),
            Key={"id": {"S": f"chaos.{queue}#{name}"}},
            ConsistentRead=True,
        )
        return {key: next(iter(value.values())) for key, value in item.get("Item", {}).items()}

    def state(self, queue: str, name: str) -> str:
        return str(self.record(queue, name).get("status", ""))

    def depth(self, *path: str) -> int:
        wanted = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.client("sqs").get_queue_attributes(QueueUrl=self.parameter(*path), AttributeNames=wanted)
        return sum(int(found["Attributes"][each]) for each in wanted)


@pytest.fixture(scope="module")
def chaos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chaos]:
    top = tmp_path_factory.mktemp("chaos")
    diary = top / "diary"
    diary.touch()
    project = _project(top / "project", diary)
    with start(top / "state") as running:
        replace(running, root=project).deploy("local", say=lambda text: None)
        yield Chaos(running, diary)


def _project(folder: Path, diary: Path) -> Path:
    """The library and its infrastructure, with the misbehaving jobs as the team's."""
    for name in ("handlers", "infra", "locks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "jobs"))
    for name in ("app.py", "cdk.json", "package.json", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    for name in ("node_modules", ".venv"):
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    shutil.copytree(Path(__file__).parent / "chaos" / "jobs", folder / "handlers" / "jobs")
    # this project's own modules, before those that the virtual environment knows
    settings = json.loads((folder / "cdk.json").read_text())
    settings["app"] = f"env PYTHONPATH={folder}/handlers:{folder} {settings['app']}"
    (folder / "cdk.json").write_text(json.dumps(settings))
    (folder / "infra" / "resources.py").write_text('"""Nothing: these jobs touch nothing of AWS."""\n')
    (folder / "infra" / "environments.py").write_text(ENVIRONMENTS.format(diary=str(diary)))
    return folder


def test_a_job_that_is_killed_twice_succeeds_with_one_effect(chaos: Chaos) -> None:
    chaos.send("batch", {"name": "twice", "kills": 2})
    until(lambda: chaos.state("batch", "twice") == "COMPLETED", 180)
    assert len(chaos.lines("start", name="twice")) == 3
    assert len(chaos.lines("effect", name="twice")) == 1
    assert chaos.record("batch", "twice")["n"] == "2"


@pytest.mark.parametrize("queue", ["batch", "side"])
def test_a_poison_job_takes_none_of_its_nine_neighbours_with_it(chaos: Chaos, queue: str) -> None:
    fine = [f"{queue}-fine{n}" for n in range(9)]
    poison = f"{queue}-poison"
    orders: list[dict[str, Any]] = [{"name": name} for name in fine]
    orders.insert(4, {"name": poison, "kills": 99, "hold": 0.3 if queue == "side" else 0.0})
    chaos.send(queue, *orders)
    until(lambda: chaos.state(queue, poison) == "DEAD", 300)
    until(lambda: all(chaos.state(queue, name) == "COMPLETED" for name in fine), 60)
    effects = Counter(each["name"] for each in chaos.lines("effect"))
    assert {name: effects[name] for name in fine} == dict.fromkeys(fine, 1)
    assert effects[poison] == 0
    record = chaos.record(queue, poison)
    assert (record["why"], record["n"]) == ("crashed", "4")
    until(lambda: chaos.depth("queues", queue, "url") == 0)
    assert chaos.depth("queues", queue, "dlq", "url") == 1


def test_a_long_job_with_a_heartbeat_goes_on_within_ninety_seconds_of_a_kill(chaos: Chaos) -> None:
    """Its queue's visibility is an hour and a half: only the heartbeat can bring it back so soon."""
    chaos.send("long", {"name": "hour", "hold": 600})
    until(lambda: chaos.record("long", "hour").get("ck") == "1", 60)
    time.sleep(25)  # a beat or more
    (pid,) = chaos.aws.workers("worker-long")
    os.kill(pid, signal.SIGKILL)
    killed = time.time()
    until(lambda: chaos.state("long", "hour") == "COMPLETED", 120)
    first, second = chaos.lines("start", name="hour")
    assert first["at"] < killed
    assert second["at"] - killed <= 90
    assert len(chaos.lines("effect", name="hour")) == 1


def test_a_job_that_cannot_be_stopped_ends_its_process_and_thaws_into_no_other(chaos: Chaos) -> None:
    before = set(chaos.aws.workers("worker-side"))
    chaos.send("side", {"name": "deaf", "hold": 60, "stuck": True}, {"name": "beside"})
    until(lambda: chaos.state("side", "deaf") == "WAITING", 60)
    assert chaos.state("side", "beside") == "COMPLETED"
    until(lambda: not set(chaos.aws.workers("worker-side")) & before, 30)
    assert chaos.lines("effect", name="deaf") == []
