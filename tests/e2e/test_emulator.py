"""The embedded AWS, in the points where stock MiniStack differs from AWS and in its start and stop."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from infra.emulator import Emulator, EmulatorError, start
from infra.emulator.address import HOST
from infra.emulator.emulator import find
from tests.e2e.emulated import Stack, template, until

pytestmark = pytest.mark.e2e

QUEUES = {
    "Work": {"VisibilityTimeout": 2},
    "Other": {"VisibilityTimeout": 30},
    "Ordered": {"VisibilityTimeout": 2, "FifoQueue": True, "ContentBasedDeduplication": True},
}


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with start(tmp_path_factory.mktemp("emulator")) as running:
        yield running


@pytest.fixture(scope="module")
def stack(aws: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Stack:
    diary = tmp_path_factory.mktemp("diary") / "diary"
    made = Stack(aws, "small", diary)
    made.deploy(template(diary, queues=QUEUES))
    return made


def test_a_second_one_from_the_same_directory_is_refused(aws: Emulator) -> None:
    with pytest.raises(EmulatorError, match=aws.endpoint):
        start(aws.directory)


def test_it_listens_on_loopback_only(aws: Emulator, stack: Stack) -> None:
    listening = {address.laddr.ip for address in psutil.Process(aws.server.pid).net_connections("inet")}
    assert listening == {HOST}


def test_a_queue_of_a_template_has_its_redrive_policy_and_its_type(stack: Stack) -> None:
    sqs = stack.client("sqs")
    found = sqs.get_queue_attributes(QueueUrl=stack.output("Ordered"), AttributeNames=["All"])["Attributes"]
    assert found["FifoQueue"] == "true"
    assert found["MaximumMessageSize"] == "1048576"
    assert json.loads(found["RedrivePolicy"])["maxReceiveCount"] == 2
    assert stack.output("Ordered").endswith(".fifo")
    assert stack.output("OrderedDead").endswith(".fifo")


def test_a_message_is_received_at_once_and_deleted(stack: Stack) -> None:
    message = stack.send("Work", {})
    (entry,) = until(lambda: stack.received(message))
    until(lambda: stack.depth("Work") == 0)
    sent = int(entry["record"]["attributes"]["SentTimestamp"]) / 1000
    assert entry["at"] - sent < 5


def test_a_record_tells_what_lambda_tells(stack: Stack) -> None:
    message = stack.send("Ordered", {"n": 1}, MessageGroupId="customer-7", MessageDeduplicationId="once")
    (entry,) = until(lambda: stack.received(message))
    attributes = entry["record"]["attributes"]
    assert attributes["MessageGroupId"] == "customer-7"
    assert attributes["MessageDeduplicationId"] == "once"
    assert attributes["SequenceNumber"].isdigit()
    assert attributes["ApproximateReceiveCount"] == "1"


def test_only_the_reported_record_comes_back_and_goes_to_the_dead_letter_queue(stack: Stack) -> None:
    good, bad = stack.send("Work", {}), stack.send("Work", {"fail": True})
    until(lambda: stack.depth("WorkDead") == 1)
    assert [entry["record"]["attributes"]["ApproximateReceiveCount"] for entry in stack.received(bad)] == ["1", "2"]
    assert len(stack.received(good)) == 1


def test_a_slow_job_holds_up_neither_another_queue_nor_its_own(stack: Stack) -> None:
    slow = stack.send("Other", {"sleep": 6})
    until(lambda: stack.received(slow))
    quick = [stack.send("Other", {}), stack.send("Work", {})]
    until(lambda: all(stack.received(message) for message in quick), seconds=5)
    assert stack.depth("Other") >= 1


def test_groups_run_side_by_side_and_a_group_in_order(stack: Stack) -> None:
    groups = ["a", "b"]
    sent = {
        group: [
            stack.send("Ordered", {"sleep": 0.2, "of": group, "n": number}, MessageGroupId=group) for number in range(3)
        ]
        for group in groups
    }
    until(lambda: all(stack.received(message) for of in sent.values() for message in of))
    for of in sent.values():
        times = [stack.received(message)[0]["at"] for message in of]
        assert times == sorted(times)


def test_a_killed_worker_loses_nothing(stack: Stack) -> None:
    message = stack.send("Work", {"sleep": 1.5})
    (first,) = until(lambda: stack.received(message))
    assert first["pid"] in stack.aws.workers("Work")
    os.kill(first["pid"], signal.SIGKILL)
    until(lambda: len(stack.received(message)) == 2)
    until(lambda: stack.depth("Work") == 0)
    second = stack.received(message)[1]
    assert second["pid"] != first["pid"]
    assert second["record"]["attributes"]["ApproximateReceiveCount"] == "2"


def test_a_visibility_that_the_handler_sets_is_kept_and_counts_to_the_limit(stack: Stack) -> None:
    before = stack.depth("OtherDead")
    message = stack.send("Other", {"sleep": 1, "fail": True})
    for receive in (1, 2):
        entries = until(lambda count=receive: found if len(found := stack.received(message)) == count else None)
        receipt = entries[-1]["record"]["receiptHandle"]
        change = stack.client("sqs").change_message_visibility
        change(QueueUrl=stack.output("Other"), ReceiptHandle=receipt, VisibilityTimeout=2)
    until(lambda: stack.depth("OtherDead") == before + 1)
    first, second = stack.received(message)
    assert 2 <= second["at"] - first["at"] < 10


def test_a_function_finds_its_asset_and_nothing_of_this_machine(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.send("Work", {"look": True})
    file = Path(f"{stack.diary}.environment")
    seen = until(lambda: json.loads(file.read_text()) if file.exists() else None)
    assert seen["environment"]["AWS_ENDPOINT_URL"] == stack.aws.endpoint
    assert seen["environment"]["TZ"] == "UTC"
    assert not {"VIRTUAL_ENV", "PYTHONPATH", "PYTEST_CURRENT_TEST"} & set(seen["environment"])
    assert not [path for path in seen["path"] if path.startswith(sys.prefix)]


def test_a_schedule_sends_its_scheduled_time(stack: Stack) -> None:
    url, sqs = stack.output("WorkDead"), stack.client("sqs")
    sqs.purge_queue(QueueUrl=url)
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    stack.client("scheduler").create_schedule(
        Name="soon",
        ScheduleExpression=f"at({at:%Y-%m-%dT%H:%M:%S})",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": arn, "RoleArn": "arn:aws:iam::000000000000:role/r", "Input": '"<aws.scheduler.scheduled-time>"'},
    )
    (message,) = until(lambda: sqs.receive_message(QueueUrl=url).get("Messages"))
    assert json.loads(message["Body"]) == f"{at:%Y-%m-%dT%H:%M:%SZ}"


def test_a_changed_queue_keeps_its_messages(aws: Emulator, tmp_path: Path) -> None:
    stack = Stack(aws, "changing", tmp_path / "diary")
    queue = {"Type": "AWS::SQS::Queue", "Properties": {"VisibilityTimeout": 5}}
    outputs = {"Kept": {"Value": {"Ref": "Kept"}}}
    stack.deploy({"Resources": {"Kept": queue}, "Outputs": outputs})
    stack.send("Kept", {})
    stack.deploy({"Resources": {"Kept": queue | {"Properties": {"VisibilityTimeout": 7}}}, "Outputs": outputs})
    wanted = ["VisibilityTimeout"]
    found = stack.client("sqs").get_queue_attributes(QueueUrl=stack.output("Kept"), AttributeNames=wanted)
    assert found["Attributes"] == {"VisibilityTimeout": "7"}
    assert stack.depth("Kept") == 1


APPLICATION = """
import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch, aws_sqs as sqs

