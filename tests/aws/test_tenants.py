"""Tenants on the embedded AWS's SQS: the group of a standard queue, and what the worker logs of it."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, date, datetime, timedelta
from typing import Any, cast

import pytest
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from loomjobs import Permanent, Producer
from loomjobs.aws.event import delivery_of
from loomjobs.core.call import call, fifo_id
from loomjobs.runtime.slot import Slot
from tests.aws.conftest import Aws, Context, failed
from tests.core.catalogue_fixture import LEDGER, Statement, declare

WRITE = declare("billing.write")
POST = declare("ledger.post", LEDGER)


def statement(customer: str = "c1") -> Statement:
    return Statement(customer, date(2026, 1, 1))


def groups(records: Any) -> list[str | None]:
    return [record["attributes"].get("MessageGroupId") for record in records["Records"]]


def producer(aws: Aws) -> Producer:
    return Producer(queues={name: aws.urls[name] for name in ("billing", "ledger")})


def test_a_standard_queue_gets_the_tenant_as_group_and_a_fifo_queue_its_own(aws: Aws) -> None:
    made = producer(aws)
    made.enqueue(WRITE, statement(), tenant="acme")
    made.enqueue_many(WRITE, [statement("c2")], tenant="two words")
    asyncio.run(made.aenqueue(WRITE, statement("c3"), tenant="acme", delay=timedelta(0)))
    asyncio.run(made.aenqueue_many(WRITE, [statement("c4")], tenant="acme"))
    made.enqueue(POST, statement(), tenant="acme")
    assert sorted(str(group) for group in groups(aws.receive("billing"))) == sorted(
        ["acme", fifo_id("two words"), "acme", "acme"]
    )
    (ordered,) = aws.receive("ledger")["Records"]
    assert ordered["attributes"]["MessageGroupId"] == "c1"
    assert json.loads(ordered["body"])["tenant"] == "acme"


def test_a_dead_letter_keeps_the_group_and_the_tenant_is_logged_and_no_dimension(
    aws: Aws, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(statement: Statement, ctx: Any) -> None:
        if ctx.tenant == "acme":
            raise Permanent("no such account")

    made = producer(aws)
    made.enqueue_many([call(WRITE, statement(), tenant="acme"), call(WRITE, statement("c2"), tenant="b")])
    assert failed(aws.handler(declare("billing.write", function=refuse))(aws.receive("billing"), Context())) == []
    (dead,) = aws.receive("billing-dlq")["Records"]
    assert dead["attributes"]["MessageGroupId"] == "acme"
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    ended = [(line["tenant"], line["outcome"]) for line in lines if line.get("message") == "ended"]
    assert sorted(ended) == [("acme", "dead"), ("b", "succeeded")]
    assert [line for line in lines if "_aws" in line and "acme" in json.dumps(line)] == []


def test_the_event_of_a_fair_queue_is_a_standard_delivery(aws: Aws) -> None:
    """Its group must never count as an order."""
    producer(aws).enqueue(WRITE, statement(), tenant="acme")
    (record,) = aws.receive("billing")["Records"]
    delivery = delivery_of(SQSRecord(record), queue="billing", now=datetime.now(UTC))
    assert (delivery.group, delivery.kind) == ("acme", "standard")
    assert Slot(0, delivery, cast("Any", None), cast("Any", None)).group is None
