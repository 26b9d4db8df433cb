"""Failures that production teams met, against the handler. The comment behind a test's name is its pitfall's number."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError

from loomjobs import JobContext, Permanent, Transient
from loomjobs.aws import clients
from loomjobs.aws.event import ForeignEvent
from loomjobs.aws.table import ExecutionTable
from loomjobs.core.errors import ConfigurationError
from loomjobs.core.retry import Retry
from tests.aws.conftest import Aws, Context, body, event, failed
from tests.core.catalogue_fixture import LEDGER, Statement, declare

LEDGER_ARN = "arn:aws:sqs:eu-central-1:123456789012:ledger.fifo"
RAN: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    RAN.clear()
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


def work(statement: Statement, ctx: JobContext) -> str:
    RAN.append(statement.customer_id)
    match statement.customer_id.partition("-")[0]:
        case "bad":
            raise ValueError("its own error")
        case "never":
            raise Permanent("no such account")
        case "busy":
            raise Transient("busy")
        case "exit":
            raise SystemExit(3)
    return "done"


WRITE = declare("billing.write", function=work)
POST = declare("ledger.post", LEDGER, function=work)


def send(aws: Aws, *customers: str, queue: str = "billing", job: str = "billing.write") -> None:
    for customer in customers:
        fifo = {"MessageGroupId": "g", "MessageDeduplicationId": customer} if queue == "ledger" else {}
        aws.sqs.send_message(QueueUrl=aws.urls[queue], MessageBody=body(job, customer), **fifo)


def record(aws: Aws, customer: str) -> Any:
    item = aws.item(f"billing.write#{customer}/2026-01-01")
    return None if item is None else (item["status"]["S"], int(item["n"]["N"]))


class Output:
    """What the process wrote to standard output: log lines and metrics."""

    def __init__(self, text: str) -> None:
        blobs = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        self.lines = [blob for blob in blobs if "_aws" not in blob]
        self.metrics = [blob for blob in blobs if "_aws" in blob]

    def counted(self, name: str, *, by_class: bool = False) -> dict[tuple[str, ...], float]:
        """A metric by job, or by job and class."""
        found: dict[tuple[str, ...], float] = {}
        for blob in self.metrics:
            (directive,) = blob["_aws"]["CloudWatchMetrics"]
            (dimensions,) = directive["Dimensions"]
            if name in blob and ("class" in dimensions) == by_class:
                assert sorted(dimensions) == sorted(["service", "queue", "job", *(["class"] if by_class else [])])
                key = (blob["job"], blob["class"]) if by_class else (blob["job"],)
                found[key] = found.get(key, 0) + sum(blob[name])
        return found


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Callable[[], Output]:
    return lambda: Output(capsys.readouterr().out)


# -- the same message twice -----------------------------------------------------------------------


def test_a_second_worker_that_gets_the_message_meanwhile_reports_it_as_failed(aws: Aws) -> None:  # B001
    answers: list[Any] = []
    runs: list[str] = []

    def slow(statement: Statement, ctx: JobContext) -> None:
        runs.append(statement.customer_id)
        answers.append(failed(other(received, Context())))

    declared = declare("billing.write", function=slow)
    other = aws.handler(declared)
    send(aws, "c1")
    received = aws.receive("billing")
    (id,) = [each["messageId"] for each in received["Records"]]
    assert failed(aws.handler(declared)(received, Context())) == []
    assert (runs, answers) == (["c1"], [[id]])
    assert failed(other(received, Context())) == []  # after the first has finished
    assert runs == ["c1"]


# -- the answer, and the context ------------------------------------------------------------------


@pytest.mark.parametrize("id", ["", None])
def test_a_record_with_an_empty_id_raises_before_anything_runs(aws: Aws, id: Any) -> None:  # B004
    received = event(body(customer="c1"), body(customer="c2"))
    received["Records"][1]["messageId"] = id
    with pytest.raises(ForeignEvent, match="needs the id of each"):
        aws.handler(WRITE)(received, Context())
    assert RAN == []


def test_a_message_that_is_twice_in_a_batch_is_named_once(aws: Aws) -> None:  # B004
    received = event(body(customer="bad-1"), body(customer="bad-1"), body(customer="c1"))
    received["Records"][1]["messageId"] = "m0"
    assert aws.handler(WRITE)(received, Context()) == {"batchItemFailures": [{"itemIdentifier": "m0"}]}


@pytest.mark.parametrize("context", [None, object(), {"aws_request_id": "x"}])
def test_in_lambda_a_context_that_tells_no_time_is_an_error_and_nothing_is_claimed(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, context: Any
) -> None:  # B009
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "worker")
    with pytest.raises(ConfigurationError, match="remaining time"):
        aws.handler(WRITE)(event(body()), context)
    assert RAN == []
    assert aws.dynamodb.scan(TableName="executions")["Items"] == []


@pytest.mark.parametrize("context", [None, object()])
def test_outside_lambda_every_context_gives_a_deadline(aws: Aws, context: Any) -> None:  # B009
    before = time.time()
    assert failed(aws.handler(WRITE)(event(body()), context)) == []
    item = aws.item("billing.write#c1/2026-01-01")
    assert item is not None
    assert 0 < float(item["in_progress_expiration"]["N"]) / 1000 - before < 60


@pytest.mark.filterwarnings("ignore:Couldn't determine the remaining time left")
@pytest.mark.parametrize("context", [Context(), Context(1.0), None])
def test_a_powertools_function_without_a_context_gets_a_deadline_too(aws: Aws, context: Any) -> None:  # B009
    seen: list[Any] = []
    config = IdempotencyConfig(event_key_jmespath="id", lambda_context=context)
    step = idempotent_function(
        lambda order: seen.extend(aws.dynamodb.scan(TableName="executions")["Items"]),
        data_keyword_argument="order",
        persistence_store=ExecutionTable("executions", client=aws.dynamodb),
        config=config,
        key_prefix="charge",
    )
    step(order={"id": 7})
    assert [item["status"]["S"] for item in seen] == ["INPROGRESS"]
    assert float(seen[0]["in_progress_expiration"]["N"]) > time.time() * 1000


# -- a batch that failed as a whole ----------------------------------------------------------------


@pytest.mark.parametrize("customers", [["bad-1"], ["bad-1", "busy-1", "exit-1"]])
def test_failed_jobs_are_the_same_answer_cold_and_warm_and_never_a_lambda_error(
    aws: Aws, customers: list[str]
) -> None:  # B025
    handler = aws.handler(WRITE)
    for suffix in ("cold", "warm"):
        received = event(*(body(customer=f"{each}{suffix}") for each in customers))
        assert failed(handler(received, Context())) == [f"m{place}" for place in range(len(customers))]


# -- receive counts -------------------------------------------------------------------------------


@pytest.mark.parametrize("receives", ["40", "1", "0", "", None, "many", 40])
def test_a_receive_count_of_any_spelling_is_no_attempt(aws: Aws, receives: Any) -> None:  # B006 B026
    received = event(body(customer="bad-1"))
    attributes = received["Records"][0]["attributes"]
    attributes["ApproximateReceiveCount"] = receives
    if receives is None:
        del attributes["ApproximateReceiveCount"]
    assert failed(aws.handler(WRITE)(received, Context())) == ["m0"]
    assert record(aws, "bad-1") == ("WAITING", 1)


# -- visibility that cannot be changed --------------------------------------------------------------


def refusing(code: str, operation: str) -> Callable[..., Any]:
    def refuse(**arguments: Any) -> Any:
        if code == "read-timeout":
            raise ReadTimeoutError(endpoint_url="https://sqs")
        if code == "connect-timeout":
            raise ConnectTimeoutError(endpoint_url="https://sqs")
        raise ClientError({"Error": {"Code": code, "Message": "no"}}, operation)

    return refuse


@pytest.mark.parametrize(
    "code",
    [
        "ReceiptHandleIsInvalid",
        "InvalidParameterValue",
        "AccessDenied",
        "Throttling",
        "read-timeout",
        "connect-timeout",
    ],
)
def test_a_visibility_that_cannot_be_changed_leaves_the_answer_the_error_and_the_rest_as_they_are(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, output: Callable[[], Output], code: str
) -> None:  # B027
    handler = aws.handler(WRITE)
    send(aws, "c1", "bad-1", "c2")
    received = aws.receive("billing")
    ids = {json.loads(each["body"])["payload"]["customer_id"]: each["messageId"] for each in received["Records"]}
    refuse = refusing(code, "ChangeMessageVisibilityBatch")
    monkeypatch.setattr(clients.sqs(), "change_message_visibility_batch", refuse)
    assert failed(handler(received, Context())) == [ids["bad-1"]]
    told = output()
    (failure,) = [line for line in told.lines if line["level"] == "ERROR"]
    assert (failure["error"], failure["error_message"]) == ("ValueError", "its own error")
    assert [line for line in told.lines if line["level"] == "WARNING"]
    assert told.counted("Trouble")["unmapped",] >= 1
    assert record(aws, "c1") == record(aws, "c2") == ("COMPLETED", 0)
    assert record(aws, "bad-1") == ("WAITING", 1)


# -- hand-offs ------------------------------------------------------------------------------------


def test_a_letter_of_a_fifo_queue_keeps_group_body_and_attributes_and_is_one_however_often_it_is_sent(
    aws: Aws,
) -> None:  # B029
    text = body("ledger.removed", "é\r\n")
    received = event(text, arn=LEDGER_ARN)
    (message,) = received["Records"]
    message["attributes"]["MessageGroupId"] = "g-1"
    message["messageAttributes"] = {"who": {"dataType": "String", "stringValue": "me"}}
    handler = aws.handler(POST, queue="ledger")
    for _ in range(2):  # the answer to the first was lost
        assert failed(handler(received, Context())) == []
    (letter,) = aws.receive("ledger-dlq")["Records"]
    assert (letter["body"], letter["attributes"]["MessageGroupId"]) == (text, "g-1")
    assert letter["attributes"]["MessageDeduplicationId"] == "m0"
    assert letter["messageAttributes"]["who"]["stringValue"] == "me"
    assert json.loads(letter["messageAttributes"]["loom"]["stringValue"])["message"] == "m0"
    assert aws.receive("ledger-dlq") == {"Records": []}


@pytest.mark.parametrize("code", ["AccessDenied", "Throttling", "KMS.DisabledException", "read-timeout"])
@pytest.mark.parametrize("text", [body(customer="never-1"), "{not json"])
def test_a_letter_that_sqs_does_not_take_leaves_its_message_in_the_queue(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, code: str, text: str
) -> None:  # B029
    handler = aws.handler(WRITE)
    with monkeypatch.context() as broken:
        broken.setattr(clients.sqs(), "send_message", refusing(code, "SendMessage"))
        assert failed(handler(event(text), Context())) == ["m0"]
    received = event(text)
    received["Records"][0]["attributes"]["ApproximateReceiveCount"] = "2"
    assert failed(handler(received, Context())) == []
    assert [letter["body"] for letter in aws.receive("billing-dlq")["Records"]] == [text]
    assert len(RAN) == ("never-1" in text)


# -- failures are seen ----------------------------------------------------------------------------


def test_three_failures_in_a_batch_of_ten_are_three_error_lines_and_counts_by_job_and_class(
    aws: Aws, output: Callable[[], Output]
) -> None:  # B031
    customers = [*(f"c{n}" for n in range(7)), "bad-1", "busy-1", "never-1"]
    aws.handler(WRITE)(event(*(body(customer=each) for each in customers)), Context())
    told = output()
    errors = [line for line in told.lines if line["level"] == "ERROR"]
    assert [(line["message_id"], line["job"], line["class"]) for line in errors] == [
        ("m7", "billing.write", "unknown"),
        ("m8", "billing.write", "transient"),
        ("m9", "billing.write", "permanent"),
    ]
    assert all(line["fingerprint"] and line["error"] and "attempt" in line for line in errors)
    assert told.counted("Failed") == {("billing.write",): 3}
    assert told.counted("Failed", by_class=True) == {
        ("billing.write", "unknown"): 1,
        ("billing.write", "transient"): 1,
        ("billing.write", "permanent"): 1,
    }


def test_messages_that_are_no_job_are_failures_of_none_with_the_reason_as_their_class(
    aws: Aws, output: Callable[[], Output]
) -> None:  # B031
    aws.handler(WRITE)(event("{not json", *(body(f"billing.made-up-{n}") for n in range(5))), Context())
    told = output()
    assert told.counted("Failed") == {("unmapped",): 6}
    assert told.counted("Failed", by_class=True) == {("unmapped", "bad-envelope"): 1, ("unmapped", "unroutable"): 5}
    assert [line["message_id"] for line in told.lines if line["level"] == "ERROR"] == [f"m{n}" for n in range(6)]


def test_the_last_attempt_is_a_failure_of_the_class_exhausted(aws: Aws, output: Callable[[], Output]) -> None:  # B031
    once = declare("billing.once", function=work, retry=Retry(attempts=1))
    aws.handler(once)(event(body("billing.once", "busy-1")), Context())
    assert output().counted("Failed", by_class=True) == {("billing.once", "exhausted"): 1}


def test_what_did_not_fail_is_no_failure_and_no_error_line(aws: Aws, output: Callable[[], Output]) -> None:  # B031
    handler = aws.handler(WRITE)
    handler(event(body(customer="c1"), body(customer="c1"), body(customer="c2")), Context(seconds=14))
    told = output()
    assert told.counted("Failed") == {}
    assert [line for line in told.lines if line["level"] == "ERROR"] == []


def test_a_counted_failure_is_not_counted_again_by_the_next_invocation(
    aws: Aws, output: Callable[[], Output]
) -> None:  # B031
    handler = aws.handler(WRITE)
    handler(event(body(customer="bad-1")), Context())
    output()
    handler(event(body(customer="c1")), Context())
    told = output()
    assert told.counted("Failed") == told.counted("Failed", by_class=True) == {}


# -- the store ------------------------------------------------------------------------------------

OUTAGES = ["ProvisionedThroughputExceededException", "AccessDeniedException", "ResourceNotFoundException"]


def failing_writes(status: str, code: str, real: Callable[..., Any], times: int) -> Callable[..., Any]:
    """An update_item that fails so many writes of a status."""
    left = [times]

    def update(**arguments: Any) -> Any:
        writes = {value.get("S") for value in arguments.get("ExpressionAttributeValues", {}).values()}
        sets = arguments["UpdateExpression"].partition(" REMOVE ")[0]
        is_it = status in writes and "#status" in sets and (status != "INPROGRESS" or "COMPLETED" not in writes)
        if is_it and left[0]:
            left[0] -= 1
            raise ClientError({"Error": {"Code": code, "Message": "no"}}, "UpdateItem")
        return real(**arguments)

    return update


@pytest.mark.parametrize("code", OUTAGES)
def test_without_a_claim_nothing_runs_and_the_outage_is_counted_for_its_alarm(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, output: Callable[[], Output], code: str
) -> None:  # B032
    handler = aws.handler(WRITE)
    refuse = refusing(code, "UpdateItem")
    monkeypatch.setattr(clients.dynamodb(), "update_item", refuse)
    monkeypatch.setattr(clients.dynamodb(), "batch_execute_statement", refuse)
    assert failed(handler(event(body(customer="c1"), body(customer="c2")), Context())) == ["m0", "m1"]
    assert RAN == []
    told = output()
    assert told.counted("StoreUnavailable") == {("unmapped",): 1}
    assert told.counted("Failed") == {}
    (first, _) = [line for line in told.lines if line.get("why") == "store-unavailable"]
    assert code in first["detail"]


@pytest.mark.parametrize("code", OUTAGES)
def test_an_ending_is_written_again_while_there_is_time_and_else_the_message_stays(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, output: Callable[[], Output], code: str
) -> None:  # B032
    handler, client = aws.handler(WRITE), clients.dynamodb()
    real = client.update_item
    for customer, times, answer in (("c1", 2, []), ("c2", 99, ["m0"])):
        monkeypatch.setattr(client, "update_item", failing_writes("COMPLETED", code, real, times))
        assert failed(handler(event(body(customer=customer)), Context())) == answer
    assert RAN == ["c1", "c2"]
    assert (record(aws, "c1"), record(aws, "c2")) == (("COMPLETED", 0), ("INPROGRESS", 0))
    (line,) = [line for line in output().lines if line["level"] == "ERROR"]
    assert (line["outcome"], line["why"], line["message_id"]) == ("handed-back", "effect uncertain", "m0")
    assert code in line["detail"]


# -- what is expired, and what a blocked group counts -----------------------------------------------


def test_a_record_past_its_ttl_that_dynamodb_still_has_does_not_answer_for_a_new_job(aws: Aws) -> None:  # B033
    handler = aws.handler(WRITE)
    for _ in range(2):
        assert failed(handler(event(body(customer="c1")), Context())) == []
    assert RAN == ["c1"]
    item = aws.item("billing.write#c1/2026-01-01")
    assert item is not None
    seconds = int(item["expiration"]["N"])
    assert time.time() < seconds < time.time() + 2 * 2_592_000  # in seconds, not in milliseconds
    aws.dynamodb.update_item(
        TableName="executions",
        Key={"id": item["id"]},
        UpdateExpression="SET expiration = :past",
        ExpressionAttributeValues={":past": {"N": str(int(time.time()) - 1)}},
    )
    assert failed(handler(event(body(customer="c1")), Context())) == []
    assert RAN == ["c1", "c1"]


def test_a_blocked_group_is_counted_once_an_invocation(aws: Aws, output: Callable[[], Output]) -> None:  # B036
    received = event(*(body("ledger.post", each) for each in ("bad-1", "a2", "a3", "b1")), arn=LEDGER_ARN)
    for record_, group in zip(received["Records"], "aaab", strict=True):
        record_["attributes"]["MessageGroupId"] = group
    assert failed(aws.handler(POST, queue="ledger")(received, Context())) == ["m0", "m1", "m2"]
    assert output().counted("GroupsBlocked") == {("unmapped",): 1}
