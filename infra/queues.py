"""All queues with their dead-letter queues. One stack: two queues whose jobs send to each other are no cycle here."""

from __future__ import annotations

from typing import Any

from aws_cdk import Duration, Stack
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.carry import publish
from infra.removal import removal
from loomjobs.core.environment import Environment
from loomjobs.core.plan import Plan, Worker


class Queues(Stack):
    def __init__(self, scope: Construct, id: str, *, environment: Environment, plan: Plan, **options: Any) -> None:
        super().__init__(scope, id, **options)
        for worker in plan.workers:
            _pair(self, environment, worker)


def _pair(scope: Construct, environment: Environment, worker: Worker) -> None:
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
