"""Sending through SQS: what it answers becomes an outcome for every message, and nothing is sent twice knowingly."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import boto3
import pytest
from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError
from botocore.stub import Stubber

from loomjobs.aws.queues import SqsDeadLetters, SqsMessages, SqsSender
from loomjobs.core.address import address
from loomjobs.core.call import call
from loomjobs.core.delivery import Attribute, Delivery
from loomjobs.core.errors import NotSent, UnknownOutcome
from loomjobs.core.letter import Letter
from loomjobs.core.outgoing import Origin, Outgoing
from loomjobs.runtime.ports import Silent
from loomjobs.runtime.producer import TRIES, Producer
from tests.core.catalogue_fixture import LEDGER, Statement, declare

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WRITE = declare("billing.write")
POST = declare("ledger.post", LEDGER)
URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/billing"


def one(customer: str = "c1") -> Any:
    return call(WRITE, Statement(customer, date(2026, 1, 1)))


def received(receipt: str) -> Delivery:
    return Delivery(message_id="m", body="", receipt=receipt, queue="billing", sent_at=NOW, received_at=NOW)


@pytest.fixture
def client() -> Any:
    return boto3.client("sqs")


@pytest.fixture
def stub(client: Any) -> Any:
    with Stubber(client) as stubber:
        yield stubber


def producer(client: Any, pauses: list[float] | None = None) -> Producer:
    ids = iter(range(10_000))
    return Producer(
        SqsSender(client, lambda queue: URL),
        senders=1,
        clock=lambda: NOW,
        token=lambda: f"id{next(ids)}",
        roll=lambda: 0.5,
        journal=Silent(),
        pause=(pauses if pauses is not None else []).append,
    )


def answer(stub: Any, ok: list[str], failed: list[tuple[str, bool]] | None = None) -> None:
    stub.add_response(
        "send_message_batch",
        {
            "Successful": [{"Id": id, "MessageId": "m", "MD5OfMessageBody": "0"} for id in ok],
            "Failed": [{"Id": id, "SenderFault": fault, "Code": "Why", "Message": "not"} for id, fault in failed or []],
        },
    )


@pytest.fixture(autouse=True)
def _no_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stub's answers have no real MD5."""
    monkeypatch.setattr("botocore.handlers.check_openssl_supports_tls_version_1_2", lambda **_: None, raising=False)


def test_what_the_server_failed_to_take_is_sent_again_alone(client: Any, stub: Any) -> None:
    answer(stub, ["0", "2"], [("1", False)])
    answer(stub, ["0"])
    pauses: list[float] = []
    assert producer(client, pauses).enqueue_many([one("a"), one("b"), one("c")]).accepted == 3
    assert len(pauses) == 1
    stub.assert_no_pending_responses()


def test_what_the_sender_got_wrong_is_not_sent_again(client: Any, stub: Any) -> None:
    answer(stub, ["0"], [("1", True)])
    with pytest.raises(NotSent) as caught:
        producer(client).enqueue_many([one("a"), one("b")])
    assert caught.value.report.accepted == 1
    assert [(each.call.payload.customer_id, each.reason) for each in caught.value.report.rejected] == [
        ("b", "Why: not")
    ]
    assert str(caught.value) == "1 accepted, 1 rejected: Why: not"


def test_a_server_that_never_takes_it_ends_in_not_sent(client: Any, stub: Any) -> None:
    for _ in range(TRIES):
        answer(stub, [], [("0", False)])
    with pytest.raises(NotSent):
        producer(client).enqueue(one())
    stub.assert_no_pending_responses()


def test_a_message_that_the_answer_does_not_mention_has_an_unknown_outcome_and_is_not_repeated(
    client: Any, stub: Any
) -> None:
    answer(stub, ["0"])
    with pytest.raises(UnknownOutcome) as caught:
        producer(client).enqueue_many([one("a"), one("b")])
    assert [each.payload.customer_id for each in caught.value.report.unknown] == ["b"]
    stub.assert_no_pending_responses()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (EndpointConnectionError(endpoint_url="x"), NotSent),
        (ConnectTimeoutError(endpoint_url="x"), NotSent),
        (ReadTimeoutError(endpoint_url="x"), UnknownOutcome),
    ],
)
def test_no_connection_is_not_sent_and_no_answer_is_unknown(error: Exception, expected: type[Exception]) -> None:
    class Silence:
        def send_message_batch(self, **_: Any) -> Any:
            raise error

    with pytest.raises(expected):
        producer(Silence()).enqueue(one())


@pytest.mark.parametrize(
    ("code", "status", "tries"),
    [("AccessDenied", 403, 1), ("ThrottlingException", 400, TRIES), ("InternalError", 500, TRIES)],
)
def test_a_refusal_is_final_and_a_fault_of_the_server_is_tried_again(
    client: Any, stub: Any, code: str, status: int, tries: int
) -> None:
    client.meta.events.register("needs-retry.sqs.SendMessageBatch", lambda **_: None)
    for _ in range(tries):
        stub.add_client_error("send_message_batch", code, http_status_code=status)
    with pytest.raises(NotSent, match=code):
        producer(client).enqueue(one())
    stub.assert_no_pending_responses()


