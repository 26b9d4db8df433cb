"""Commits on DynamoDB: what is written together, and what each refusal means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from loomjobs.aws.store import DynamoStore
from loomjobs.aws.transaction import TRIES, DynamoTransactor
from loomjobs.core.address import address
from loomjobs.core.call import call
from loomjobs.core.claim import Claim, claim_write
from loomjobs.core.commit import Commit, Committed, FenceLost, ItemRefused, make_commit
from loomjobs.core.ending import complete_write
from loomjobs.core.errors import StoreError, StoreUnavailable
from loomjobs.core.outgoing import Origin
from loomjobs.core.record import Record
from tests.core.catalogue_fixture import LEDGER, Statement, declare

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
POST = declare("ledger.post", LEDGER)


class Tables:
    """Three tables, a claimed record, and a client whose calls a test can spoil."""

    def __init__(self) -> None:
        self.client = boto3.client("dynamodb")
        for name in ("executions", "outbox", "statements"):
            self.client.create_table(
                TableName=name,
                KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        self.store = DynamoStore("executions", client=self.client)
        self.record = self.claim("one")
        self.pauses: list[float] = []

    def transactor(self, client: Any = None, *, outbox: str | None = "outbox") -> DynamoTransactor:
        return DynamoTransactor(
            "executions", outbox, client=client or self.client, pause=self.pauses.append, roll=lambda: 1.0
        )

    def claim(self, owner: str) -> Record:
        claim = Claim(
            id="a.b#1",
            owner=owner,
            now=NOW_MS,
            lease=NOW_MS + 60_000,
            payload_hash="p",
            message="m",
            sent=NOW_MS - 1,
            expires=NOW_MS // 1000 + 60,
            version="v",
        )
        item = self.store.write(claim_write(claim)).item
        assert item is not None
        return Record.of(item)

    def commit(self, *items: Any, calls: int = 1, result: str | None = None) -> Commit:
        messages = [
            address(call(POST, Statement(f"c{place}", date(2026, 1, 1))), id=f"job{place}", now=NOW, origin=Origin())
            for place in range(calls)
        ]
        return make_commit(self.record, items=items, messages=messages, result=result, now=NOW, expires=99)

    def status(self) -> str:
        item = self.store.read("a.b#1")
        assert item is not None
        return str(item["status"])

    def ids(self, table: str) -> set[str]:
        return {item["id"]["S"] for item in self.client.scan(TableName=table)["Items"]}


@pytest.fixture
def tables(account: str) -> Iterator[Tables]:
    made = Tables()
    yield made
    made.client.close()


def put(id: str = "s1", **more: Any) -> dict[str, Any]:
    return {"Put": {"TableName": "statements", "Item": {"id": {"S": id}}, **more}}


def new(id: str = "s1") -> dict[str, Any]:
    return put(id, ConditionExpression="attribute_not_exists(id)")


class Spoilt:
    """A client: `spoil` is asked before each transaction, and raises or returns; `after` likewise when it is done."""

    def __init__(self, client: Any, spoil: Callable[[int], None], *, after: bool = False) -> None:
        self._client = client
        self._spoil = spoil
        self._after = after
        self.calls = 0

    def transact_write_items(self, **arguments: Any) -> Any:
        self.calls += 1
        if self._after:
            self._client.transact_write_items(**arguments)
        self._spoil(self.calls)
        return None if self._after else self._client.transact_write_items(**arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def error(code: str, *reasons: str, status: int = 400) -> ClientError:
    response: Any = {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    if reasons:
        response["CancellationReasons"] = [{"Code": reason} for reason in reasons]
    return ClientError(response, "TransactWriteItems")


def always(raised: Exception) -> Callable[[int], None]:
    def spoil(call: int) -> None:
        raise raised

    return spoil


def once(raised: Exception) -> Callable[[int], None]:
    def spoil(call: int) -> None:
        if call == 1:
            raise raised

    return spoil


def test_items_rows_and_completion_are_written_together(tables: Tables) -> None:
    assert tables.transactor().commit(tables.commit(put(), put("s2"), calls=2, result='"r"')) == Committed()
    assert tables.ids("statements") == {"s1", "s2"}
    item = tables.store.read("a.b#1")
    assert item is not None
    assert (item["status"], item["data"], item["expiration"], item["owner"]) == ("COMPLETED", '"r"', 99, "one")
    rows = {row["id"]["S"]: row for row in tables.client.scan(TableName="outbox")["Items"]}
    assert set(rows) == {"job0", "job1"}
    assert set(rows["job0"]) == {"id", "queue", "body", "group", "dedup", "at"}
    assert rows["job0"]["queue"] == {"S": "ledger"}
    assert rows["job0"]["at"] == {"N": str(NOW_MS)}


def test_every_kind_of_action_is_taken(tables: Tables) -> None:
    for id in ("a", "b", "c"):
        tables.client.put_item(TableName="statements", Item={"id": {"S": id}})
    key = {"TableName": "statements"}
    update = {"UpdateExpression": "SET #n = :n", "ExpressionAttributeNames": {"#n": "n"}}
    made = tables.commit(
        {"Update": {**key, "Key": {"id": {"S": "a"}}, **update, "ExpressionAttributeValues": {":n": {"N": "1"}}}},
        {"Delete": {**key, "Key": {"id": {"S": "b"}}}},
        {"ConditionCheck": {**key, "Key": {"id": {"S": "c"}}, "ConditionExpression": "attribute_exists(id)"}},
    )
    assert tables.transactor().commit(made) == Committed()
    assert tables.ids("statements") == {"a", "c"}


def test_a_refused_item_is_named_and_nothing_is_written(tables: Tables) -> None:
    tables.client.put_item(TableName="statements", Item={"id": {"S": "s1"}, "by": {"S": "two"}})
    asking = put(ConditionExpression="attribute_not_exists(id)", ReturnValuesOnConditionCheckFailure="ALL_OLD")
    outcome = tables.transactor().commit(tables.commit(put("s0"), asking))
    assert isinstance(outcome, ItemRefused)
    assert (outcome.place, outcome.item) == (1, {"id": {"S": "s1"}, "by": {"S": "two"}})
    assert outcome.reason.startswith("ConditionalCheckFailed")
    assert (tables.ids("statements"), tables.ids("outbox"), tables.status()) == ({"s1"}, set(), "INPROGRESS")


def test_after_a_refusal_another_commit_may_follow_under_the_same_claim(tables: Tables) -> None:
    tables.client.put_item(TableName="statements", Item={"id": {"S": "s1"}})
    assert isinstance(tables.transactor().commit(tables.commit(new())), ItemRefused)
    assert tables.transactor().commit(tables.commit(new("s2"))) == Committed()


@pytest.mark.parametrize(
    "items",
    [
        pytest.param([put(), put()], id="two actions on one item"),
        pytest.param([{"Put": {**new()["Put"], "TableName": "nowhere"}}], id="a table that is not there"),
        pytest.param([put(ConditionExpression="attribute_exists(id) AND")], id="a broken expression"),
    ],
)
def test_a_request_that_dynamodb_does_not_take_is_the_authors_error(tables: Tables, items: list[Any]) -> None:
    outcome = tables.transactor().commit(tables.commit(*items))
    assert isinstance(outcome, ItemRefused)
    assert outcome.place in (None, 0)
    assert (tables.status(), tables.ids("outbox")) == ("INPROGRESS", set())


def test_a_lost_claim_writes_nothing(tables: Tables) -> None:
    made = tables.commit(put())
    tables.client.update_item(
        TableName="executions",
        Key={"id": {"S": "a.b#1"}},
        UpdateExpression="SET #o = :o",
        ExpressionAttributeNames={"#o": "owner"},
        ExpressionAttributeValues={":o": {"S": "two"}},
    )
    assert tables.transactor().commit(made) == FenceLost()
    assert (tables.ids("statements"), tables.ids("outbox")) == (set(), set())


def test_a_record_that_is_gone_is_a_lost_claim(tables: Tables) -> None:
    made = tables.commit(put())
    tables.client.delete_item(TableName="executions", Key={"id": {"S": "a.b#1"}})
    assert tables.transactor().commit(made) == FenceLost()
    assert tables.store.read("a.b#1") is None


def test_a_request_that_botocore_repeats_counts_once(tables: Tables) -> None:
    made = tables.commit(new())
    assert tables.transactor().commit(made) == Committed()
    assert tables.transactor().commit(made) == Committed()
    assert tables.ids("outbox") == {"job0"}


def test_a_repeat_after_the_token_is_forgotten_is_recognised_by_the_record(tables: Tables) -> None:
    made = tables.commit(new())
    assert tables.transactor().commit(made) == Committed()
    later = Commit(record=made.record, items=made.items, rows=made.rows, complete=made.complete, token="later")
    assert tables.transactor().commit(later) == Committed()  # though the author's own condition fails as well


def test_an_answer_that_was_lost_is_looked_for_in_the_record(tables: Tables) -> None:
    lost = Spoilt(tables.client, always(ReadTimeoutError(endpoint_url="x")), after=True)
    assert tables.transactor(lost).commit(tables.commit(put())) == Committed()
    assert tables.status() == "COMPLETED"


def test_a_call_that_did_not_arrive_is_an_unavailable_store(tables: Tables) -> None:
    broken = Spoilt(tables.client, always(ReadTimeoutError(endpoint_url="x")))
    with pytest.raises(StoreUnavailable):
        tables.transactor(broken).commit(tables.commit(put()))
    assert tables.status() == "INPROGRESS"


@pytest.mark.parametrize(
    "raised",
    [
        error("TransactionInProgressException"),
        error("ThrottlingException"),
        error("ProvisionedThroughputExceededException"),
        error("InternalServerError", status=500),
        error("TransactionCanceledException", "None", "None", "TransactionConflict"),
        error("TransactionCanceledException", "TransactionConflict", "None", "None"),
        error("TransactionCanceledException", "None", "ThrottlingError", "None"),
        error("TransactionCanceledException", "ConditionalCheckFailed", "None", "TransactionConflict"),
    ],
    ids=str,
)
def test_conflicts_and_throttling_are_tried_again_and_given_up_in_the_end(tables: Tables, raised: ClientError) -> None:
    assert tables.transactor(Spoilt(tables.client, once(raised))).commit(tables.commit(put())) == Committed()
    assert tables.pauses == [0.1]
    spoilt = Spoilt(tables.client, always(raised))
    with pytest.raises(StoreUnavailable):
        tables.transactor(spoilt).commit(tables.commit(put()))
    assert spoilt.calls == TRIES
    assert tables.pauses[1:] == [0.1, 0.2, 0.4, 0.8]


def test_a_missing_right_is_the_jobs_failure_and_no_outage(tables: Tables) -> None:
    denied = Spoilt(tables.client, always(error("AccessDeniedException")))
    with pytest.raises(ClientError, match="AccessDenied"):
        tables.transactor(denied).commit(tables.commit(put()))
    assert denied.calls == 1


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (error("IdempotentParameterMismatchException"), StoreError),
        (error("TransactionCanceledException", "None", "ConditionalCheckFailed", "None"), StoreError),
        (error("TransactionCanceledException", "None"), StoreUnavailable),
        (error("TransactionCanceledException"), StoreUnavailable),
        (error("UnrecognizedClientException"), StoreUnavailable),
    ],
)
def test_what_is_neither_the_authors_nor_passing_is_raised_at_once(
    tables: Tables, raised: ClientError, kind: type[StoreError]
) -> None:
    spoilt = Spoilt(tables.client, always(raised))
    with pytest.raises(StoreError) as caught:
        tables.transactor(spoilt).commit(tables.commit(put()))
    assert type(caught.value) is kind
    assert spoilt.calls == 1


def test_another_content_under_the_same_token_is_an_error(tables: Tables) -> None:
    tables.client.put_item(TableName="outbox", Item={"id": {"S": "unrelated"}})
    made = tables.commit(put())
    assert tables.transactor().commit(made) == Committed()
    other = tables.commit(put("other"))
    forged = Commit(record=made.record, items=other.items, rows=(), complete=made.complete, token=made.token)
    with pytest.raises(StoreError, match="token"):
        tables.transactor().commit(forged)


def test_a_worker_without_an_outbox_commits_items_only(tables: Tables) -> None:
    with pytest.raises(StoreError, match="sends="):
        tables.transactor(outbox=None).commit(tables.commit(put()))
    assert tables.transactor(outbox=None).commit(tables.commit(put(), calls=0)) == Committed()


def test_the_largest_transaction_is_taken(tables: Tables) -> None:
    made = tables.commit(*[put(f"s{place}") for place in range(49)], calls=50)
    assert tables.transactor().commit(made) == Committed()
    assert (len(tables.ids("statements")), len(tables.ids("outbox"))) == (49, 50)


def test_a_commit_over_a_record_that_completed_under_this_claim_is_done(tables: Tables) -> None:
    made = tables.commit(put())
    tables.store.write(complete_write(tables.record, now=NOW_MS, expires=99, result=None))
    assert tables.transactor().commit(made) == Committed()
