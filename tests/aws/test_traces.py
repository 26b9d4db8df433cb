"""Traces and correlation ids on the embedded AWS: SQS's own attribute, and the worker's log lines."""

from __future__ import annotations

import json
import threading
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from aws_lambda_powertools import Logger

from loomjobs import Permanent, Producer, Queue, Workload, call, correlation
from loomjobs.aws.queues import SqsDeadLetters, SqsSender
from loomjobs.core.address import address
from loomjobs.core.decision import DeadLetter
from loomjobs.core.delivery import Attribute, Delivery
from loomjobs.core.letter import make_letter
from loomjobs.core.outbox import Row, of_item, row_of, to_item
from loomjobs.core.outgoing import Origin
from loomjobs.runtime.caller import XRAY
from tests.aws.conftest import Aws, Context, body, event, failed
from tests.core.catalogue_fixture import MAIL, Statement, declare

HEADER = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
TRACE = "00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
WRITE = declare("billing.write")


def statement(customer: str = "c1") -> Statement:
    return Statement(customer, date(2026, 1, 1))


class Recording:
    """A client of SQS that keeps what it was asked to send."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def send_message_batch(self, **arguments: Any) -> Any:
        self.entries += arguments["Entries"]
        return {"Successful": [{"Id": entry["Id"]} for entry in arguments["Entries"]]}

    def send_message(self, **arguments: Any) -> Any:
        self.entries.append(arguments)
        return {}


def test_a_traced_caller_s_messages_are_taken_by_sqs(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded SQS drops the attribute of a batch's messages, so what it was is seen below."""
    monkeypatch.setenv(XRAY, HEADER)
    producer = Producer(queues={"billing": aws.urls["billing"]})
    producer.enqueue_many(WRITE, [statement("c1"), statement("c2")])
    records = aws.receive("billing")["Records"]
    assert [json.loads(record["body"])["trace"] for record in records] == [TRACE] * 2


def test_a_dead_letter_keeps_x_ray_s_header(aws: Aws) -> None:
    def refuse(statement: Statement, ctx: Any) -> None:
        raise Permanent("no")

    received = event(body())
    received["Records"][0]["attributes"]["AWSTraceHeader"] = HEADER
    assert failed(aws.handler(declare("billing.write", function=refuse))(received, Context())) == []
    (dead,) = aws.receive("billing-dlq")["Records"]
    assert dead["attributes"]["AWSTraceHeader"] == HEADER


