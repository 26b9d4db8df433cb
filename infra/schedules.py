"""EventBridge schedules, in UTC: each sends a tick to the scheduler's queue."""

from __future__ import annotations

import json
from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.alarms import render
from infra.carry import publish, take
from infra.undelivered import delivery_alarms, undelivered_queue
from loomjobs.core import names
from loomjobs.core.environment import Environment
from loomjobs.core.plan import Plan, PlannedSchedule

RETRIES = 10
"""Delivery retries; the schedule's own age bound usually ends them first."""


class Schedules(Stack):
    def __init__(self, scope: Construct, id: str, *, environment: Environment, plan: Plan, **options: Any) -> None:
        super().__init__(scope, id, **options)
        group = scheduler.CfnScheduleGroup(self, "Group", name=f"{environment.app}-{environment.name}")
        ticks = take(self, environment, "queues", names.TICKS, "arn")
        dead = undelivered_queue(self, environment)
        publish(self, environment, "schedules", "undelivered", "url", value=dead.queue_url)
        role = _role(self, group, ticks, dead)
        for schedule in plan.schedules:
            _schedule(self, schedule, group, ticks, dead, role)
        topic = sns.Topic.from_topic_arn(self, "Topic", take(self, environment, "foundation", "alarms", "arn"))
        alarms = delivery_alarms(
            "Ticks",
            group=str(group.name),
            dlq=dead.queue_name,
            what="a tick",
            anchor="a-tick-was-not-delivered",
        )
        self.alarms = render(self, alarms, topic)


def _role(scope: Stack, group: scheduler.CfnScheduleGroup, ticks: str, dead: sqs.Queue) -> iam.Role:
    """EventBridge Scheduler may take it for schedules of this group only, and send to these two queues only."""
    owner = scope.format_arn(service="scheduler", resource="schedule-group", resource_name=group.name)
    role = iam.Role(
        scope,
        "Role",
        assumed_by=iam.ServicePrincipal(
            "scheduler.amazonaws.com",
            conditions={"StringEquals": {"aws:SourceAccount": scope.account, "aws:SourceArn": owner}},
        ),
    )
    role.add_to_policy(iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[ticks, dead.queue_arn]))
    return role


def _schedule(
    scope: Construct,
    schedule: PlannedSchedule,
    group: scheduler.CfnScheduleGroup,
    ticks: str,
    dead: sqs.Queue,
    role: iam.Role,
) -> None:
    tick = {"job": names.TICK_JOB, "payload": {"schedule": schedule.name, "at": names.SCHEDULED_TIME}}
    made = scheduler.CfnSchedule(
        scope,
        f"Schedule-{schedule.name}",
        name=schedule.name,
        group_name=group.name,
        description=schedule.why[:512],
        schedule_expression=schedule.expression,
        schedule_expression_timezone="UTC",
        start_date=schedule.start,
        end_date=schedule.end,
        state="ENABLED" if schedule.enabled else "DISABLED",
        flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
        target=scheduler.CfnSchedule.TargetProperty(
            arn=ticks,
            role_arn=role.role_arn,
            input=json.dumps(tick),
            dead_letter_config=scheduler.CfnSchedule.DeadLetterConfigProperty(arn=dead.queue_arn),
            retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                maximum_event_age_in_seconds=schedule.retry_age, maximum_retry_attempts=RETRIES
            ),
        ),
    )
    made.add_resource_dependency(group)
