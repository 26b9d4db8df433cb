"""Sending later than SQS can hold, and the calls that wait: through boto3, on moto's EventBridge Scheduler."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError

from loomjobs import NotSent, Producer, aenqueue, call, enqueue, enqueue_many
from loomjobs.aws.connect import producer_over, utc_now
from loomjobs.aws.later import AnytimeSender
from loomjobs.aws.one_off import OneOffSchedules
from loomjobs.aws.places import Places
from loomjobs.aws.scheduled import NotScheduled, Scheduled
from loomjobs.cli.main import main
from loomjobs.core import names
from loomjobs.core.errors import ConfigurationError, LoomjobsError, UnknownOutcome
from loomjobs.core.later import queue_prefix
from loomjobs.core.outgoing import Origin
from loomjobs.runtime.ports import Silent
from tests.aws.conftest import Aws
from tests.core.catalogue_fixture import LEDGER, Statement, declare

WRITE, POST = declare("billing.write"), declare("ledger.post", LEDGER)
GROUP = "loomjobs-prod-later"
ROLE = "arn:aws:iam::123456789012:role/later"
DAY = timedelta(days=1)


def one(number: int = 1) -> Statement:
    return Statement(f"c{number}", date(2026, 1, 1))


@pytest.fixture
def cloud(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The later group with its role and dead-letter queue, known to this process."""
    scheduler = boto3.client("scheduler")
    scheduler.create_schedule_group(Name=GROUP)
    undelivered = aws.queue("undelivered")
    account = undelivered.split("/")[-2]
    monkeypatch.setenv(names.TABLE, "executions")
    monkeypatch.setenv(names.LATER_GROUP, GROUP)
    monkeypatch.setenv(names.LATER_ROLE, ROLE)
    monkeypatch.setenv(names.LATER_DLQ, f"arn:aws:sqs:{scheduler.meta.region_name}:{account}:undelivered")
    for queue in ("billing", "ledger"):
        monkeypatch.setenv(names.queue_url_key(queue), aws.urls[queue])
    return scheduler


def schedules(cloud: Any) -> list[dict[str, Any]]:
    found = cloud.list_schedules(GroupName=GROUP)["Schedules"]
    return [cloud.get_schedule(GroupName=GROUP, Name=each["Name"]) for each in found]


def minute(schedule: dict[str, Any]) -> datetime:
    text = schedule["ScheduleExpression"].removeprefix("at(").removesuffix(")")
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def bodies(aws: Aws, queue: str) -> list[dict[str, Any]]:
    return [json.loads(record["body"]) for record in aws.receive(queue)["Records"]]


def test_what_is_due_in_days_waits_in_a_schedule_that_deletes_itself(aws: Aws, cloud: Any) -> None:
    sent = enqueue(WRITE, one(), delay=2 * DAY)
    assert sent.outcome == "delayed"
    assert bodies(aws, "billing") == []
    (schedule,) = schedules(cloud)
    assert schedule["Name"] == f"send-billing-{sent.id}"
    assert schedule["ActionAfterCompletion"] == "DELETE"
    assert schedule["ScheduleExpressionTimezone"] == "UTC"
    assert timedelta(0) <= minute(schedule) - (datetime.now(UTC) + 2 * DAY) < timedelta(minutes=1)
    target = schedule["Target"]
    assert (
        target["Arn"]
        == aws.sqs.get_queue_attributes(QueueUrl=aws.urls["billing"], AttributeNames=["QueueArn"])["Attributes"][
            "QueueArn"
        ]
    )
    assert target["RoleArn"] == ROLE
    assert target["DeadLetterConfig"]["Arn"].endswith(":undelivered")
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 86_400, "MaximumRetryAttempts": 185}
    assert json.loads(target["Input"])["id"] == sent.id


def test_on_fifo_the_schedule_names_the_group(aws: Aws, cloud: Any) -> None:
    enqueue(POST, one(), at=datetime.now(UTC) + timedelta(minutes=3))
    (schedule,) = schedules(cloud)
    assert schedule["Target"]["SqsParameters"] == {"MessageGroupId": "c1"}
    assert schedule["Target"]["Arn"].endswith(".fifo")


