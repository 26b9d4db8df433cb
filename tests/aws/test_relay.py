"""The relay's Lambda on the embedded AWS: a stream's event, and the sweep."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loomjobs.aws import clients
from loomjobs.aws.connect import utc_now
from loomjobs.aws.expressions import typed_item
from loomjobs.aws.outbox import DynamoOutbox, read_row
from loomjobs.aws.relay import make_relay_handler
from loomjobs.core import names
from loomjobs.core.errors import ConfigurationError, StoreUnavailable
from loomjobs.core.outbox import BadRow, Row, to_item
from tests.aws.conftest import Aws, Context


def row(id: str, queue: str = "mail", *, age: int = 300, **changes: Any) -> Row:
    at = int(utc_now().timestamp() * 1000) - age * 1000
    return Row(**{"id": id, "queue": queue, "body": id, "group": None, "dedup": None, "delay": 0, "at": at, **changes})


class World:
    """The table, the queues, and the relay's handler."""

    def __init__(self, aws: Aws) -> None:
        self.aws = aws
        aws.dynamodb.create_table(
            TableName="outbox",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        urls = {names.queue_url_key(name): aws.urls[name] for name in ("mail", "ledger")}
        self.environment = {names.OUTBOX: "outbox", names.ENV: "dev"} | urls
        self.handle = make_relay_handler(self.environment)

    def put(self, *rows: Row) -> None:
        for each in rows:
            self.aws.dynamodb.put_item(TableName="outbox", Item=typed_item(to_item(each)))

    def stream(self, *rows: Row) -> Any:
        """Rows are put, and arrive as Lambda hands them over."""
        self.put(*rows)
        return self.handle({"Records": [record(place, each) for place, each in enumerate(rows)]}, Context())

    def sweep(self, seconds: float = 60) -> Any:
        return self.handle(names.SWEEP, Context(seconds))

    def left(self) -> set[str]:
        return {item["id"]["S"] for item in self.aws.dynamodb.scan(TableName="outbox")["Items"]}

    def sent(self, queue: str = "mail") -> list[str]:
        found: list[str] = []
        while bodies := [each["body"] for each in self.aws.receive(queue)["Records"]]:
            found += bodies
        return sorted(found)


def record(place: int, row: Row, event: str = "INSERT") -> dict[str, Any]:
    image = {"NewImage": typed_item(to_item(row))} if event != "REMOVE" else {}
    return {
        "eventName": event,
        "eventSource": "aws:dynamodb",
        "dynamodb": {"Keys": {"id": {"S": row.id}}, "SequenceNumber": str(100 + place), **image},
    }


@pytest.fixture
def world(aws: Aws) -> World:
    return World(aws)


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def metrics(lines: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [line for line in lines if "_aws" in line]
    assert found["environment"] == "dev"
    named = [metric["Name"] for metric in found["_aws"]["CloudWatchMetrics"][0]["Metrics"]]
    assert found["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["environment", "service"]]
    return {name: found[name][0] if isinstance(found[name], list) else found[name] for name in named}


def test_new_rows_reach_their_queues_and_are_deleted(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row(f"m{place}") for place in range(12)]
    ledger = row("l", "ledger", group="g", dedup="d")
    assert world.stream(*rows, ledger) == {"batchItemFailures": []}
    assert world.sent() == sorted(each.id for each in rows)
    (record,) = world.aws.receive("ledger")["Records"]
    assert record["attributes"]["MessageGroupId"] == "g"
    assert world.left() == set()
    lines = printed(capsys)
    assert metrics(lines) == {"OutboxSent": 13}
    relayed = [line for line in lines if line.get("message") == "relayed"]
    assert len(relayed) == 13
    assert relayed[0]["age_ms"] >= 300_000


def test_a_committed_message_has_its_delay(world: World) -> None:
    world.stream(row("later", delay=600), row("now", delay=100))
    assert world.sent() == ["now"]  # its delay ended before it was sent


def test_other_records_of_the_stream_are_passed_over(world: World) -> None:
    gone = row("gone")
    event = {"Records": [record(0, gone, "REMOVE"), record(1, gone, "MODIFY")]}
    assert world.handle(event, Context()) == {"batchItemFailures": []}
    assert world.sent() == []


def test_the_first_row_that_has_to_wait_is_where_the_stream_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stock = clients.sqs().send_message_batch

    def failing(**arguments: Any) -> Any:
        kept = [each for each in arguments["Entries"] if each["MessageBody"] not in ("b", "d")]
        answer = stock(**{**arguments, "Entries": kept})
        failed = [each for each in arguments["Entries"] if each not in kept]
        answer["Failed"] = [{"Id": each["Id"], "SenderFault": False, "Code": "InternalError"} for each in failed]
        return answer

    with monkeypatch.context() as spoilt:
        spoilt.setattr(clients.sqs(), "send_message_batch", failing)
        answer = world.stream(row("a"), row("b"), row("c"), row("d"))
    assert answer == {"batchItemFailures": [{"itemIdentifier": "101"}]}
    assert world.left() == {"b", "d"}
    assert [line["ids"] for line in printed(capsys) if line.get("message") == "relay postponed"] == [["b", "d"]]
    # Lambda goes on at 101, and repeats c, which the worker suppresses
    answer = world.handle({"Records": [record(1, row("b")), record(2, row("c")), record(3, row("d"))]}, Context())
    assert answer == {"batchItemFailures": []}
    assert world.sent() == ["a", "b", "c", "c", "d"]
    assert world.left() == set()


def test_a_row_that_cannot_be_sent_does_not_hold_up_the_stream(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.stream(row("x", "removed"), row("a")) == {"batchItemFailures": []}
    assert (world.sent(), world.left()) == (["a"], {"x"})
    lines = printed(capsys)
    assert metrics(lines) == {"OutboxSent": 1, "OutboxRefused": 1}
    (error,) = [line for line in lines if line.get("level") == "ERROR"]
    assert (error["id"], error["to_queue"]) == ("x", "removed")
    assert "the relay was not given queue 'removed'" in error["reason"]


def test_an_item_that_is_no_row_does_not_hold_up_the_stream(world: World) -> None:
    foreign = {"eventName": "INSERT", "dynamodb": {"NewImage": {"id": {"S": "f"}}, "SequenceNumber": "1"}}
    assert world.handle({"Records": [foreign, record(2, row("a"))]}, Context()) == {"batchItemFailures": []}
    assert world.sent() == ["a"]


def test_the_sweep_sends_what_was_left_behind_and_publishes_the_lag(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.put(row("old"), row("older", age=400), row("new", age=30))
    assert world.sweep() == {"sent": 2}
    assert (world.sent(), world.left()) == (["old", "older"], {"new"})
    found = metrics(printed(capsys))
    assert found["OutboxSent"] == 2
    assert 400_000 <= found[names.OUTBOX_LAG] < 460_000


def test_an_empty_outbox_has_a_lag_of_nought(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.sweep() == {"sent": 0}
    assert metrics(printed(capsys)) == {names.OUTBOX_LAG: 0}


def test_the_sweep_reads_every_page(world: World) -> None:
    world.put(*[row(f"m{place}", body=f"{place:03}" + "x" * 200_000) for place in range(12)])
    assert world.sweep() == {"sent": 12}
    assert world.left() == set()


def test_a_sweep_near_the_end_of_its_time_leaves_the_rest_to_the_next(world: World) -> None:
    world.put(*[row(f"m{place}") for place in range(103)])
    assert world.sweep(seconds=5) == {"sent": 100}
    assert len(world.left()) == 3


def test_a_table_that_cannot_be_read_fails_the_sweep_so_that_its_alarm_fires(world: World) -> None:
    world.aws.dynamodb.delete_table(TableName="outbox")
    with pytest.raises(StoreUnavailable):
        world.sweep()


def test_a_relay_without_its_table_does_not_start() -> None:
    with pytest.raises(ConfigurationError, match=names.OUTBOX):
        make_relay_handler({})


def test_rows_that_dynamodb_does_not_delete_are_reported_and_change_no_outcome(aws: Aws) -> None:
    said: list[str] = []
    waits: list[float] = []

    class Busy:
        calls = 0

        def batch_write_item(self, RequestItems: Any) -> Any:  # noqa: N803 boto3's
            self.calls += 1
            return {"UnprocessedItems": {"outbox": RequestItems["outbox"][-1:]}}

    busy: Any = Busy()
    DynamoOutbox("outbox", client=busy, trouble=said.append, pause=waits.append).delete([row("a"), row("b")])
    assert (busy.calls, len(waits)) == (3, 2)
    assert said == ["1 sent rows of the outbox were not deleted and will be sent again: throttled"]
    DynamoOutbox("nowhere", client=aws.dynamodb, trouble=said.append).delete([row("a")])
    assert "ResourceNotFound" in said[1]


def test_more_rows_than_a_call_deletes_are_deleted(world: World) -> None:
    rows = [row(f"m{place}") for place in range(30)]
    world.put(*rows)
    DynamoOutbox("outbox", client=world.aws.dynamodb, trouble=print).delete(rows)
    assert world.left() == set()


@pytest.mark.parametrize("stored", [{}, {"id": {"S": "x"}}, {"id": {"Q": "x"}}, {"id": 5}])
def test_what_is_no_row_is_read_as_such(stored: Any) -> None:
    assert isinstance(read_row(stored), BadRow)
