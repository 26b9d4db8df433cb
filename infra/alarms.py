"""Alarms as data: a list of specs for a worker, and one renderer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from loomjobs.core import defaults, names
from loomjobs.core.plan import Plan, PlannedRelay, Worker

RUNBOOK = "docs/runbook.md"
FAILED = "Failed"
UNMAPPED = "unmapped"
"""As a worker's journal writes them, which infra may not import: a test compares the two."""
IN_FLIGHT = 120_000
"""Messages of a queue that are received and neither deleted nor visible again. Beyond it a FIFO queue answers receives
with nothing, as if it were empty:
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html"""
FAILURES = 10
"""Failed attempts of one job a minute. Fewer than these end well, or in a dead letter, which has an alarm at one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Fires at `threshold` or above in `periods` minutes in a row. `anchor` is the section of the runbook."""

    name: str
    namespace: str
    metric: str
    dimensions: Mapping[str, str]
    statistic: str
    threshold: float
    periods: int = 1
    why: str
    anchor: str
    missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING


def worker_alarms(worker: Worker, *, queue: str, dlq: str, function: str) -> list[Alarm]:
    """`queue`, `dlq` and `function` are the deployed names."""
    return [
        Alarm(
            name="OldestMessage",
            namespace="AWS/SQS",
            metric="ApproximateAgeOfOldestMessage",
            dimensions={"QueueName": queue},
            statistic="Maximum",
            threshold=worker.age_alarm,
            periods=3,
            why=f"The oldest job of {worker.queue} ({worker.workload}) has waited {worker.age_alarm} s or more.",
            anchor="the-oldest-message-is-too-old",
        ),
        Alarm(
            name="DeadLetters",
            namespace="AWS/SQS",
            metric="ApproximateNumberOfMessagesVisible",  # not ...Sent, which automatic moves do not count
            dimensions={"QueueName": dlq},
            statistic="Maximum",
            threshold=1,
            why=f"A job of {worker.queue} is dead: it failed for good or used up its attempts.",
            anchor="there-are-dead-letters",
        ),
        Alarm(
            name="Errors",
            namespace="AWS/Lambda",
            metric="Errors",
            dimensions={"FunctionName": function},
            statistic="Sum",
            threshold=1,
            why=f"The worker of {worker.queue} itself failed (init, timeout or crash); failed jobs are no errors.",
            anchor="the-worker-itself-fails",
        ),
        Alarm(
            name="Throttles",
            namespace="AWS/Lambda",
            metric="Throttles",
            dimensions={"FunctionName": function},
            statistic="Sum",
            threshold=1,
            periods=5,
            why=f"Lambda throttles the worker of {worker.queue}: the account's concurrency is used up.",
            anchor="the-worker-is-throttled",
        ),
        Alarm(
            name="LoopGuard",
            namespace="AWS/Lambda",
            metric="RecursiveInvocationsDropped",
            dimensions={"FunctionName": function},
            statistic="Sum",
            threshold=1,
            why=f"Lambda's loop guard dropped a chain of jobs on {worker.queue}; its messages go to the DLQ.",
            anchor="the-loop-guard-dropped-work",
        ),
        Alarm(
            name="InFlight",
            namespace="AWS/SQS",
            metric="ApproximateNumberOfMessagesNotVisible",
            dimensions={"QueueName": queue},
            statistic="Maximum",
            threshold=IN_FLIGHT * 0.8,
            why=f"{worker.queue} has 80 % of the messages in flight that SQS allows; at 100 % it looks empty.",
            anchor="too-many-messages-are-in-flight",
        ),
        Alarm(
            name="StoreUnavailable",
            namespace=_variable(worker, names.METRICS_NAMESPACE),
            metric="StoreUnavailable",
            dimensions=_own(worker, UNMAPPED),
            statistic="Sum",
            threshold=1,
            why=f"The worker of {worker.queue} cannot reach the execution records, so it starts no job.",
            anchor="the-execution-records-are-not-available",
        ),
        *(
            Alarm(
                name=f"Failures-{job}",
                namespace=_variable(worker, names.METRICS_NAMESPACE),
                metric=FAILED,
                dimensions=_own(worker, job),
                statistic="Sum",
                threshold=FAILURES,
                periods=5,
                why=f"{job} fails {FAILURES} times a minute or more; Lambda's own Errors do not show it.",
                anchor="a-job-fails-again-and-again",
            )
            for job in worker.jobs
        ),
    ]


def relay_alarms(plan: Plan, relay: PlannedRelay, *, function: str) -> list[Alarm]:
    """`function` is the deployed name."""
    return [
        Alarm(
            name="OutboxLag",
            namespace=names.metrics_namespace(plan.app, plan.environment),
            metric=names.OUTBOX_LAG,
            dimensions={"service": plan.app, "environment": plan.environment},
            statistic="Maximum",
            threshold=relay.lag_alarm * 1000,
            why=f"A committed call has waited {relay.lag_alarm} s or more to be sent: the sweep does not get it sent.",
            anchor="committed-calls-are-not-sent",
        ),
        Alarm(
            name="Errors",
            namespace="AWS/Lambda",
            metric="Errors",
            dimensions={"FunctionName": function},
            statistic="Sum",
            threshold=1,
            why="The relay of the outbox itself failed (init, timeout, a table that cannot be read).",
            anchor="committed-calls-are-not-sent",
        ),
        Alarm(
            name="Throttles",
            namespace="AWS/Lambda",
            metric="Throttles",
            dimensions={"FunctionName": function},
            statistic="Sum",
            threshold=1,
            periods=5,
            why="Lambda throttles the relay of the outbox: the account's concurrency is used up.",
            anchor="the-worker-is-throttled",
        ),
    ]


def _own(worker: Worker, job: str) -> dict[str, str]:
    """The dimensions of what the worker itself counts."""
    return {"service": _variable(worker, names.APP), "queue": worker.queue, "job": job}


def _variable(worker: Worker, key: str) -> str:
    value = worker.environment[key]
    assert isinstance(value, str)
    return value


def render(scope: Construct, specs: list[Alarm], topic: sns.ITopic) -> list[cloudwatch.Alarm]:
    """Every alarm says so at both ends: when it fires, and when it is over."""
    return [_render(scope, spec, topic) for spec in specs]


def _render(scope: Construct, spec: Alarm, topic: sns.ITopic) -> cloudwatch.Alarm:
    metric = cloudwatch.Metric(
        namespace=spec.namespace,
        metric_name=spec.metric,
        dimensions_map=dict(spec.dimensions),
        statistic=spec.statistic,
        period=Duration.seconds(defaults.ALARM_PERIOD),
    )
    alarm = cloudwatch.Alarm(
        scope,
        spec.name,
        metric=metric,
        threshold=spec.threshold,
        evaluation_periods=spec.periods,
        comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        treat_missing_data=spec.missing,
        alarm_description=f"{spec.why} Runbook: {RUNBOOK}#{spec.anchor}",
    )
    alarm.add_alarm_action(actions.SnsAction(topic))
    alarm.add_ok_action(actions.SnsAction(topic))
    return alarm