def test_far_and_near_calls_go_in_one_stream(aws: Aws, cloud: Any) -> None:
    calls = [call(WRITE, one(number), delay=DAY if number % 3 else None) for number in range(30)]
    assert enqueue_many(calls).accepted == 30
    assert len(bodies(aws, "billing")) == 10
    assert len(schedules(cloud)) == 20


def test_tasks_may_send_later_too(aws: Aws, cloud: Any) -> None:
    async def all_of_them() -> Sequence[Any]:
        return await asyncio.gather(*(aenqueue(WRITE, one(number), delay=DAY) for number in range(15)))

    assert {each.outcome for each in asyncio.run(all_of_them())} == {"delayed"}
    assert len(schedules(cloud)) == 15


def test_a_producer_finds_the_group_through_ssm_and_says_what_is_missing(
    aws: Aws, cloud: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = {path: os.environ[key] for key, path in names.later_parameters("loomjobs", "prod").items()}
    for key in (names.LATER_GROUP, names.LATER_ROLE, names.LATER_DLQ):
        monkeypatch.delenv(key)
    ssm = boto3.client("ssm")
    producer = Producer("prod", queues={"billing": aws.urls["billing"]})
    with pytest.raises(ConfigurationError, match="/loomjobs/prod/queues/later/group cannot be read"):
        producer.enqueue(WRITE, one(), delay=DAY)
    for path, value in parameters.items():
        ssm.put_parameter(Name=path, Value=value, Type="String")
    producer.enqueue(WRITE, one(), delay=DAY)
    assert len(schedules(cloud)) == 1
    with pytest.raises(ConfigurationError, match="which environment"):
        Producer(queues={"billing": aws.urls["billing"]}).enqueue(WRITE, one(), delay=DAY)


class Broken:
    """A scheduler client that raises these, one a call, and then does as the real one."""

    def __init__(self, real: Any, *errors: Exception) -> None:
        self.real, self.errors, self.exceptions = real, list(errors), real.exceptions
        self.names: list[str] = []

    def create_schedule(self, **arguments: Any) -> Any:
        self.names.append(arguments["Name"])
        if self.errors:
            raise self.errors.pop(0)
        return self.real.create_schedule(**arguments)


def over(aws: Aws, broken: Broken) -> Any:
    schedules = OneOffSchedules(Places(os.environ).later, lambda: broken)
    sender = AnytimeSender(aws.sqs, aws.urls.__getitem__, schedules, clock=utc_now)
    return producer_over(sender, Silent(), store=lambda: pytest.fail("asked for records"))


def answer(code: str, status: int) -> ClientError:
    response: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "CreateSchedule")


