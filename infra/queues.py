"""All queues with their dead-letter queues. One stack: two queues whose jobs send to each other are no cycle here."""

from __future__ import annotations

from typing import Any

from aws_cdk import Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.alarms import render
from infra.carry import publish, take
from infra.removal import removal
from infra.undelivered import delivery_alarms, undelivered_queue
from loomjobs.core import names
from loomjobs.core.environment import Environment
from loomjobs.core.plan import Plan, Worker


class Queues(Stack):
    def __init__(self, scope: Construct, id: str, *, environment: Environment, plan: Plan, **options: Any) -> None:
        super().__init__(scope, id, **options)
        pairs = {worker.queue: _pair(self, environment, worker) for worker in plan.workers}
        if plan.workers:
            _later(self, environment, list(pairs.values()))


def _later(scope: Construct, environment: Environment, queues: list[sqs.Queue]) -> None:
    """The group of one-off schedules, the role they send with, and the queue for what they could not send."""
    home = Construct(scope, "Later")
    group = scheduler.CfnScheduleGroup(home, "Group", name=names.stack(environment, "later"))
    publish(home, environment, "queues", "later", "group", value=group.ref)
    undelivered = undelivered_queue(home, environment)
    role = iam.Role(
        home,
        "Role",
        assumed_by=iam.ServicePrincipal(
            "scheduler.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": Stack.of(scope).account}}
        ),
        description="Sends messages that are due later than SQS can hold",
    )
    role.add_to_policy(
        iam.PolicyStatement(
            actions=["sqs:SendMessage"], resources=[queue.queue_arn for queue in (*queues, undelivered)]
        )
    )
    publish(home, environment, "queues", "later", "role", value=role.role_arn)
    publish(home, environment, "queues", "later", "dlq", value=undelivered.queue_arn)
    topic = sns.Topic.from_topic_arn(home, "Topic", take(home, environment, "foundation", "alarms", "arn"))
    alarms = delivery_alarms(
        "Later",
        group=names.stack(environment, "later"),
        dlq=undelivered.queue_name,
        what="a message that was due later",
        anchor="a-message-that-was-due-later-was-not-sent",
    )
    render(home, alarms, topic)


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
            # EventBridge Scheduler cannot give a deduplication id, and sends to no FIFO queue without this
            "content_based_deduplication": True,
        }
    return options
