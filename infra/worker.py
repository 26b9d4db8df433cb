"""The stack of one queue's worker: function, mapping, role and alarms."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import ArnFormat, Duration, Fn, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.alarms import render, worker_alarms
from infra.carry import publish, take, taken
from infra.later import allow_later
from infra.nag import accept
from infra.payloads import allow_payloads
from infra.removal import removal
from infra.rights import Rights, shown
from loomjobs.core import names
from loomjobs.core.environment import Environment
from loomjobs.core.plan import Worker

RETENTION: Mapping[int, logs.RetentionDays] = {
    1: logs.RetentionDays.ONE_DAY,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    90: logs.RetentionDays.THREE_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
}


@dataclass(frozen=True, slots=True)
class Code:
    """The built asset: a folder and its content's digest."""

    path: str
    digest: str


class WorkerStack(Stack):
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        worker: Worker,
        rights: Rights | None,
        code: Code,
        **options: Any,
    ) -> None:
        super().__init__(scope, id, **options)
        queue = take(self, environment, "queues", worker.queue, "arn")
        dlq = take(self, environment, "queues", worker.queue, "dlq", "arn")
        log_group = logs.LogGroup(
            self,
            "Logs",
            retention=RETENTION[environment.log_retention_days],
            removal_policy=removal(environment),
        )
        self.role = _role(self, environment, worker, rights, log_group, queue=queue, dlq=dlq)
        self.function = _function(self, environment, worker, code, self.role, log_group)
        self.mapping = _mapping(self, worker, self.function, queue)
        if names.MAPPING in worker.environment:
            _valve(self, environment, worker, self.role, self.function, self.mapping)
        topic = sns.Topic.from_topic_arn(self, "Topic", take(self, environment, "foundation", "alarms", "arn"))
        specs = worker_alarms(
            worker, queue=queue_name(queue), dlq=queue_name(dlq), function=self.function.function_name
        )
        self.alarms = render(self, specs, topic)


def queue_name(arn: str) -> str:
    """arn:aws:sqs:region:account:name"""
    return Fn.select(5, Fn.split(":", arn))


def _role(
    scope: Construct,
    environment: Environment,
    worker: Worker,
    rights: Rights | None,
    log_group: logs.LogGroup,
    *,
    queue: str,
    dlq: str,
) -> iam.Role:
    role = iam.Role(
        scope, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"), description=f"Worker of {worker.queue}"
    )

    def allow(*actions: str, on: str) -> None:
        role.add_to_policy(iam.PolicyStatement(actions=list(actions), resources=[on]))

    log_group.grant_write(role)
    allow(
        "sqs:ReceiveMessage",
        "sqs:DeleteMessage",
        "sqs:GetQueueAttributes",
        "sqs:ChangeMessageVisibility",
        on=queue,
    )
    allow("sqs:SendMessage", on=dlq)
    table = take(scope, environment, "foundation", "executions", "arn")
    allow(
        "dynamodb:GetItem",
        "dynamodb:UpdateItem",
        "dynamodb:PartiQLInsert",
        "dynamodb:PartiQLUpdate",
        on=table,
    )
    if names.OUTBOX in worker.environment:
        allow("dynamodb:PutItem", on=take(scope, environment, "outbox", "table", "arn"))
    allow_later(scope, role, environment, renewals=not worker.fifo, grants=worker.grants)
    _allow_key(scope, role, environment, worker)
    for grant in worker.grants:
        if grant.kind == "key":
            continue
        if grant.kind == "send":
            allow("sqs:SendMessage", on=take(scope, environment, "queues", grant.target, "arn"))
        elif grant.kind == "secret":
            allow("secretsmanager:GetSecretValue", on=take(scope, environment, "resources", grant.target, "address"))
        elif grant.kind == "depth":
            allow("sqs:GetQueueAttributes", on=take(scope, environment, "queues", grant.target, "arn"))
        elif grant.kind == "age":
            allow("cloudwatch:GetMetricStatistics", on="*")
            accept(role, "AwsSolutions-IAM5[Resource::*]", "CloudWatch has no resource to name for reading a metric.")
        elif grant.kind == "payload":
            allow_payloads(scope, role, environment, grant.target, grant.verb)
        elif rights is not None:
            rights.grant(role, grant.target, grant.verb)
    if worker.network is not None:
        role.add_managed_policy(
            iam.ManagedPolicy.from_aws_managed_policy_name("service-role/AWSLambdaENIManagementAccess")
        )
    return role


def _allow_key(scope: Construct, role: iam.Role, environment: Environment, worker: Worker) -> None:
    """The job's name is the encryption context: https://docs.aws.amazon.com/kms/latest/developerguide/encrypt_context.html"""
    for verb, action in (("decrypt", "kms:Decrypt"), ("encrypt", "kms:GenerateDataKey")):
        jobs = [grant.target for grant in worker.grants if grant.kind == "key" and grant.verb == verb]
        if jobs:
            role.add_to_policy(
                iam.PolicyStatement(
                    actions=[action],
                    resources=[take(scope, environment, "foundation", "key", "arn")],
                    conditions={"StringEquals": {"kms:EncryptionContext:job": jobs}},
                )
            )


