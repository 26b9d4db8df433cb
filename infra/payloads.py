"""Rights to payloads that go beside their messages: each for one queue's objects in the environment's bucket."""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.carry import take
from infra.nag import accept
from infra.rights import shown
from loomjobs.core.environment import Environment
from loomjobs.core.offload import queue_prefix


def allow_payloads(scope: Construct, role: iam.Role, environment: Environment, queue: str, verb: str) -> None:
    """To "read" what its own queue's messages refer to, or to "write" what it sends beside messages to a queue."""
    bucket = take(scope, environment, "foundation", "payloads", "arn")
    objects = f"{bucket}/{queue_prefix(queue)}*"
    action = "s3:GetObject" if verb == "read" else "s3:PutObject"
    role.add_to_policy(iam.PolicyStatement(actions=[action], resources=[objects]))
    accept(role, f"AwsSolutions-IAM5[Resource::{shown(role, objects)}]", "One object for each payload of the queue.")
    if verb == "read":
        role.add_to_policy(_listing(bucket, queue))


def _listing(bucket: str, queue: str) -> iam.PolicyStatement:
    """Without it S3 answers 403 for an object that is gone, as for a right that is missing, and the two are not told
    apart: https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html (Permissions). For that question AWS takes
    the key for `s3:prefix`, so the right can be this narrow; not said by AWS, seen by others:
    https://github.com/ceph/ceph/pull/68577
    """
    return iam.PolicyStatement(
        actions=["s3:ListBucket"],
        resources=[bucket],
        conditions={"StringLike": {"s3:prefix": f"{queue_prefix(queue)}*"}},
    )
