"""The outbox stack: what it makes, what it may do, and when it is there at all."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from loomjobs.core import names
from loomjobs.core.environment import Environment
from loomjobs.core.plan import Parameter, PlannedRelay
from tests.core.catalogue_fixture import BILLING, LEDGER, MAIL, catalogue, declare
from tests.infra.conftest import Synthesize, Synthesized

STACK = "loomjobs-prod-outbox"
DEV = Environment(name="dev", settings={"sender": "x"}, retain=False)


def only(prod: Synthesized, kind: str) -> Any:
    (found,) = [properties for stack, _, properties in prod.resources(kind) if stack == STACK]
    return found


def planned(prod: Synthesized) -> PlannedRelay:
    assert prod.plan.relay is not None
    return prod.plan.relay


def path_of(prod: Synthesized, value: Any) -> str:
    """The SSM parameter that a reference reads."""
    return str(prod.templates[STACK]["Parameters"][value["Ref"]]["Default"])


def statements(prod: Synthesized) -> list[tuple[list[str], Any]]:
    """Of the relay's role: actions, and the resource."""
    (policy,) = [
        policy
        for stack, logical, policy in prod.resources("AWS::IAM::Policy")
        if stack == STACK and logical.startswith("RoleDefaultPolicy")
    ]
    return [
        ([each["Action"]] if isinstance(each["Action"], str) else each["Action"], each["Resource"])
        for each in policy["PolicyDocument"]["Statement"]
    ]


def test_the_table_streams_new_rows_and_drops_none_by_itself(prod: Synthesized) -> None:
    table = only(prod, "AWS::DynamoDB::Table")
    assert table["StreamSpecification"] == {"StreamViewType": "NEW_IMAGE"}
    assert table["KeySchema"] == [{"AttributeName": "id", "KeyType": "HASH"}]
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert table["DeletionProtectionEnabled"] is True
    assert "TimeToLiveSpecification" not in table


def test_the_stream_is_read_from_its_start_with_item_failures_and_few_retries(prod: Synthesized) -> None:
    mapping, relay = only(prod, "AWS::Lambda::EventSourceMapping"), planned(prod)
    assert mapping["BatchSize"] == relay.batch_size == 100
    assert mapping["StartingPosition"] == "TRIM_HORIZON"
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["BisectBatchOnFunctionError"] is True
    assert mapping["MaximumRetryAttempts"] == relay.retries == 3
    assert mapping.get("MaximumBatchingWindowInSeconds", 0) == 0
    assert "ParallelizationFactor" not in mapping
    assert mapping["EventSourceArn"]["Fn::GetAtt"][1] == "StreamArn"


def test_only_new_rows_come_through_since_each_removal_would_be_a_record_too(prod: Synthesized) -> None:
    (one,) = only(prod, "AWS::Lambda::EventSourceMapping")["FilterCriteria"]["Filters"]
    assert json.loads(one["Pattern"]) == {"eventName": ["INSERT"]}


def test_the_relay_is_as_planned(prod: Synthesized) -> None:
    function, relay = only(prod, "AWS::Lambda::Function"), planned(prod)
    assert (function["Handler"], function["Timeout"]) == (relay.handler, relay.function_timeout)
    assert function["MemorySize"] == relay.memory_mb
    variables = dict(function["Environment"]["Variables"])
    assert variables.pop(names.RELEASE) == "0" * 12
    assert set(variables.pop(names.OUTBOX)) == {"Ref"}  # its own table
    expected = {key: value for key, value in relay.environment.items() if key != names.OUTBOX}
    assert {
        key: Parameter(path_of(prod, value)) if isinstance(value, dict) else value for key, value in variables.items()
    } == expected


def test_the_relays_role_reads_the_stream_and_deletes_rows_and_sends_to_the_queues_of_sends_only(
    prod: Synthesized,
) -> None:
    found = statements(prod)
    by_action = {tuple(actions): resource for actions, resource in found if actions != ["sqs:SendMessage"]}
    assert set(by_action) == {
        ("logs:CreateLogStream", "logs:PutLogEvents"),
        ("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"),
        ("dynamodb:ListStreams",),
        ("dynamodb:Scan", "dynamodb:BatchWriteItem"),
        ("scheduler:CreateSchedule",),
        ("iam:PassRole",),
    }
    assert by_action["dynamodb:Scan", "dynamodb:BatchWriteItem"]["Fn::GetAtt"][1] == "Arn"
    resources = [resource for actions, resource in found if actions == ["sqs:SendMessage"]]
    each = [one for resource in resources for one in (resource if isinstance(resource, list) else [resource])]
    assert sorted(path_of(prod, one) for one in each) == [
        f"/loomjobs/prod/queues/{grant.target}/arn" for grant in planned(prod).grants
    ]


