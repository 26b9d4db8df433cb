"""What EventBridge Scheduler could not send: the queue that it leaves it in, and the alarms that tell of it."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.alarms import Alarm
from infra.nag import accept
from infra.removal import removal
from loomjobs.core import defaults
from loomjobs.core.environment import Environment


def undelivered_queue(scope: Construct, environment: Environment) -> sqs.Queue:
    """A standard one: Scheduler takes no FIFO queue for it."""
    queue = sqs.Queue(
        scope,
        "Undelivered",
        retention_period=Duration.seconds(defaults.DLQ_RETENTION),
        enforce_ssl=True,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        removal_policy=removal(environment),
    )
    accept(queue, "AwsSolutions-SQS3", "It is a dead-letter queue, of EventBridge Scheduler.")
    return queue


def delivery_alarms(suffix: str, *, group: str, dlq: str, what: str, anchor: str) -> list[Alarm]:
    """Of a group of schedules: `group` and `dlq` are the deployed names, `what` is what it sends."""
    in_group = {"ScheduleGroup": group}
    return [
        Alarm(
            name=f"Undelivered{suffix}",
            namespace="AWS/SQS",
            metric="ApproximateNumberOfMessagesVisible",
            dimensions={"QueueName": dlq},
            statistic="Maximum",
            threshold=1,
            why=f"EventBridge Scheduler could not deliver {what}.",
            anchor=anchor,
        ),
        Alarm(
            name=f"Dropped{suffix}",
            namespace="AWS/Scheduler",
            metric="InvocationDroppedCount",
            dimensions=in_group,
            statistic="Sum",
            threshold=1,
            why=f"EventBridge Scheduler gave {what} up.",
            anchor=anchor,
        ),
        Alarm(
            name=f"TargetErrors{suffix}",
            namespace="AWS/Scheduler",
            metric="TargetErrorCount",
            dimensions=in_group,
            statistic="Sum",
            threshold=1,
            periods=3,
            why=f"The queue that {what} is for refuses EventBridge Scheduler's messages.",
            anchor=anchor,
        ),
    ]
