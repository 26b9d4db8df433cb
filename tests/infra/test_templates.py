"""What the prod templates promise, resource by resource."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.infra.conftest import Synthesized


def of_queue(prod: Synthesized) -> dict[str, tuple[Any, Any]]:
    """Source and dead-letter queue by the queue's name, as the published parameters name them."""
    stack = prod.templates["loomjobs-prod-queues"]["Resources"]
    found: dict[str, tuple[Any, Any]] = {}
    for worker in prod.plan.workers:
        pair = []
        for path in (f"/loomjobs/prod/queues/{worker.queue}/arn", f"/loomjobs/prod/queues/{worker.queue}/dlq/arn"):
            (parameter,) = [each for each in stack.values() if each.get("Properties", {}).get("Name") == path]
            pair.append(stack[parameter["Properties"]["Value"]["Fn::GetAtt"][0]])
        found[worker.queue] = (pair[0], pair[1])
    return found


def test_every_mapping_reports_item_failures_and_is_capped(prod: Synthesized) -> None:
    found = prod.resources("AWS::Lambda::EventSourceMapping")
    mappings = [properties for stack, _, properties in found if not stack.endswith("outbox")]
    assert len(mappings) == len(prod.plan.workers)
    for mapping in mappings:
        assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        assert mapping["ScalingConfig"]["MaximumConcurrency"] >= 2
        assert mapping["MetricsConfig"] == {"Metrics": ["EventCount"]}
        assert "FilterCriteria" not in mapping


def test_every_queue_has_a_dead_letter_queue_of_its_type_that_keeps_longer(prod: Synthesized) -> None:
    for name, (queue, dead) in of_queue(prod).items():
        source, target = queue["Properties"], dead["Properties"]
        assert source.get("FifoQueue") == target.get("FifoQueue"), name
        assert target["MessageRetentionPeriod"] == 1_209_600 > source["MessageRetentionPeriod"]
        assert 5 <= source["RedrivePolicy"]["maxReceiveCount"] <= 1_000
        assert queue is not dead


def test_visibility_is_six_function_timeouts_and_the_window(prod: Synthesized) -> None:
    queues = of_queue(prod)
    for worker in prod.plan.workers:
        (function,) = [
            each["Properties"]
            for each in prod.templates[worker.stack]["Resources"].values()
            if each["Type"] == "AWS::Lambda::Function"
        ]
        visibility = queues[worker.queue][0]["Properties"]["VisibilityTimeout"]
        assert visibility == 6 * function["Timeout"] + worker.batch_window


def test_fifo_queues_have_both_settings_of_high_throughput(prod: Synthesized) -> None:
    fifo = [each for _, _, each in prod.resources("AWS::SQS::Queue") if each.get("FifoQueue")]
    assert len(fifo) == 2
    for queue in fifo:
        assert (queue["DeduplicationScope"], queue["FifoThroughputLimit"]) == ("messageGroup", "perMessageGroupId")


def test_every_queue_refuses_requests_without_tls(prod: Synthesized) -> None:
    denying = json.dumps([each for _, _, each in prod.resources("AWS::SQS::QueuePolicy")])
    assert denying.count('"aws:SecureTransport": "false"') == len(list(prod.resources("AWS::SQS::Queue")))


def alarms(prod: Synthesized, stack: str) -> dict[str, Any]:
    return {
        each["Properties"]["MetricName"]: each["Properties"]
        for each in prod.templates[stack]["Resources"].values()
        if each["Type"] == "AWS::CloudWatch::Alarm"
    }


