"""The billing table, the bucket and SES on moto, behind the jobs' own clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

import boto3
import pytest
from moto import mock_aws

from jobs import clients
from jobs.billing_items import purchase_item
from jobs.services import accounting_token, accounting_url, billing_table, mail, statements
from jobs.statement import Purchase, StatementId
from loomjobs.testing import Jobs

PERIOD = date(1997, 1, 1)


def bought(customer: str, *amounts: str, on: date = date(1997, 1, 5)) -> list[Purchase]:
    return [Purchase(n, customer, on, 1, Decimal(amount)) for n, amount in enumerate(amounts, 1)]


def of(customer: str) -> StatementId:
    return StatementId(customer, PERIOD)


@dataclass
class Cloud:
    dynamodb: Any
    s3: Any
    loaded: list[Purchase] = field(default_factory=list[Purchase])

    def load(self, *purchases: Purchase) -> None:
        for each in purchases:
            self.dynamodb.put_item(TableName="billing", Item=purchase_item(each))


@pytest.fixture
def cloud(jobs: Jobs) -> Iterator[Cloud]:
    with mock_aws():
        for kept in (clients.dynamodb, clients.s3, clients.ses, clients.http):
            kept.cache_clear()
        dynamodb, s3 = boto3.client("dynamodb"), boto3.client("s3")
        dynamodb.create_table(
            TableName="billing",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
            BillingMode="PAY_PER_REQUEST",
        )
        jobs.commit_through(dynamodb)
        s3.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        boto3.client("ses").verify_email_identity(EmailAddress="from@example.com")
        jobs.provide(
            {
                billing_table: "billing",
                statements: "bucket",
                mail: "from@example.com",
                accounting_url: "http://127.0.0.1:9",
                accounting_token: "token",
            }
        )
        yield Cloud(dynamodb, s3)
        for kept in (clients.dynamodb, clients.s3, clients.ses, clients.http):
            kept.cache_clear()
