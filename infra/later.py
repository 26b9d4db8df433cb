"""The right to have a message sent later: one-off schedules in a group of their own, which send with their own role."""

from __future__ import annotations

from collections.abc import Iterable

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.carry import take
from infra.nag import accept
from infra.rights import shown
from loomjobs.core.environment import Environment
from loomjobs.core.grant import Grant
from loomjobs.core.later import queue_prefix


def allow_later(
    scope: Construct, role: iam.Role, environment: Environment, *, grants: Iterable[Grant], renewals: bool = False
) -> None:
    """For the queues that `grants` lets it send to, and for `renewals` of its own messages; nothing for neither."""
    prefixes = [queue_prefix(grant.target) for grant in grants if grant.kind == "send"]
    prefixes += ["renew-"] if renewals else []
    if not prefixes:
        return
    group = take(scope, environment, "queues", "later", "group")
    schedules = [_schedules(scope, f"{group}/{prefix}*") for prefix in prefixes]
    role.add_to_policy(iam.PolicyStatement(actions=["scheduler:CreateSchedule"], resources=schedules))
    role.add_to_policy(
        iam.PolicyStatement(
            actions=["iam:PassRole"],
            resources=[take(scope, environment, "queues", "later", "role")],
            conditions={"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}},
        )
    )
    for each in schedules:
        accept(role, f"AwsSolutions-IAM5[Resource::{shown(role, each)}]", "One schedule for each message sent later.")


def _schedules(scope: Construct, name: str) -> str:
    return Stack.of(scope).format_arn(service="scheduler", resource="schedule", resource_name=name)