def test_the_sweep_runs_every_minute_and_its_role_may_only_start_the_relay(prod: Synthesized) -> None:
    schedule = only(prod, "AWS::Scheduler::Schedule")
    assert (schedule["ScheduleExpression"], schedule["State"]) == ("rate(1 minute)", "ENABLED")
    assert json.loads(schedule["Target"]["Input"]) == names.SWEEP
    assert schedule["Target"]["RetryPolicy"]["MaximumRetryAttempts"] == 0
    (policy,) = [
        policy
        for stack, logical, policy in prod.resources("AWS::IAM::Policy")
        if stack == STACK and logical.startswith("SweepRole")
    ]
    (statement,) = policy["PolicyDocument"]["Statement"]
    assert statement["Action"] == "lambda:InvokeFunction"
    assert statement["Resource"] == schedule["Target"]["Arn"]


def test_the_alarms_are_on_lag_errors_and_throttles(prod: Synthesized) -> None:
    found = {each["MetricName"]: each for stack, _, each in prod.resources("AWS::CloudWatch::Alarm") if stack == STACK}
    assert set(found) == {names.OUTBOX_LAG, "Errors", "Throttles"}
    lag = found[names.OUTBOX_LAG]
    assert (lag["Threshold"], lag["Statistic"], lag["Namespace"]) == (300_000, "Maximum", "loomjobs-prod")
    assert lag["TreatMissingData"] == "notBreaching"
    assert {each["Name"]: each["Value"] for each in lag["Dimensions"]} == {"service": "loomjobs", "environment": "prod"}


def test_a_worker_whose_jobs_send_may_put_rows_and_no_other_one(synthesize: Synthesize, quiet: None) -> None:
    found = synthesize(
        catalogue(declare("billing.write", BILLING, sends=["mail.send"]), declare("mail.send", MAIL)), DEV, {}
    )
    texts = {stack: json.dumps(template) for stack, template in found.templates.items()}
    assert "dynamodb:PutItem" in texts["loomjobs-dev-worker-billing"]
    assert names.OUTBOX in texts["loomjobs-dev-worker-billing"]
    assert "dynamodb:PutItem" not in texts["loomjobs-dev-worker-mail"]
    assert names.OUTBOX not in texts["loomjobs-dev-worker-mail"]


def test_without_sends_there_is_no_outbox(synthesize: Synthesize, quiet: None) -> None:
    found = synthesize(catalogue(declare("mail.send", MAIL), declare("ledger.post", LEDGER)), DEV, {})
    assert found.plan.relay is None
    assert "loomjobs-dev-outbox" not in found.templates


def test_producers_outside_make_it_exist_and_let_it_send_everywhere(synthesize: Synthesize, quiet: None) -> None:
    jobs = catalogue(declare("mail.send", MAIL), declare("ledger.post", LEDGER))
    relay = planned(synthesize(jobs, replace(DEV, outbox=True), {}))
    assert [(grant.target, grant.because) for grant in relay.grants] == [
        ("ledger", ("producers outside",)),
        ("mail", ("producers outside",)),
    ]


def test_each_queue_that_is_sent_to_is_granted_once_whoever_sends(synthesize: Synthesize, quiet: None) -> None:
    jobs = [
        declare("billing.write", BILLING, sends=["mail.send", "ledger.post"]),
        declare("ledger.post", LEDGER, sends=["mail.send"]),
        declare("mail.send", MAIL),
    ]
    relay = planned(synthesize(catalogue(*jobs), DEV, {}))
    assert [(grant.target, grant.because) for grant in relay.grants] == [
        ("ledger", ("billing.write",)),
        ("mail", ("billing.write", "ledger.post")),
    ]


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """These little stacks are about references; cdk-nag's findings on them are not of interest."""
    monkeypatch.setattr("infra.application.Validations.of", lambda app: _Quiet())


class _Quiet:
    def add_plugins(self, *plugins: Any) -> None: ...
    def acknowledge(self, *findings: Any) -> None: ...
