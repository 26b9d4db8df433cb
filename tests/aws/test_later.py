"""One-off schedules: a message again later, and a mapping switched off until then."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest

from loomjobs.aws import clients
from loomjobs.aws.renewals import ScheduledRenewals
from loomjobs.aws.valve import RAMP, MappingValve
from loomjobs.core import names
from loomjobs.core.delivery import Delivery
from loomjobs.core.errors import ConfigurationError

ENVIRONMENT = {
    names.LATER_GROUP: "loomjobs-prod-later",
    names.LATER_ROLE: "arn:aws:iam::123456789012:role/later",
    names.LATER_DLQ: "arn:aws:sqs:eu-west-1:123456789012:undelivered",
    names.SOURCE_ARN: "arn:aws:sqs:eu-west-1:123456789012:billing",
}
SENT = datetime(2026, 1, 1, tzinfo=UTC)
DELIVERY = Delivery(message_id="m1", body='{"job": "é"}', receipt="r", queue="billing", sent_at=SENT, received_at=SENT)


class Cloud:
    """Notes the calls; raises what it is told to."""

    class exceptions:  # noqa: N801 boto3's name
        class ConflictException(Exception):
            """There is such a schedule."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.raises: dict[str, Exception] = {}

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            self.calls.append((name, arguments))
            if name in self.raises:
                raise self.raises[name]
            return {"Parameter": {"Value": "uuid-1"}}

        return call

    def schedules(self) -> list[dict[str, Any]]:
        return [arguments for name, arguments in self.calls if name == "create_schedule"]


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    made = Cloud()
    for name in ("scheduler", "lambda_", "ssm"):
        monkeypatch.setattr(clients, name, lambda: made)
    return made


def at(schedule: dict[str, Any]) -> datetime:
    found = re.fullmatch(r"at\((.*)\)", schedule["ScheduleExpression"])
    assert found
    return datetime.fromisoformat(found[1]).replace(tzinfo=UTC)


def valid(schedule: dict[str, Any]) -> None:
    """As botocore checks the arguments against the service's model."""
    client = boto3.client("scheduler", "eu-west-1")
    shape = client.meta.service_model.operation_model("CreateSchedule").input_shape
    from botocore.validate import ParamValidator

    assert not ParamValidator().validate(schedule, shape).has_errors()


def test_a_renewal_of_a_body_that_loses_nothing_is_the_same_byte_for_byte(cloud: Cloud) -> None:
    body = '{"id":  "mine", "job": "é"}'
    ScheduledRenewals(ENVIRONMENT).renew(replace(DELIVERY, body=body), 7_200.0)
    assert cloud.schedules()[0]["Target"]["Input"] == body


def test_a_renewal_sends_the_same_job_to_the_same_queue_once_and_then_is_gone(cloud: Cloud) -> None:
    ScheduledRenewals(ENVIRONMENT).renew(DELIVERY, 7_200.0)
    (schedule,) = cloud.schedules()
    valid(schedule)
    assert json.loads(schedule["Target"]["Input"]) == json.loads(DELIVERY.body) | {"id": DELIVERY.message_id}
    assert schedule["Target"]["Arn"] == ENVIRONMENT[names.SOURCE_ARN]
    assert schedule["ActionAfterCompletion"] == "DELETE"
    assert schedule["ScheduleExpressionTimezone"] == "UTC"
    assert abs((at(schedule) - datetime.now(UTC)).total_seconds() - 7_200) < 61
    assert schedule["Target"]["DeadLetterConfig"]["Arn"] == ENVIRONMENT[names.LATER_DLQ]


def test_a_renewal_is_never_due_in_the_past(cloud: Cloud) -> None:
    ScheduledRenewals(ENVIRONMENT).renew(DELIVERY, 0.0)
    assert at(cloud.schedules()[0]) > datetime.now(UTC) + timedelta(seconds=50)


def test_a_renewal_repeated_after_a_crash_makes_no_second_schedule(cloud: Cloud) -> None:
    cloud.raises["create_schedule"] = Cloud.exceptions.ConflictException()
    ScheduledRenewals(ENVIRONMENT).renew(DELIVERY, 60.0)
    ScheduledRenewals(ENVIRONMENT).renew(DELIVERY, 60.0)
    assert len({schedule["Name"] for schedule in cloud.schedules()}) == 1


def test_a_foreign_body_that_looks_like_a_context_attribute_is_sent_as_it_is(cloud: Cloud) -> None:
    body = '{"id": "1", "job": "a.b", "payload": "<aws.scheduler.execution-id>"}'
    ScheduledRenewals(ENVIRONMENT).renew(replace(DELIVERY, body=body), 60.0)
    given = cloud.schedules()[0]["Target"]["Input"]
    assert "<aws" not in given
    assert json.loads(given) == json.loads(body)


def test_a_worker_that_cannot_renew_says_what_is_missing(cloud: Cloud) -> None:
    with pytest.raises(ConfigurationError, match="LOOMJOBS_SOURCE_ARN"):
        ScheduledRenewals({}).renew(DELIVERY, 60.0)


def test_an_error_of_the_scheduler_is_the_callers_to_know(cloud: Cloud) -> None:
    cloud.raises["create_schedule"] = OSError("no network")
    with pytest.raises(OSError, match="no network"):
        ScheduledRenewals(ENVIRONMENT).renew(DELIVERY, 60.0)


def shutting(most: int = 10) -> MappingValve:
    return MappingValve(parameter="/p", role="arn:aws:iam::123456789012:role/open", group="later", most=most)


def test_a_mapping_is_switched_off_only_after_the_schedules_that_switch_it_on(cloud: Cloud) -> None:
    shutting().shut(120.0)
    assert [name for name, _ in cloud.calls] == [
        "get_parameter",
        "create_schedule",
        "create_schedule",
        "update_event_source_mapping",
    ]
    assert cloud.calls[-1][1] == {"UUID": "uuid-1", "Enabled": False}
    first, second = cloud.schedules()
    for schedule in (first, second):
        valid(schedule)
        assert schedule["Target"]["Arn"] == "arn:aws:scheduler:::aws-sdk:lambda:updateEventSourceMapping"
    asked = [json.loads(schedule["Target"]["Input"]) for schedule in (first, second)]
    assert [each["ScalingConfig"]["MaximumConcurrency"] for each in asked] == [2, 10]
    assert all(each["Enabled"] and each["UUID"] == "uuid-1" for each in asked)
    assert at(second) - at(first) == RAMP
    assert timedelta(seconds=60) < at(first) - datetime.now(UTC) <= timedelta(seconds=180)


def test_a_mapping_of_two_workers_needs_no_ramp(cloud: Cloud) -> None:
    shutting(most=2).shut(120.0)
    assert len(cloud.schedules()) == 1


def test_a_schedule_that_cannot_be_made_leaves_the_mapping_on(cloud: Cloud) -> None:
    cloud.raises["create_schedule"] = OSError("denied")
    with pytest.raises(OSError, match="denied"):
        shutting().shut(120.0)
    assert "update_event_source_mapping" not in [name for name, _ in cloud.calls]


def test_workers_that_shut_it_together_make_one_schedule_each_instant(cloud: Cloud) -> None:
    cloud.raises["create_schedule"] = Cloud.exceptions.ConflictException()
    shutting().shut(120.0)
    shutting().shut(121.0)
    assert len({schedule["Name"] for schedule in cloud.schedules()}) <= 4
    assert all(re.fullmatch(r"[0-9a-zA-Z-_.]{1,64}", schedule["Name"]) for schedule in cloud.schedules())
