"""All queues with their dead-letter queues. One stack: two queues whose jobs send to each other are no cycle here."""

from __future__ import annotations

from typing import Any

from aws_cdk import Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.carry import publish
from infra.removal import removal
from loomjobs.core import names
from loomjobs.core.environment import Environment
from loomjobs.core.plan import Plan, Worker


class Queues(Stack):
    def __init__(self, scope: Construct, id: str, *, environment: Environment, plan: Plan, **options: Any) -> None:
        super().__init__(scope, id, **options)
        pairs = {worker.queue: _pair(self, environment, worker) for worker in plan.workers}
        standard = [pairs[worker.queue] for worker in plan.workers if not worker.fifo]
        if plan.workers:
            _later(self, environment, standard)


def _later(scope: Construct, environment: Environment, queues: list[sqs.Queue]) -> None:
    """The group of one-off schedules, and the role they send with: renewals and waits that SQS cannot hold."""
    home = Construct(scope, "Later")
    group = scheduler.CfnScheduleGroup(home, "Group", name=names.stack(environment, "later"))
    publish(home, environment, "queues", "later", "group", value=group.ref)
    if not queues:
        return
    role = iam.Role(
        home,
        "Role",
        assumed_by=iam.ServicePrincipal(
            "scheduler.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": Stack.of(scope).account}}
        ),
        description="Sends messages that are due later than SQS can hold",
    )
    role.add_to_policy(
        iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[queue.queue_arn for queue in queues])
    )
    publish(home, environment, "queues", "later", "role", value=role.role_arn)


def _pair(scope: Construct, environment: Environment, worker: Worker) -> sqs.Queue:
    home = Construct(scope, worker.queue)
    dead = sqs.Queue(
        home,
        "DeadLetters",
        retention_period=Duration.seconds(worker.dlq_retention),
        **_common(environment, worker),
    )
    queue = sqs.Queue(
        home,
        "Queue",
        retention_period=Duration.seconds(worker.retention),
        visibility_timeout=Duration.seconds(worker.visibility),
        dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=worker.max_receive_count),
        **_common(environment, worker),
    )
    for path, each in (((), queue), (("dlq",), dead)):
        publish(home, environment, "queues", worker.queue, *path, "arn", value=each.queue_arn)
        publish(home, environment, "queues", worker.queue, *path, "url", value=each.queue_url)
    return queue


def _common(environment: Environment, worker: Worker) -> dict[str, Any]:
    """High throughput on FIFO: both settings or none, since one alone is normal mode."""
    options: dict[str, Any] = {
        "enforce_ssl": True,
        "encryption": sqs.QueueEncryption.SQS_MANAGED,
        "removal_policy": removal(environment),
    }
    if worker.fifo:
        options |= {
            "fifo": True,
            "deduplication_scope": sqs.DeduplicationScope.MESSAGE_GROUP,
            "fifo_throughput_limit": sqs.FifoThroughputLimit.PER_MESSAGE_GROUP_ID,
        }
    return options