@pytest.mark.parametrize("error", [answer("ThrottlingException", 429), answer("InternalServerException", 500)])
def test_the_servers_own_fault_is_tried_again_under_the_same_name(
    aws: Aws, cloud: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    broken = Broken(cloud, error, error)
    over(aws, broken).enqueue(call(WRITE, one(), delay=DAY))
    assert len(broken.names) == 3
    assert len(set(broken.names)) == len(schedules(cloud)) == 1


@pytest.mark.parametrize(
    ("error", "raised", "what"),
    [
        (answer("AccessDeniedException", 403), NotSent, "AccessDeniedException"),
        (answer("ServiceQuotaExceededException", 402), NotSent, "ServiceQuotaExceededException"),
        (EndpointConnectionError(endpoint_url="x"), NotSent, "EventBridge Scheduler cannot be reached"),
        (ConnectTimeoutError(endpoint_url="x"), NotSent, "EventBridge Scheduler cannot be reached"),
        (ReadTimeoutError(endpoint_url="x"), UnknownOutcome, "ReadTimeoutError"),
    ],
)
def test_what_went_wrong_is_told_apart(aws: Aws, cloud: Any, error: Exception, raised: Any, what: str) -> None:
    with pytest.raises(raised, match=what) as caught:
        over(aws, Broken(cloud, error)).enqueue_many([call(WRITE, one(), delay=DAY), call(WRITE, one(2))])
    assert caught.value.report.accepted == 1


def test_a_lost_reply_that_botocore_tries_again_makes_no_second_schedule(aws: Aws, cloud: Any) -> None:
    broken = Broken(cloud)
    producer = over(aws, broken)
    message = producer.address(call(WRITE, one(), delay=DAY), origin=Origin())
    producer.deliver([message])
    assert [sent.outcome for _, sent in producer.deliver([message])] == ["accepted"]
    assert len(schedules(cloud)) == 1


# -- the calls that wait ------------------------------------------------------------------------
def scheduled(aws: Aws, cloud: Any) -> Scheduled:
    return Scheduled(Places(os.environ).later, scheduler=cloud, sqs=aws.sqs)


def test_what_waits_is_listed_with_job_key_and_time(aws: Aws, cloud: Any) -> None:
    sent = [enqueue(WRITE, one(number), delay=number * DAY) for number in range(1, 4)]
    enqueue(POST, one(), delay=DAY)
    cloud.create_schedule(
        Name="open-valve",
        GroupName=GROUP,
        ScheduleExpression="at(2030-01-01T00:00:00)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": "arn:aws:scheduler:::aws-sdk:lambda:updateEventSourceMapping", "RoleArn": ROLE},
    )
    found = {each.name: each for each in scheduled(aws, cloud).waiting() if each.name.startswith("billing-")}
    assert set(found) == {f"billing-{each.id}" for each in sent}
    first = found[f"billing-{sent[0].id}"]
    assert (first.job, first.key) == ("billing.write", "c1/2026-01-01")


def test_a_moved_call_is_the_same_call_at_another_time(aws: Aws, cloud: Any) -> None:
    sent = enqueue(POST, one(), delay=DAY)
    (before,) = schedules(cloud)
    to = datetime.now(UTC) + 3 * DAY
    one_moved = scheduled(aws, cloud).move(f"ledger-{sent.id}", to)
    (after,) = schedules(cloud)
    assert timedelta(0) <= one_moved.at - to < timedelta(minutes=1)
    assert minute(after) == one_moved.at
    assert after["ActionAfterCompletion"] == "DELETE"
    assert after["Target"] | {"Input": ""} == before["Target"] | {"Input": ""}
    assert json.loads(after["Target"]["Input"])["due"].startswith(f"{to:%Y-%m-%dT%H:%M:%S}")


def test_a_call_is_not_moved_to_where_it_would_not_run(aws: Aws, cloud: Any) -> None:
    sent = enqueue(WRITE, one(), delay=DAY, expires=DAY)
    waiting = scheduled(aws, cloud)
    with pytest.raises(LoomjobsError, match="would not run"):
        waiting.move(f"billing-{sent.id}", datetime.now(UTC) + 3 * DAY)
    with pytest.raises(LoomjobsError, match="is over"):
        waiting.move(f"billing-{sent.id}", datetime.now(UTC) - DAY)
    with pytest.raises(NotScheduled, match="no call billing-x waits"):
        waiting.move("billing-x", datetime.now(UTC) + DAY)


def test_a_cancelled_call_is_gone_and_only_once(aws: Aws, cloud: Any) -> None:
    sent = enqueue(WRITE, one(), delay=DAY)
    scheduled(aws, cloud).cancel(f"billing-{sent.id}")
    assert schedules(cloud) == []
    with pytest.raises(NotScheduled):
        scheduled(aws, cloud).cancel(f"billing-{sent.id}")