app = cdk.App()
stack = cdk.Stack(app, "tiny", env=cdk.Environment(account="000000000000", region="us-east-1"))
queue = sqs.Queue(stack, "Queue", fifo=True, enforce_ssl=True)
if app.node.try_get_context("env") == "refused":
    alarm = queue.metric_approximate_number_of_messages_visible().create_alarm(
        stack, "Deep", threshold=1, evaluation_periods=1)
    rule = cloudwatch.AlarmRule.from_alarm(alarm, cloudwatch.AlarmState.ALARM)
    cloudwatch.CompositeAlarm(stack, "Both", alarm_rule=rule)
app.synth()
"""


def test_cdk_deploys_to_it_and_a_failure_names_the_resource(aws: Emulator, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APPLICATION)
    told: list[str] = []
    application = ("--app", f"{sys.executable} {tmp_path / 'app.py'}")
    aws.deploy("local", *application, say=told.append)
    assert any("tiny" in line for line in told)
    assert [url for url in Stack(aws, "tiny", tmp_path).client("sqs").list_queues()["QueueUrls"] if "tiny-Queue" in url]
    with pytest.raises(EmulatorError, match=r"AWS::CloudWatch::CompositeAlarm.*Unsupported resource type"):
        aws.deploy("refused", *application, say=told.append)


def test_stopping_ends_a_running_job_and_leaves_nothing(tmp_path: Path) -> None:
    aws = start(tmp_path / "state")
    stack = Stack(aws, "ending", tmp_path / "diary")
    stack.deploy(template(stack.diary, queues={"Work": {}}))
    message = stack.send("Work", {"sleep": 15})
    (entry,) = until(lambda: stack.received(message))
    found = find(aws.directory)
    assert found is not None
    assert found.server == aws.server
    began = time.monotonic()
    aws.stop()
    assert time.monotonic() - began < 5
    assert not [pid for pid in (entry["pid"], aws.server.pid) if runs(pid)]
    assert find(aws.directory) is None
    assert sorted(path.name for path in aws.directory.iterdir()) == ["emulator.log"]
    with socket.socket() as probe:
        assert probe.connect_ex((HOST, aws.server.port)) != 0
    aws.stop()


def runs(pid: int) -> bool:
    """A process that ended stays in the list as a zombie until its parent asks."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