def _function(
    scope: Construct,
    environment: Environment,
    worker: Worker,
    code: Code,
    role: iam.Role,
    log_group: logs.LogGroup,
) -> lambda_.Function:
    variables = {key: taken(scope, value) for key, value in worker.environment.items()}
    function = lambda_.Function(
        scope,
        "Worker",
        runtime=lambda_.Runtime(f"python{environment.python}", lambda_.RuntimeFamily.PYTHON),
        architecture=architecture(environment),
        code=lambda_.Code.from_asset(code.path, asset_hash=code.digest),
        handler=worker.handler,
        timeout=Duration.seconds(worker.function_timeout),
        memory_size=worker.memory_mb,
        environment=variables | {names.RELEASE: code.digest[:12]},
        role=role,
        log_group=log_group,
        logging_format=lambda_.LoggingFormat.JSON,
        description=f"{worker.queue}: {', '.join(worker.jobs)}"[:256],
        **_network(scope, environment, worker),
    )
    accept(function, "AwsSolutions-L1", "The runtime is the environment's python=, which the asset is built for.")
    return function


def _network(scope: Construct, environment: Environment, worker: Worker) -> dict[str, Any]:
    if worker.network is None:
        return {}
    network = environment.networks[worker.network]
    vpc = ec2.Vpc.from_vpc_attributes(
        scope,
        "Network",
        vpc_id=network.vpc,
        availability_zones=list(network.availability_zones),
        private_subnet_ids=list(network.subnets),
    )
    groups = [
        ec2.SecurityGroup.from_security_group_id(scope, f"Group{place}", each)
        for place, each in enumerate(network.security_groups)
    ]
    return {"vpc": vpc, **({"security_groups": groups} if groups else {})}


def architecture(environment: Environment) -> lambda_.Architecture:
    machine = platform.machine() if environment.architecture == "host" else environment.architecture
    return lambda_.Architecture.ARM_64 if machine in ("arm64", "aarch64") else lambda_.Architecture.X86_64


def _valve(
    scope: Stack,
    environment: Environment,
    worker: Worker,
    role: iam.Role,
    function: lambda_.Function,
    mapping: lambda_.EventSourceMapping,
) -> None:
    """The worker may switch its own mapping off, and has a schedule switch it on again; nothing else of Lambda.

    The rights are a policy of their own: the function waits for its role's policy, and these name the mapping, which
    waits for the function.
    """
    arn = scope.format_arn(
        service="lambda",
        resource="event-source-mapping",
        resource_name=mapping.event_source_mapping_id,
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )
    publish(scope, environment, "workers", worker.queue, "mapping", value=mapping.event_source_mapping_id)
    path = worker.environment[names.MAPPING]
    assert isinstance(path, str)
    parameter = scope.format_arn(service="ssm", resource="parameter", resource_name=path.removeprefix("/"))
    group = take(scope, environment, "queues", "later", "group")
    schedules = scope.format_arn(service="scheduler", resource="schedule", resource_name=f"{group}/open-*")
    opener = iam.Role(
        scope,
        "Opener",
        assumed_by=iam.ServicePrincipal(
            "scheduler.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": scope.account}}
        ),
        description=f"Switches the delivery of {worker.queue} on again",
    )
    update = iam.PolicyStatement(actions=["lambda:UpdateEventSourceMapping"], resources=[arn])
    iam.Policy(scope, "OpenerRights", roles=[opener], statements=[update])
    rights = iam.Policy(
        scope,
        "ValveRights",
        roles=[role],
        statements=[
            update,
            iam.PolicyStatement(actions=["ssm:GetParameter"], resources=[parameter]),
            iam.PolicyStatement(actions=["scheduler:CreateSchedule"], resources=[schedules]),
            iam.PolicyStatement(
                actions=["iam:PassRole"],
                resources=[opener.role_arn],
                conditions={"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}},
            ),
        ],
    )
    accept(rights, f"AwsSolutions-IAM5[Resource::{shown(role, schedules)}]", "One schedule for each time it is shut.")
    function.add_environment(names.VALVE_ROLE, opener.role_arn)


def _mapping(scope: Construct, worker: Worker, function: lambda_.Function, queue: str) -> lambda_.EventSourceMapping:
    """Lambda's poller. Without ReportBatchItemFailures it would delete failed messages, so there is no other way."""
    return lambda_.EventSourceMapping(
        scope,
        "Mapping",
        target=function,
        event_source_arn=queue,
        batch_size=worker.batch_size,
        max_batching_window=Duration.seconds(worker.batch_window) if worker.batch_window else None,
        report_batch_item_failures=True,
        max_concurrency=worker.max_concurrency,
        metrics_config=lambda_.MetricsConfig(metrics=[lambda_.MetricType.EVENT_COUNT]),
    )
