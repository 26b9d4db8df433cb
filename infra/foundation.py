"""What every worker stands on: the execution records, the bucket for payloads, and the topic of alarms."""

from __future__ import annotations

from math import ceil
from typing import Any

from aws_cdk import Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.carry import publish
from infra.nag import accept
from infra.removal import removal
from loomjobs.core.environment import Environment
from loomjobs.core.offload import PREFIX
from loomjobs.core.plan import Plan


class Foundation(Stack):
    def __init__(self, scope: Construct, id: str, *, environment: Environment, plan: Plan, **options: Any) -> None:
        super().__init__(scope, id, **options)
        self.executions = _executions(self, environment)
        self.payloads = _payloads(self, environment, plan)
        self.alarms = _topic(self, environment)
        self.key = _key(self, environment) if plan.has_key else None
        if self.key is not None:
            publish(self, environment, "foundation", "key", "arn", value=self.key.key_arn)
        publish(self, environment, "foundation", "executions", "name", value=self.executions.table_name)
        publish(self, environment, "foundation", "executions", "arn", value=self.executions.table_arn)
        publish(self, environment, "foundation", "payloads", "name", value=self.payloads.bucket_name)
        publish(self, environment, "foundation", "payloads", "arn", value=self.payloads.bucket_arn)
        publish(self, environment, "foundation", "alarms", "arn", value=self.alarms.topic_arn)


def _executions(scope: Construct, environment: Environment) -> dynamodb.Table:
    table = dynamodb.Table(
        scope,
        "Executions",
        partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
        time_to_live_attribute="expiration",
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        deletion_protection=environment.retain,
        removal_policy=removal(environment),
    )
    accept(table, "AwsSolutions-DDB3", "Records live for 30 days and follow the queues; restored ones would be stale.")
    return table


def _payloads(scope: Construct, environment: Environment, plan: Plan) -> s3.Bucket:
    """Objects outlive every message that could still point at them: nothing else deletes them. Not versioned, since an
    object is replaced by its equal only, which makes it as new."""
    bucket = s3.Bucket(
        scope,
        "Payloads",
        enforce_ssl=True,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        encryption=s3.BucketEncryption.S3_MANAGED,
        lifecycle_rules=[
            s3.LifecycleRule(
                prefix=PREFIX,
                expiration=Duration.days(ceil(plan.payload_life / 86_400)),
                abort_incomplete_multipart_upload_after=Duration.days(1),
            )
        ],
        removal_policy=removal(environment),
    )
    accept(bucket, "AwsSolutions-S1", "Short-lived payloads, read by workers only; CloudTrail shows who else tried.")
    return bucket


def _key(scope: Construct, environment: Environment) -> kms.Key:
    """Of encrypted payload fields. Its policy leaves rights to IAM; each worker has them for its own jobs only."""
    return kms.Key(
        scope,
        "Key",
        description=f"Encrypted payload fields of {environment.app}-{environment.name}",
        enable_key_rotation=True,
        removal_policy=removal(environment),
    )


def _topic(scope: Construct, environment: Environment) -> sns.Topic:
    """Not encrypted with a KMS key: alarms say nothing secret, and a key that CloudWatch may not use loses them."""
    topic = sns.Topic(scope, "Alarms", enforce_ssl=True)
    topic.add_to_resource_policy(
        iam.PolicyStatement(
            sid="AlarmsOfThisAccount",
            principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
            actions=["sns:Publish"],
            resources=[topic.topic_arn],
            conditions={"StringEquals": {"aws:SourceAccount": Stack.of(scope).account}},
        )
    )
    if environment.alarm_email:
        topic.add_subscription(subscriptions.EmailSubscription(environment.alarm_email))
    return topic