def test_behind_a_failure_nothing_more_is_sent_and_all_of_it_is_reported(client: Any, stub: Any) -> None:
    answer(stub, [str(n) for n in range(9)], [("9", True)])
    source = iter([one(f"c{n}") for n in range(25)])
    with pytest.raises(NotSent) as caught:
        producer(client).enqueue_many(source)
    report = caught.value.report
    assert (report.accepted, len(report.rejected), len(report.unsent)) == (9, 1, 1)
    assert len(list(source)) == 14
    stub.assert_no_pending_responses()


def test_a_stream_is_read_as_it_is_sent() -> None:
    in_flight, most = 0, 0

    class Counting:
        def send_message_batch(self, *, QueueUrl: str, Entries: list[Any]) -> Any:  # noqa: N803 boto3's names
            nonlocal in_flight
            in_flight -= len(Entries)
            return {"Successful": [{"Id": entry["Id"]} for entry in Entries]}

    def stream() -> Any:
        nonlocal in_flight, most
        for number in range(1_005):
            in_flight += 1
            most = max(most, in_flight)
            yield one(f"c{number}")

    assert producer(Counting()).enqueue_many(stream()).accepted == 1_005
    assert most <= 11  # a batch, and the one that did not fit it any more


def test_a_fifo_message_carries_its_group_and_a_deduplication_id_of_job_key_and_payload() -> None:
    entries: list[Any] = []

    class Keeping:
        def send_message_batch(self, *, QueueUrl: str, Entries: list[Any]) -> Any:  # noqa: N803 boto3's names
            entries.extend(Entries)
            return {"Successful": [{"Id": entry["Id"]} for entry in Entries]}

    same = [call(POST, Statement("c1", date(2026, 1, 1))) for _ in range(2)]
    other = call(POST, Statement("c1", date(2026, 2, 1)))
    producer(Keeping()).enqueue_many([*same, other])
    assert [entry["MessageGroupId"] for entry in entries] == ["c1"] * 3
    assert entries[0]["MessageDeduplicationId"] == entries[1]["MessageDeduplicationId"]
    assert entries[0]["MessageDeduplicationId"] != entries[2]["MessageDeduplicationId"]


def message(customer: str) -> Outgoing:
    return address(one(customer), id="x", now=NOW, origin=Origin())


def test_a_dead_letter_keeps_its_attributes_group_and_deduplication_id(client: Any, stub: Any) -> None:
    attributes = {"who": Attribute("String", "é"), "raw": Attribute("Binary", binary=b"\x00")}
    stub.add_response(
        "send_message",
        {"MessageId": "m"},
        {
            "QueueUrl": URL,
            "MessageBody": "body",
            "MessageGroupId": "g",
            "MessageDeduplicationId": "d",
            "MessageAttributes": {
                "who": {"DataType": "String", "StringValue": "é"},
                "raw": {"DataType": "Binary", "BinaryValue": b"\x00"},
            },
        },
    )
    SqsDeadLetters(client, URL).park(Letter("body", "g", "d", attributes))
    stub.assert_no_pending_responses()


@pytest.mark.parametrize("code", ["ReceiptHandleIsInvalid", "InvalidParameterValue", "AccessDenied", "Throttling"])
def test_a_visibility_that_cannot_be_changed_is_told_and_changes_no_outcome(client: Any, stub: Any, code: str) -> None:
    told: list[str] = []
    stub.add_client_error("change_message_visibility_batch", code)
    SqsMessages(client, URL, told.append).hide([(received("r1"), 5), (received("r2"), 6)])
    assert len(told) == 1
    assert code in told[0]


def test_one_of_ten_visibilities_may_fail_alone(client: Any, stub: Any) -> None:
    told: list[str] = []
    failed = {"Id": "1", "SenderFault": True, "Code": "ReceiptHandleIsInvalid", "Message": "gone"}
    stub.add_response("change_message_visibility_batch", {"Successful": [{"Id": "0"}], "Failed": [failed]})
    SqsMessages(client, URL, told.append).hide([(received("r1"), 5), (received("r2"), 6)])
    assert told == ["a message was not hidden: ReceiptHandleIsInvalid: gone"]


def test_more_than_ten_visibilities_take_more_calls() -> None:
    calls: list[int] = []

    class Counting:
        def change_message_visibility_batch(self, *, QueueUrl: str, Entries: list[Any]) -> Any:  # noqa: N803 boto3's
            calls.append(len(Entries))
            return {}

    client: Any = Counting()
    SqsMessages(client, URL, lambda what: None).hide([(received(f"r{n}"), 1) for n in range(23)])
    assert calls == [10, 10, 3]


def test_threads_may_share_a_producer() -> None:
    from concurrent.futures import ThreadPoolExecutor

    sent: list[str] = []

    class Keeping:
        def send_message_batch(self, *, QueueUrl: str, Entries: list[Any]) -> Any:  # noqa: N803 boto3's names
            sent.extend(entry["MessageBody"] for entry in Entries)
            return {"Successful": [{"Id": entry["Id"]} for entry in Entries]}

    shared = producer(Keeping())
    send: Callable[[int], Any] = lambda n: shared.enqueue(one(f"c{n}"))  # noqa: E731
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(send, range(400)))
    assert len(sent) == len(set(sent)) == 400