def test_a_worker_s_messages_keep_the_lineage_that_lambda_counts_hops_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attribute goes before the header that botocore gives the request, which has it."""
    client: Any = Recording()
    monkeypatch.setenv(XRAY, "Root=1-11111111-222222222222222222222222;Parent=3333333333333333;Lineage=a87bd80c:4")
    message = address(call(WRITE, statement()), id="i", now=NOW, origin=Origin(trace=TRACE))
    SqsSender(client, lambda queue: "url").send("billing", [message])
    (entry,) = client.entries
    assert entry["MessageSystemAttributes"]["AWSTraceHeader"]["StringValue"] == HEADER + ";Lineage=a87bd80c:4"


def test_b042_a_message_uses_none_of_the_ten_attributes() -> None:
    client: Any = Recording()
    origin = Origin(trace=TRACE, correlation="c", tenant="t", hops=3, expires=NOW + timedelta(hours=1))
    one = call(WRITE, statement(), expires=timedelta(hours=2), delay=timedelta(seconds=5))
    message = address(one, id="i", now=NOW, origin=origin)
    row = of_item(to_item(row_of(message, now=NOW)))
    SqsSender(client, lambda queue: "url").send("billing", [message, row])
    assert [set(entry) for entry in client.entries] == [
        {"Id", "MessageBody", "MessageGroupId", "DelaySeconds", "MessageSystemAttributes"}
    ] * 2
    traced = {"AWSTraceHeader": {"DataType": "String", "StringValue": HEADER}}
    assert [entry["MessageSystemAttributes"] for entry in client.entries] == [traced] * 2


@pytest.mark.parametrize("header", ["nonsense", ""])
def test_b042_a_header_that_is_none_keeps_no_letter_from_the_dead_letter_queue(header: str) -> None:
    client: Any = Recording()
    made: Any = {
        "message_id": "m",
        "body": "{}",
        "receipt": "r",
        "queue": "billing",
        "sent_at": NOW,
        "received_at": NOW,
    }
    delivery = Delivery(trace_header=header, **made)
    letter = make_letter(delivery, DeadLetter("permanent"), identity="m", job=None, at="now")
    SqsDeadLetters(client, "url").park(letter)
    assert "MessageSystemAttributes" not in client.entries[0]


@pytest.mark.parametrize("text", ["{", "[]", '{"trace": 7}', '{"trace": "nonsense"}', "\ufeff", '{"job": "a.b"}'])
def test_b042_a_row_whose_trace_is_none_is_sent_without(text: str) -> None:
    client: Any = Recording()
    row = Row(id="i", queue="billing", body=text, group=None, dedup=None, delay=0, at=0)
    assert [sent.outcome for sent in SqsSender(client, lambda queue: "url").send("billing", [row])] == ["accepted"]
    assert "MessageSystemAttributes" not in client.entries[0]


def test_b042_a_dead_letter_keeps_the_header_and_all_ten_attributes_of_a_foreign_producer() -> None:
    client: Any = Recording()
    ten = {f"a{number}": Attribute("String", "x") for number in range(10)}
    delivery = Delivery(
        message_id="m",
        body="{}",
        receipt="r",
        queue="billing",
        sent_at=NOW,
        received_at=NOW,
        group="acme",
        trace_header=HEADER,
        attributes=ten,
    )
    letter = make_letter(delivery, DeadLetter("permanent"), identity="m", job=None, at="now")
    SqsDeadLetters(client, "url").park(letter)
    (sent,) = client.entries
    assert sorted(sent["MessageAttributes"]) == sorted(ten)
    assert sent["MessageSystemAttributes"]["AWSTraceHeader"]["StringValue"] == HEADER
    assert sent["MessageGroupId"] == "acme"


def test_x_ray_s_header_of_a_foreign_producer_is_the_trace(aws: Aws) -> None:
    seen: list[str | None] = []

    def look(statement: Statement, ctx: Any) -> None:
        seen.append(ctx.trace)

    write = declare("billing.write", function=look)
    received = event(body(), body(customer="c2"), body(customer="c3", trace=TRACE.replace("57", "66", 1)))
    for record, header in zip(received["Records"], [HEADER, "nonsense", HEADER], strict=True):
        record["attributes"]["AWSTraceHeader"] = header
    assert failed(aws.handler(write)(received, Context())) == []
    assert seen == [TRACE, None, TRACE.replace("57", "66", 1)]


# -- log lines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("parallel", "is_async"), [(1, False), (3, False), (3, True)])
def test_an_authors_log_lines_have_the_correlation_id_of_their_own_job_only(
    aws: Aws, capsys: pytest.CaptureFixture[str], parallel: int, is_async: bool
) -> None:
    queue = Queue("billing", workload=Workload.BULK, parallel=parallel)
    together = threading.Barrier(parallel)

    def run(statement: Statement, ctx: Any) -> None:
        if parallel > 1 and not is_async:
            together.wait(5)
        Logger().info("by the author", extra={"key": ctx.key})
        if statement.customer_id == "c2":
            raise Permanent("no")

    async def arun(statement: Statement, ctx: Any) -> None:
        run(statement, ctx)

    write = declare("billing.write", queue, function=arun if is_async else run)
    ids = {"c1": {"correlation": "req-1"}, "c2": {"correlation": "req-2"}, "c3": {}}
    bodies = [body(customer=customer, **members) for customer, members in ids.items()]
    handler = aws.handler(write)
    assert failed(handler(event(*bodies), Context())) == []
    printed = capsys.readouterr().out.splitlines()
    for message in ("by the author", "ended"):
        found = [json.loads(line) for line in printed if f'"{message}"' in line]
        assert {line["key"]: line.get("correlation_id") for line in found} == {
            "c1/2026-01-01": "req-1",
            "c2/2026-01-01": "req-2",
            "c3/2026-01-01": None,
        }
    Logger().info("after", extra={"key": "after"})
    assert "correlation_id" not in capsys.readouterr().out


def test_the_correlation_id_of_a_caller_reaches_the_last_job_of_a_chain(aws: Aws) -> None:
    mail = declare("mail.send", MAIL)

    def forward(statement: Statement, ctx: Any) -> None:
        ctx.enqueue(mail, statement)

    write = declare("billing.write", function=forward, sends=[mail])
    with correlation("req-1"):
        Producer(queues={"billing": aws.urls["billing"]}).enqueue(write, statement())
    aws.handler(write)(aws.receive("billing"), Context())
    (record,) = aws.receive("mail")["Records"]
    assert json.loads(record["body"])["correlation"] == "req-1"


def test_each_enqueue_is_logged_with_what_it_carries(
    aws: Aws, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(XRAY, HEADER)
    with caplog.at_level("INFO", logger="loomjobs"), correlation("req-1"):
        Producer(queues={"billing": aws.urls["billing"]}).enqueue(WRITE, statement(), tenant="acme")
    (record,) = caplog.records
    fields = record.__dict__
    assert (fields["tenant"], fields["correlation_id"], fields["trace"]) == ("acme", "req-1", TRACE)