def undelivered(aws: Aws, body: str, target: str | None) -> None:
    """As EventBridge Scheduler leaves it:
    https://docs.aws.amazon.com/scheduler/latest/UserGuide/configuring-schedule-dlq.html"""
    attributes: Any = {"ERROR_CODE": {"DataType": "String", "StringValue": "AWS.SimpleQueueService.NonExistentQueue"}}
    if target is not None:
        attributes["TARGET_ARN"] = {"DataType": "String", "StringValue": target}
    url = aws.sqs.get_queue_url(QueueName="undelivered")["QueueUrl"]
    aws.sqs.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=attributes)


def test_what_could_not_be_sent_is_sent_again_to_where_it_was_for(aws: Aws, cloud: Any) -> None:
    enqueue(WRITE, one(), delay=DAY)
    for schedule in schedules(cloud):
        undelivered(aws, schedule["Target"]["Input"], schedule["Target"]["Arn"])
    undelivered(aws, "{}", None)
    lines = list(scheduled(aws, cloud).resend())
    assert sorted(line.split(": ")[1] for line in lines) == [
        "left, since it does not say which queue or group it was for",
        "sent to billing",
    ]
    (body,) = bodies(aws, "billing")
    assert body["key"] == "c1/2026-01-01"


def test_a_tenants_schedule_has_no_group_and_what_is_sent_again_has(aws: Aws, cloud: Any) -> None:
    """EventBridge Scheduler takes a group for FIFO queues only; `resend` sends by itself."""
    enqueue(WRITE, one(), delay=DAY, tenant="acme")
    for schedule in schedules(cloud):
        assert "SqsParameters" not in schedule["Target"]
        undelivered(aws, schedule["Target"]["Input"], schedule["Target"]["Arn"])
    assert len(list(scheduled(aws, cloud).resend())) == 1
    (record,) = aws.receive("billing")["Records"]
    assert record["attributes"]["MessageGroupId"] == "acme"


def test_the_commands_say_what_they_did(aws: Aws, cloud: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scheduled", "list"]) == 0
    assert capsys.readouterr().out == "nothing waits\n"
    sent = enqueue(WRITE, one(), at=datetime(2035, 5, 6, 7, 8, 9, tzinfo=UTC), unique_for=DAY)
    assert enqueue(WRITE, one(), unique_for=DAY).outcome == "duplicate"
    assert main(["scheduled", "list"]) == 0
    _, row = capsys.readouterr().out.splitlines()
    assert row.split() == ["2035-05-06", "07:09Z", "billing.write", "c1/2026-01-01", f"billing-{sent.id}"]
    assert main(["scheduled", "move", f"billing-{sent.id}", "--at", "2034-01-01T00:00:00+01:00"]) == 0
    assert capsys.readouterr().out == "billing.write c1/2026-01-01 is sent at 2033-12-31 23:00Z\n"
    assert main(["scheduled", "cancel", f"billing-{sent.id}"]) == 0
    assert enqueue(WRITE, one(), unique_for=DAY).outcome == "accepted"
    assert main(["scheduled", "cancel", f"billing-{sent.id}"]) == 2
    assert main(["scheduled", "move", "billing-x", "--at", "tomorrow"]) == 2
    assert main(["scheduled", "move", "billing-x", "--at", "2034-01-01T00:00:00"]) == 2
    assert main(["scheduled", "list", "--queue", "nope"]) == 2
    said = capsys.readouterr().err
    for what in ("no call", "is no instant", "write 2034-01-01T00:00:00Z for UTC", "there is no queue 'nope'"):
        assert what in said
    assert main(["scheduled", "resend"]) == 0
    assert capsys.readouterr().out.endswith("EventBridge Scheduler has sent everything\n")


def test_the_page_sends_what_it_says(aws: Aws, cloud: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "send-later.md").read_text()
    known: dict[str, Any] = {"enqueue": enqueue, "enqueue_many": enqueue_many, "call": call, "write": WRITE, "UTC": UTC}
    known |= {"Statement": Statement, "date": date, "datetime": datetime, "timedelta": timedelta}
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(block, known)
    assert len(schedules(cloud)) == 6
    (rights,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert f"schedule/{GROUP}/{queue_prefix('billing')}*" in json.loads(rights)[0]["Resource"]
