"""The outbox of committed calls: its table, and the relay that sends them, by the table's stream and by a sweep."""

from __future__ import annotations

import json
from typing import Any

from aws_cdk import Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.alarms import relay_alarms, render
from infra.carry import publish, take, taken
from infra.later import allow_later
from infra.nag import accept
from infra.removal import removal
from infra.worker import RETENTION, Code, architecture
from loomjobs.core import names
from loomjobs.core.environment import Environment
from loomjobs.core.plan import Plan, PlannedRelay


class Outbox(Stack):
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        plan: Plan,
        relay: PlannedRelay,
        code: Code,
        **options: Any,
    ) -> None:
        super().__init__(scope, id, **options)
        self.table = _table(self, environment)
        publish(self, environment, "outbox", "table", "name", value=self.table.table_name)
        publish(self, environment, "outbox", "table", "arn", value=self.table.table_arn)
        log_group = logs.LogGroup(
            self,
            "Logs",
            retention=RETENTION[environment.log_retention_days],
            removal_policy=removal(environment),
        )
        self.role = _role(self, environment, relay, self.table, log_group)
        self.function = _function(self, environment, relay, code, self.table, self.role, log_group)
        self.mapping = _mapping(self, relay, self.function, self.table)
        _sweep(self, environment, relay, self.function)
        topic = sns.Topic.from_topic_arn(self, "Topic", take(self, environment, "foundation", "alarms", "arn"))
        self.alarms = render(self, relay_alarms(plan, relay, function=self.function.function_name), topic)


def _table(scope: Construct, environment: Environment) -> dynamodb.Table:
    """No TTL: a row leaves when SQS has it."""
    table = dynamodb.Table(
        scope,
        "Rows",
        partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
        stream=dynamodb.StreamViewType.NEW_IMAGE,
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        deletion_protection=environment.retain,
        removal_policy=removal(environment),
    )
    accept(table, "AwsSolutions-DDB3", "Rows live for seconds; restored ones would be sent a second time.")
    return table


def _role(
    scope: Construct, environment: Environment, relay: PlannedRelay, table: dynamodb.Table, log_group: logs.LogGroup
) -> iam.Role:
    """Written out, not granted by the table's methods: those add a wildcard for streams and every read there is."""
    role = iam.Role(
        scope, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"), description="Relay of the outbox"
    )

    def allow(*actions: str, on: str) -> None:
        role.add_to_policy(iam.PolicyStatement(actions=list(actions), resources=[on]))

    log_group.grant_write(role)
    allow("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator", on=_stream(table))
    allow("dynamodb:ListStreams", on="*")
    accept(role, "AwsSolutions-IAM5[Resource::*]", "ListStreams, which Lambda's poller needs, takes no resource.")
    allow("dynamodb:Scan", "dynamodb:BatchWriteItem", on=table.table_arn)
    for grant in relay.grants:
        allow("sqs:SendMessage", on=take(scope, environment, "queues", grant.target, "arn"))
    allow_later(scope, role, environment, grants=relay.grants)
    return role


def _function(
    scope: Construct,
    environment: Environment,
    relay: PlannedRelay,
    code: Code,
    table: dynamodb.Table,
    role: iam.Role,
    log_group: logs.LogGroup,
) -> lambda_.Function:
    elsewhere = {key: taken(scope, value) for key, value in relay.environment.items() if key != names.OUTBOX}
    function = lambda_.Function(
        scope,
        "Relay",
        runtime=lambda_.Runtime(f"python{environment.python}", lambda_.RuntimeFamily.PYTHON),
        architecture=architecture(environment),
        code=lambda_.Code.from_asset(code.path, asset_hash=code.digest),
        handler=relay.handler,
        timeout=Duration.seconds(relay.function_timeout),
        memory_size=relay.memory_mb,
        environment=elsewhere | {names.OUTBOX: table.table_name, names.RELEASE: code.digest[:12]},
        role=role,
        log_group=log_group,
        logging_format=lambda_.LoggingFormat.JSON,
        description="Sends committed calls to their queues",
    )
    accept(function, "AwsSolutions-L1", "The runtime is the environment's python=, which the asset is built for.")
    return function


def _mapping(
    scope: Construct, relay: PlannedRelay, function: lambda_.Function, table: dynamodb.Table
) -> lambda_.EventSourceMapping:
    """Only new rows come through; a row's removal would be a second invocation for nothing.

    The retries are few, and what they do not send is lost to the stream only: the row stays, and the sweep sends it.
    """
    mapping = lambda_.EventSourceMapping(
        scope,
        "Mapping",
        target=function,
        event_source_arn=_stream(table),
        batch_size=relay.batch_size,
        starting_position=lambda_.StartingPosition.TRIM_HORIZON,
        report_batch_item_failures=True,
        bisect_batch_on_error=True,
        retry_attempts=relay.retries,
        filters=[lambda_.FilterCriteria.filter({"eventName": lambda_.FilterRule.is_equal("INSERT")})],
        metrics_config=lambda_.MetricsConfig(metrics=[lambda_.MetricType.EVENT_COUNT]),
    )
    # the poller reads with the function's role, so its rights come first
    mapping.node.add_dependency(function.role)
    return mapping


def _sweep(scope: Stack, environment: Environment, relay: PlannedRelay, function: lambda_.Function) -> None:
    """Its own silence shows: without a sweep there is no OutboxLag, and with a failing one the Errors alarm fires."""
    role = iam.Role(
        scope,
        "SweepRole",
        assumed_by=iam.ServicePrincipal(
            "scheduler.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": scope.account}}
        ),
        description="Starts the sweep of the outbox",
    )
    role.add_to_policy(iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[function.function_arn]))
    group = scheduler.CfnScheduleGroup(scope, "Group", name=names.stack(environment, "outbox"))
    schedule = scheduler.CfnSchedule(
        scope,
        "Sweep",
        group_name=group.ref,
        description="Sends the committed calls that the stream left behind",
        schedule_expression=relay.sweep,
        schedule_expression_timezone="UTC",
        state="ENABLED",
        flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
        target=scheduler.CfnSchedule.TargetProperty(
            arn=function.function_arn,
            role_arn=role.role_arn,
            input=json.dumps(names.SWEEP),
            # the next one comes in a minute, and does the same
            retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                maximum_event_age_in_seconds=60, maximum_retry_attempts=0
            ),
        ),
    )
    schedule.node.add_dependency(role)


def _stream(table: dynamodb.Table) -> str:
    arn = table.table_stream_arn
    assert arn is not None
    return arn
