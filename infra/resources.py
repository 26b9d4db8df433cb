"""The team's own AWS resources, by the names that jobs use them by. This file imports CDK and never jobs."""

from __future__ import annotations

from aws_cdk import RemovalPolicy, SecretValue, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.nag import accept
from infra.provide import Actions, Provided, provides
from infra.removal import removal
from loomjobs.core.environment import Environment


@provides("billing")
def billing(scope: Construct, environment: Environment) -> Provided:
    """Purchases and statements; the layout is in jobs/billing_items.py."""
    table = dynamodb.Table(
        scope,
        "Billing",
        partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
        sort_key=dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING),
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=environment.retain
        ),
        deletion_protection=environment.retain,
        removal_policy=removal(environment),
    )
    if not environment.retain:
        accept(
            table,
            "AwsSolutions-DDB3",
            "Nothing in this environment outlives its stack, so there is nothing to recover.",
        )
    return Provided(
        table.table_name,
        read=Actions("dynamodb:GetItem", "dynamodb:Query", on=table.table_arn),
        write=Actions("dynamodb:PutItem", on=table.table_arn),
    )


@provides("statements")
def statements(scope: Construct, environment: Environment) -> Provided:
    """Rendered statements, at statements/<month>/<customer>.pdf."""
    bucket = s3.Bucket(
        scope,
        "Statements",
        enforce_ssl=True,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        encryption=s3.BucketEncryption.S3_MANAGED,
        versioned=environment.retain,
        removal_policy=removal(environment),
    )
    accept(
        bucket,
        "AwsSolutions-S1",
        "Access is by one role, which CloudTrail shows; access logs would double the objects.",
    )
    return Provided(
        bucket.bucket_name,
        write=Actions(
            "s3:PutObject",
            on=bucket.arn_for_objects("statements/*"),
            wildcard="One object for each customer and month, all under this prefix.",
        ),
    )


@provides("mail")
def mail(scope: Construct, environment: Environment) -> Provided:
    """The sender of statements: an SES identity that the account has verified by other means."""
    sender = environment.settings["mail-sender"]
    stack = Stack.of(scope)
    identity = stack.format_arn(service="ses", resource="identity", resource_name=sender)
    only_simulator = {"ForAllValues:StringLike": {"ses:Recipients": ["*@simulator.amazonses.com"]}}
    return Provided(sender, send=Actions("ses:SendEmail", on=identity, conditions=only_simulator))


@provides("accounting-token")
def accounting_token(scope: Construct, environment: Environment) -> Provided:
    """Made empty of meaning: put the real token in with `aws secretsmanager put-secret-value`."""
    secret = secretsmanager.Secret(
        scope,
        "AccountingToken",
        secret_string_value=SecretValue.unsafe_plain_text("demo-token") if environment.local else None,
        removal_policy=removal(environment) if environment.retain else RemovalPolicy.DESTROY,
    )
    accept(secret, "AwsSolutions-SMG4", "The token is the accounting system's; it is rotated there and put here.")
    return Provided(secret.secret_arn)
