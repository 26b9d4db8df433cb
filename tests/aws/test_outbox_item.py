"""A call in the caller's own DynamoDB transaction: enqueued exactly when that commits, wherever somebody dies."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import redirect_stdout
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from loomjobs import call, outbox_item
from loomjobs.aws.outbox import DynamoOutbox
from loomjobs.aws.queues import SqsSender
from loomjobs.core import names
from loomjobs.core.errors import ConfigurationError, InvalidOption
from loomjobs.local.transactor import RelayLog
from loomjobs.runtime.relay import Relay
from tests.aws.conftest import Aws, Context, failed
from tests.core.catalogue_fixture import Statement, declare

WRITE = declare("billing.write")
ORDER = {"Put": {"TableName": "orders", "Item": {"id": {"S": "o1"}}, "ConditionExpression": "attribute_not_exists(id)"}}
LATER = datetime(2100, 1, 1, tzinfo=UTC)


def one(customer: str = "c1") -> Statement:
    return Statement(customer, date(2026, 1, 1))


@pytest.fixture(autouse=True)
def here(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(names.OUTBOX, "outbox")
    for table in ("orders", "outbox"):
        aws.dynamodb.create_table(
            TableName=table,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )


def relay(aws: Aws) -> Relay:
    return Relay(
        outbox=DynamoOutbox("outbox", client=aws.dynamodb, trouble=lambda text: None),
        outlet=SqsSender(aws.sqs, aws.urls.__getitem__),
        journal=RelayLog(),
        clock=lambda: LATER,
    )


def sweep(aws: Aws) -> int:
    return relay(aws).sweep(enough_time=lambda: True)


def rows(aws: Aws) -> int:
    return int(aws.dynamodb.scan(TableName="outbox")["Count"])


def work(aws: Aws) -> list[Mapping[str, Any]]:
    event = aws.receive("billing")
    with redirect_stdout(StringIO()):
        assert failed(aws.handler(WRITE)(event, Context())) == []
    return [json.loads(record["body"]) for record in event["Records"]]


def test_with_the_order_goes_the_job(aws: Aws) -> None:
    item = outbox_item(WRITE, one())
    aws.dynamodb.transact_write_items(TransactItems=[ORDER, item])
    assert sweep(aws) == 1
    (body,) = work(aws)
    assert body["id"] == item["Put"]["Item"]["id"]["S"]
    assert rows(aws) == 0
    record = aws.item(f"billing.write#{body['key']}")
    assert record is not None
    assert record["status"] == {"S": "COMPLETED"}


def test_without_the_order_there_is_no_job(aws: Aws) -> None:
    aws.dynamodb.transact_write_items(TransactItems=[ORDER])
    with pytest.raises(ClientError, match="TransactionCanceled"):
        aws.dynamodb.transact_write_items(TransactItems=[ORDER, outbox_item(WRITE, one())])
    assert (rows(aws), sweep(aws), work(aws)) == (0, 0, [])


def test_a_producer_that_dies_before_its_transaction_has_promised_nothing_and_after_it_everything(aws: Aws) -> None:
    outbox_item(WRITE, one("died before"))
    aws.dynamodb.transact_write_items(TransactItems=[ORDER, outbox_item(WRITE, one("died after"))])
    sweep(aws)
    assert [body["payload"]["customer_id"] for body in work(aws)] == ["died after"]


def test_a_relay_that_dies_between_the_send_and_the_delete_sends_twice_and_the_effect_is_one(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.dynamodb.transact_write_items(TransactItems=[ORDER, outbox_item(WRITE, one())])
    with monkeypatch.context() as dying:
        dying.setattr(DynamoOutbox, "delete", lambda self, rows: None)
        sweep(aws)
    assert rows(aws) == 1
    sweep(aws)
    first, second = (*work(aws), *work(aws))
    assert first["id"] == second["id"]
    record = aws.item(f"billing.write#{first['key']}")
    assert record is not None
    assert record["epoch"] == {"N": "1"}  # it was claimed once


def test_a_request_that_is_repeated_with_its_token_counts_once(aws: Aws) -> None:
    items = [ORDER, outbox_item(call(WRITE, one()))]
    for _ in range(2):
        aws.dynamodb.transact_write_items(TransactItems=items, ClientRequestToken="t1")
    assert rows(aws) == 1


@pytest.mark.parametrize("options", [{"unique_for": timedelta(hours=1)}, {"track": True}])
def test_what_looks_at_records_is_refused(options: Any) -> None:
    with pytest.raises(InvalidOption, match="which an outbox does not"):
        outbox_item(WRITE, one(), **options)


def test_the_table_is_found_by_the_environment(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(names.OUTBOX)
    with pytest.raises(ConfigurationError, match="which environment"):
        outbox_item(WRITE, one())
    monkeypatch.setenv(names.ENV, "prod")
    with pytest.raises(ConfigurationError, match="/loomjobs/prod/outbox/table/name cannot be read"):
        outbox_item(WRITE, one())
    boto3.client("ssm").put_parameter(Name="/loomjobs/prod/outbox/table/name", Value="outbox", Type="String")
    assert outbox_item(WRITE, one())["Put"]["TableName"] == "outbox"


def test_the_page_does_what_it_says(aws: Aws) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "enqueue-with-dynamodb.md").read_text()
    known: dict[str, Any] = {"outbox_item": outbox_item, "write": WRITE, "Statement": Statement, "date": date}
    known |= {"timedelta": timedelta, "dynamodb": aws.dynamodb}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, known)
    assert rows(aws) == 1
    sweep(aws)
    assert [body["payload"]["customer_id"] for body in work(aws)] == ["c1"]
