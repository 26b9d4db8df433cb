"""One dashboard an environment: for each queue the golden signals, and the alarms on top."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.carry import take
from infra.worker import queue_name
from loomjobs.core import names
from loomjobs.core.environment import Environment
from loomjobs.core.plan import Plan, Worker

_MINUTE = Duration.minutes(1)


class Dashboard(Stack):
    def __init__(self, scope: Construct, id: str, *, environment: Environment, plan: Plan, **options: Any) -> None:
        super().__init__(scope, id, **options)
        board = cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=f"{environment.app}-{environment.name}",
            default_interval=Duration.hours(3),
        )
        for worker in plan.workers:
            queue = queue_name(take(self, environment, "queues", worker.queue, "arn"))
            dead = queue_name(take(self, environment, "queues", worker.queue, "dlq", "arn"))
            board.add_widgets(*_row(worker, plan, queue, dead))


def _row(worker: Worker, plan: Plan, queue: str, dead: str) -> list[cloudwatch.IWidget]:
    """Depth, age, flow, outcomes and times of one queue."""
    return [
        _graph(
            f"{worker.queue}: depth",
            [
                _sqs(queue, "ApproximateNumberOfMessagesVisible", "Maximum", "waiting"),
                _sqs(queue, "ApproximateNumberOfMessagesNotVisible", "Maximum", "in flight"),
                _sqs(queue, "ApproximateNumberOfMessagesDelayed", "Maximum", "delayed"),
                _sqs(dead, "ApproximateNumberOfMessagesVisible", "Maximum", "dead letters"),
            ],
        ),
        _graph(
            f"{worker.queue}: age of oldest, s",
            [_sqs(queue, "ApproximateAgeOfOldestMessage", "Maximum", "oldest")],
            limit=cloudwatch.HorizontalAnnotation(value=worker.age_alarm, label="alarm"),
        ),
        _graph(
            f"{worker.queue}: outcomes a minute",
            [
                _sqs(queue, "NumberOfMessagesSent", "Sum", "sent"),
                *(
                    _own(plan, worker, job, metric, "Sum")
                    for job in worker.jobs
                    for metric in ("Succeeded", "Retried", "Deferred", "Dead", "DuplicateSuppressed")
                ),
            ],
        ),
        _graph(
            f"{worker.queue}: times, ms",
            [
                *(
                    _own(plan, worker, job, "Duration", statistic)
                    for job in worker.jobs
                    for statistic in ("p50", "p95", "p99")
                ),
                *(_own(plan, worker, job, "TimeToStart", "p95") for job in worker.jobs),
            ],
        ),
    ]


def _graph(
    title: str, metrics: Sequence[cloudwatch.IMetric], limit: cloudwatch.HorizontalAnnotation | None = None
) -> cloudwatch.GraphWidget:
    annotations = [limit] if limit else None
    return cloudwatch.GraphWidget(
        title=title, left=list(metrics), left_annotations=annotations, width=6, period=_MINUTE
    )


def _sqs(queue: str, metric: str, statistic: str, label: str) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace="AWS/SQS",
        metric_name=metric,
        dimensions_map={"QueueName": queue},
        statistic=statistic,
        label=label,
        period=_MINUTE,
    )


def _own(plan: Plan, worker: Worker, job: str, metric: str, statistic: str) -> cloudwatch.Metric:
    """A metric that the worker itself writes: dimensions service, queue, job."""
    return cloudwatch.Metric(
        namespace=names.metrics_namespace(plan.app, plan.environment),
        metric_name=metric,
        dimensions_map={"service": plan.app, "queue": worker.queue, "job": job},
        statistic=statistic,
        label=f"{job} {metric} {statistic if statistic != 'Sum' else ''}".strip(),
        period=_MINUTE,
    )
