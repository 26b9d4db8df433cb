"""Many writes in one call: how they are rendered, and what each answer means."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import boto3
import pytest

from loomjobs import JobContext
from loomjobs.aws.partiql import statement
from loomjobs.aws.store import DynamoStore
from loomjobs.core.claim import Claim, claim_write, insert_write
from loomjobs.core.ending import complete_write
from loomjobs.core.errors import StoreUnavailable
from loomjobs.core.record import Record
from loomjobs.core.write import Absent, Is, Write, Written
from tests.aws.conftest import Aws, Context, body, failed
from tests.core.catalogue_fixture import BILLING, Statement, declare

NOW = 1_800_000_000_000
CLAIM = Claim(
    id="a.b#1", owner="one", now=NOW, lease=NOW + 60_000, payload_hash="p", message="m", sent=NOW, expires=NOW // 1000,
    version="v",
)  # fmt: skip


def store(aws: Aws) -> DynamoStore:
    return DynamoStore("executions", client=aws.dynamodb)


def claims(count: int) -> list[Write]:
    return [insert_write(replace(CLAIM, id=f"a.b#{n}")) for n in range(count)]


def test_a_claim_is_an_insert_and_an_ending_an_update_behind_its_fence() -> None:
    inserted = statement(insert_write(CLAIM), "t")
    assert inserted is not None
    assert inserted["Statement"].startswith("INSERT INTO \"t\" VALUE {'id': ?, 'status': ?")
    ended = statement(complete_write(Record.of({"id": "a", "owner": "o"}), now=NOW, expires=1, result=None), "t")
    assert ended is not None
    assert ended["Statement"] == (
        'UPDATE "t" SET "status"=? SET "susp"=? SET "ended"=? SET "expiration"=? '
        'WHERE "id"=? AND "owner"=? AND "status"=?'
    )
    assert ended["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"


@pytest.mark.parametrize(
    "write",
    [
        claim_write(CLAIM),
        Write(id="a", condition=Is("n", "=", 1), sets={"n": 2}, adds={"n": 1}),
        Write(id="a", condition=Absent("x"), sets={"n": 2}),
    ],
)
def test_what_partiql_cannot_say_is_left_to_update_item(write: Write) -> None:
    assert statement(write, "t") is None


def test_many_writes_are_one_call_each_with_its_own_answer(aws: Aws) -> None:
    one = store(aws)
    assert one.write(insert_write(replace(CLAIM, id="a.b#1", owner="other"))).applied
    calls = counting(one)
    answers = one.write_many(claims(3))
    assert [isinstance(answer, Written) and answer.applied for answer in answers] == [True, False, True]
    refused = answers[1]
    assert isinstance(refused, Written)
    assert refused.item is not None
    assert refused.item["owner"] == "other"
    assert calls == ["BatchExecuteStatement", "GetItem"]  # the read only where the emulator leaves the item out


def test_more_than_twenty_five_take_more_calls(aws: Aws) -> None:
    one = store(aws)
    calls = counting(one)
    assert all(isinstance(answer, Written) and answer.applied for answer in one.write_many(claims(60)))
    assert calls == ["BatchExecuteStatement"] * 3


def test_one_alone_is_an_update_item_that_answers_with_the_item(aws: Aws) -> None:
    one = store(aws)
    calls = counting(one)
    one.write_many(claims(1))
    assert calls == ["UpdateItem"]


def counting(one: DynamoStore) -> list[str]:
    calls: list[str] = []
    one.client.meta.events.register("before-call.dynamodb", lambda model, **_: calls.append(model.name))
    return calls


class Answering:
    """A client whose batch call answers as told: codes of each statement, call by call."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []

    def batch_execute_statement(self, *, Statements: list[Any]) -> Any:  # noqa: N803 boto3's name
        self.asked.append(len(Statements))
        codes = self.answers.pop(0)
        return {"Responses": [{"Error": {"Code": code, "Message": "m"}} if code else {} for code in codes]}


def told(*answers: list[str]) -> tuple[DynamoStore, Answering]:
    client: Any = Answering(*answers)
    return DynamoStore("executions", client=client), client


def test_a_throttled_statement_is_asked_again_alone() -> None:
    one, client = told(["", "ThrottlingError", ""], [""])
    assert one.write_many(claims(3)) == [Written(True, None)] * 3
    assert client.asked == [3, 1]


def test_a_statement_that_stays_throttled_is_unavailable_and_the_others_stand() -> None:
    throttled = ["ProvisionedThroughputExceeded"]
    one, _ = told(["", *throttled], throttled, throttled)
    first, second = one.write_many(claims(2))
    assert first == Written(True, None)
    assert isinstance(second, StoreUnavailable)


def test_an_unknown_error_of_a_statement_is_unavailable_at_once() -> None:
    one, client = told(["AccessDenied", ""])
    first, second = one.write_many(claims(2))
    assert isinstance(first, StoreUnavailable)
    assert second == Written(True, None)
    assert client.asked == [2]


def test_a_lost_reply_of_a_batch_leaves_every_outcome_unknown(aws: Aws) -> None:
    one = DynamoStore("executions", client=boto3.client("dynamodb", endpoint_url="http://127.0.0.1:1"))
    assert all(isinstance(answer, StoreUnavailable) for answer in one.write_many(claims(2)))


def test_a_batch_of_ten_side_by_side_takes_two_calls_to_the_store(aws: Aws) -> None:
    from loomjobs.aws import clients

    def work(statement: Statement, ctx: JobContext) -> None:
        """Nothing to do."""

    side = replace(BILLING, parallel=10)
    handler = aws.handler(declare("billing.side", side, function=work))
    for number in range(10):
        aws.sqs.send_message(QueueUrl=aws.urls["billing"], MessageBody=body("billing.side", f"c{number}"))
    received = aws.receive("billing")
    calls: list[str] = []
    clients.dynamodb().meta.events.register("before-call.dynamodb", lambda model, **_: calls.append(model.name))
    assert failed(handler(received, Context())) == []
    assert calls == ["BatchExecuteStatement"] * 2
    for record in received["Records"]:
        customer = json.loads(record["body"])["payload"]["customer_id"]
        item = aws.item(f"billing.side#{customer}/2026-01-01")
        assert item is not None
        assert item["status"]["S"] == "COMPLETED"