def test_every_queue_has_alarms_on_age_and_dead_letters(prod: Synthesized) -> None:
    for worker in prod.plan.workers:
        found = alarms(prod, worker.stack)
        age, dead = found["ApproximateAgeOfOldestMessage"], found["ApproximateNumberOfMessagesVisible"]
        assert age["Threshold"] == worker.age_alarm
        assert (dead["Threshold"], dead["Statistic"], dead["Period"]) == (1, "Maximum", 60)
        assert dead["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
        assert f"queues{worker.queue}dlqarn" in json.dumps(dead["Dimensions"]).replace("/", "")
        assert {"Errors", "Throttles", "RecursiveInvocationsDropped"} <= set(found)


def test_no_alarm_is_raised_by_missing_data_and_each_can_deliver_both_ways(prod: Synthesized) -> None:
    found = list(prod.resources("AWS::CloudWatch::Alarm"))
    jobs = sum(len(worker.jobs) for worker in prod.plan.workers)
    assert len(found) == 7 * len(prod.plan.workers) + jobs + 3 + 3 + 3  # schedules, outbox, one-off schedules
    for _, logical, alarm in found:
        assert alarm["TreatMissingData"] == "notBreaching", logical
        assert alarm["AlarmActions"] == alarm["OKActions"]
        assert "foundationalarmsarn" in json.dumps(alarm["AlarmActions"]), logical
    (policy,) = [each for _, _, each in prod.resources("AWS::SNS::TopicPolicy")]
    allowed = [each for each in policy["PolicyDocument"]["Statement"] if each["Effect"] == "Allow"]
    assert [each["Principal"] for each in allowed] == [{"Service": "cloudwatch.amazonaws.com"}]
    (topic,) = [each for _, _, each in prod.resources("AWS::SNS::Topic")]
    assert "KmsMasterKeyId" not in topic  # a key that does not name CloudWatch loses the alarms


def test_every_alarm_names_a_section_of_the_runbook(prod: Synthesized) -> None:
    from tests.infra.conftest import ROOT

    headings = {
        line.lstrip("# ").strip().lower().replace(" ", "-")
        for line in (ROOT / "docs" / "runbook.md").read_text().splitlines()
        if line.startswith("## ")
    }
    for _, _, alarm in prod.resources("AWS::CloudWatch::Alarm"):
        assert alarm["AlarmDescription"].rpartition("#")[2] in headings


def test_schedules_are_utc_bounded_and_off_in_prod(prod: Synthesized) -> None:
    (schedule,) = [each for _, _, each in prod.resources("AWS::Scheduler::Schedule") if "Name" in each]
    assert schedule["ScheduleExpressionTimezone"] == "UTC"
    assert schedule["State"] == "DISABLED"
    assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
    retry = schedule["Target"]["RetryPolicy"]
    assert retry["MaximumEventAgeInSeconds"] <= 86_400
    assert retry["MaximumRetryAttempts"] <= 185
    assert "DeadLetterConfig" in schedule["Target"]
    tick = json.loads(schedule["Target"]["Input"])
    assert tick == {
        "job": "loomjobs.tick",
        "payload": {"schedule": "billing.close-month", "at": "<aws.scheduler.scheduled-time>"},
    }


def test_the_monthly_schedule_is_on_in_the_local_environment(reference: Any) -> None:
    (schedule,) = [each for _, _, each in reference("local").resources("AWS::Scheduler::Schedule") if "Name" in each]
    assert schedule["State"] == "ENABLED"


def test_the_schedules_role_serves_its_group_and_reaches_two_queues(prod: Synthesized) -> None:
    resources = prod.templates["loomjobs-prod-schedules"]["Resources"].values()
    (role,) = [each["Properties"] for each in resources if each["Type"] == "AWS::IAM::Role"]
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert set(trust["Condition"]["StringEquals"]) == {"aws:SourceAccount", "aws:SourceArn"}
    (policy,) = [each["Properties"] for each in resources if each["Type"] == "AWS::IAM::Policy"]
    (statement,) = policy["PolicyDocument"]["Statement"]
    assert (statement["Action"], len(statement["Resource"])) == ("sqs:SendMessage", 2)


def statements(prod: Synthesized) -> list[tuple[str, Any]]:
    return [
        (stack, statement)
        for stack, _, policy in prod.resources("AWS::IAM::Policy")
        for statement in policy["PolicyDocument"]["Statement"]
    ]


def test_no_role_has_a_wildcard_action_and_few_have_wildcard_resources(prod: Synthesized) -> None:
    for stack, statement in statements(prod):
        actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        assert not [action for action in actions if "*" in action], stack
        if "*" in json.dumps(statement["Resource"]):
            assert actions in (["s3:PutObject"], ["scheduler:CreateSchedule"], ["dynamodb:ListStreams"]), stack


def test_a_worker_may_do_what_its_role_needs_and_no_more(prod: Synthesized) -> None:
    actions = {
        action
        for stack, statement in statements(prod)
        if stack.endswith("worker-accounting")
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    assert actions == {
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "sqs:ReceiveMessage",
        "sqs:DeleteMessage",
        "sqs:GetQueueAttributes",
        "sqs:ChangeMessageVisibility",
        "sqs:SendMessage",
        "dynamodb:GetItem",
        "dynamodb:UpdateItem",
        "dynamodb:PartiQLInsert",
        "dynamodb:PartiQLUpdate",
        "dynamodb:Query",
        "secretsmanager:GetSecretValue",
        # accounting-api has a breaker: its own mapping, off and on again
        "lambda:UpdateEventSourceMapping",
        "ssm:GetParameter",
        "scheduler:CreateSchedule",
        "iam:PassRole",
    }


def test_nothing_is_exported_or_imported_between_stacks(prod: Synthesized) -> None:
    text = json.dumps(prod.templates)
    assert "Fn::ImportValue" not in text
    assert "Fn::GetStackOutput" not in text
    assert not [template for template in prod.templates.values() if template.get("Outputs")]


def test_every_parameter_that_a_stack_reads_is_written_by_an_earlier_one(prod: Synthesized) -> None:
    written = {each["Name"] for _, _, each in prod.resources("AWS::SSM::Parameter")}
    read = {
        parameter["Default"]
        for template in prod.templates.values()
        for parameter in template.get("Parameters", {}).values()
        if parameter["Type"] == "AWS::SSM::Parameter::Value<String>"
    }
    assert {path for path in read if not path.startswith("/cdk-bootstrap/")} <= written


def test_logs_have_a_group_of_their_own_with_a_retention(prod: Synthesized) -> None:
    groups = list(prod.resources("AWS::Logs::LogGroup"))
    functions = list(prod.resources("AWS::Lambda::Function"))
    assert len(groups) == len(functions) == len(prod.plan.workers) + 1  # the relay
    assert {group["RetentionInDays"] for _, _, group in groups} == {365}
    assert not list(prod.resources("Custom::LogRetention"))
    for _, _, function in functions:
        assert function["LoggingConfig"]["LogFormat"] == "JSON"
        assert "Ref" in function["LoggingConfig"]["LogGroup"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [("AWS::SQS::Queue", "QueueName"), ("AWS::DynamoDB::Table", "TableName"), ("AWS::S3::Bucket", "BucketName")],
)
def test_what_may_have_to_be_replaced_has_no_fixed_name(prod: Synthesized, kind: str, name: str) -> None:
    assert not [each for _, _, each in prod.resources(kind) if name in each]


def test_data_is_kept_and_protected_in_prod_and_goes_with_its_stack_in_dev(reference: Any) -> None:
    kinds = ("AWS::SQS::Queue", "AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::Logs::LogGroup")
    for environment, policy in (("prod", "Retain"), ("dev", "Delete")):
        for template in reference(environment).templates.values():
            for resource in template["Resources"].values():
                if resource["Type"] in kinds:
                    assert resource["DeletionPolicy"] == resource["UpdateReplacePolicy"] == policy
    for _, _, table in reference("prod").resources("AWS::DynamoDB::Table"):
        assert table["DeletionProtectionEnabled"] is True


def test_expired_records_are_deleted_by_the_tables_ttl(prod: Synthesized) -> None:
    table = next(each for stack, _, each in prod.resources("AWS::DynamoDB::Table") if stack.endswith("foundation"))
    assert table["TimeToLiveSpecification"] == {"AttributeName": "expiration", "Enabled": True}


def test_functions_are_arm_and_of_the_environments_python(prod: Synthesized) -> None:
    for _, _, function in prod.resources("AWS::Lambda::Function"):
        assert (function["Architectures"], function["Runtime"]) == (["arm64"], "python3.13")
        assert "ReservedConcurrentExecutions" not in function


def test_the_dashboard_shows_every_queue(prod: Synthesized) -> None:
    (board,) = [each for _, _, each in prod.resources("AWS::CloudWatch::Dashboard")]
    text = json.dumps(board["DashboardBody"])
    for worker in prod.plan.workers:
        for title in ("depth", "age of oldest, s", "outcomes a minute", "times, ms"):
            assert f"{worker.queue}: {title}" in text


def test_a_queue_whose_jobs_use_a_breaker_may_switch_its_own_mapping_and_no_other(prod: Synthesized) -> None:
    shutting = {
        stack for stack, statement in statements(prod) if "lambda:UpdateEventSourceMapping" in str(statement["Action"])
    }
    assert shutting == {"loomjobs-prod-worker-accounting"}
    for stack, statement in statements(prod):
        if "lambda:UpdateEventSourceMapping" in str(statement["Action"]):
            assert "Mapping" in json.dumps(statement["Resource"]), stack
            assert "*" not in json.dumps(statement["Resource"])
