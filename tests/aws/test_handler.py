"""The worker as Lambda runs it: event in, answer out, over SQS and DynamoDB."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from loomjobs import Defer, JobContext, Permanent, Transient
from loomjobs.aws.event import ForeignEvent
from loomjobs.core.errors import ConfigurationError
from loomjobs.core.retry import Retry
from tests.aws.conftest import Aws, Context, body, event, failed
from tests.core.catalogue_fixture import LEDGER, Statement, declare

RAN: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


def work(statement: Statement, ctx: JobContext) -> str:
    RAN.append(statement.customer_id)
    if statement.customer_id.startswith("bad"):
        raise ValueError("bad luck")
    if statement.customer_id.startswith("never"):
        raise Permanent("no such account")
    if statement.customer_id.startswith("busy"):
        raise Transient("busy", after=timedelta(seconds=40))
    if statement.customer_id.startswith("later"):
        raise Defer(timedelta(seconds=30))
    return f"attempt {ctx.attempt}"


WRITE = declare("billing.write", function=work)
POST = declare("ledger.post", LEDGER, function=work)


def send(aws: Aws, *customers: str, queue: str = "billing", job: str = "billing.write") -> None:
    for customer in customers:
        fifo = {"MessageGroupId": customer[-1], "MessageDeduplicationId": customer} if queue == "ledger" else {}
        aws.sqs.send_message(QueueUrl=aws.urls[queue], MessageBody=body(job, customer), **fifo)


def test_a_batch_is_answered_with_the_ids_that_stay_and_each_record_is_durable(aws: Aws) -> None:
    send(aws, "c1", "bad1", "c2")
    received = aws.receive("billing")
    answer = aws.handler(WRITE)(received, Context())
    by_id = {each["messageId"]: json.loads(each["body"])["payload"]["customer_id"] for each in received["Records"]}
    assert [by_id[id] for id in failed(answer)] == ["bad1"]
    done = aws.item("billing.write#c1/2026-01-01")
    assert done is not None
    assert (done["status"]["S"], done["data"]["S"]) == ("COMPLETED", '"attempt 1"')
    waiting = aws.item("billing.write#bad1/2026-01-01")
    assert waiting is not None
    assert (waiting["status"]["S"], waiting["n"]["N"]) == ("WAITING", "1")


def test_a_whole_batch_that_failed_is_an_answer_and_not_a_lambda_error_cold_and_warm(aws: Aws) -> None:
    handler = aws.handler(WRITE)
    for round_ in ("1", "2"):
        send(aws, f"bad{round_}")
        assert len(failed(handler(aws.receive("billing"), Context()))) == 1


def test_a_duplicate_does_not_run_and_says_of_what_and_when(aws: Aws, capsys: pytest.CaptureFixture[str]) -> None:
    handler = aws.handler(WRITE)
    for _ in range(2):
        send(aws, "c1")
        assert failed(handler(aws.receive("billing"), Context())) == []
    assert RAN == ["c1"]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "duplicate_of" in line]
    assert [(line["outcome"], line["duplicate_of"]) for line in lines] == [("duplicate", "billing.write#c1/2026-01-01")]
    assert lines[0]["finished_at"].startswith("20")


def test_a_permanent_failure_is_in_the_dead_letter_queue_with_its_reason_and_acknowledged(aws: Aws) -> None:
    send(aws, "never1")
    received = aws.receive("billing")
    assert failed(aws.handler(WRITE)(received, Context())) == []
    (letter,) = aws.receive("billing-dlq")["Records"]
    assert letter["body"] == received["Records"][0]["body"]
    report = json.loads(letter["messageAttributes"]["loom"]["stringValue"])
    assert (report["reason"], report["error"], report["attempts"], report["receives"]) == (
        "permanent",
        "loomjobs.core.signals.Permanent: no such account",
        1,
        1,
    )
    record = aws.item("billing.write#never1/2026-01-01")
    assert record is not None
    assert record["status"]["S"] == "DEAD"


def test_a_failed_message_comes_back_after_its_backoff_and_not_before_the_wait_it_was_asked(aws: Aws) -> None:
    send(aws, "busy1")
    aws.handler(WRITE)(aws.receive("billing"), Context())
    record = aws.item("billing.write#busy1/2026-01-01")
    assert record is not None
    assert int(record["nb"]["N"]) > int(record["hist"]["L"][0]["M"]["at"]["N"]) + 39_000
    assert aws.receive("billing") == {"Records": []}


def test_a_deferral_charges_nothing(aws: Aws) -> None:
    send(aws, "later1")
    assert len(failed(aws.handler(WRITE)(aws.receive("billing"), Context()))) == 1
    record = aws.item("billing.write#later1/2026-01-01")
    assert record is not None
    assert (record["status"]["S"], record["n"]["N"]) == ("WAITING", "0")


def test_the_last_attempt_ends_in_the_dead_letter_queue(aws: Aws) -> None:
    once = declare("billing.once", function=work, retry=Retry(attempts=1))
    send(aws, "bad1", job="billing.once")
    assert failed(aws.handler(once)(aws.receive("billing"), Context())) == []
    (letter,) = aws.receive("billing-dlq")["Records"]
    assert json.loads(letter["messageAttributes"]["loom"]["stringValue"])["reason"] == "exhausted"


def test_on_fifo_a_failure_stops_its_group_and_no_other(aws: Aws) -> None:
    arn = "arn:aws:sqs:eu-central-1:123456789012:ledger.fifo"
    received = event(*(body("ledger.post", customer) for customer in ("a1", "b1", "bad-a", "a3", "b2")), arn=arn)
    for record, group in zip(received["Records"], "abaab", strict=True):
        record["attributes"]["MessageGroupId"] = group
    assert failed(aws.handler(POST, queue="ledger")(received, Context())) == ["m2", "m3"]
    assert RAN == ["a1", "b1", "bad-a", "b2"]
    RAN.clear()


def test_no_group_is_remembered_as_blocked_by_a_warm_process(aws: Aws) -> None:
    arn = "arn:aws:sqs:eu-central-1:123456789012:ledger.fifo"
    handler = aws.handler(POST, queue="ledger")
    for customer in ("bad-a", "a2"):
        received = event(body("ledger.post", customer), arn=arn)
        received["Records"][0]["attributes"]["MessageGroupId"] = "a"
        handler(received, Context())
    assert RAN == ["bad-a", "a2"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{not json", "bad-envelope"),
        ("[]", "bad-envelope"),
        ('{"payload": {}}', "bad-envelope"),
        (body("billing.removed"), "unroutable"),
        (body("billing.write", payload={"customer_id": 7, "period": "2026-01-01"}), "bad-payload"),
        (body("billing.write", ""), "bad-key"),
    ],
)
def test_what_cannot_be_a_job_goes_to_the_dead_letter_queue_on_sight(aws: Aws, text: str, reason: str) -> None:
    assert failed(aws.handler(WRITE)(event(text), Context())) == []
    (letter,) = aws.receive("billing-dlq")["Records"]
    assert letter["body"] == text
    assert json.loads(letter["messageAttributes"]["loom"]["stringValue"])["reason"] == reason
    assert RAN == []


def test_a_dead_letter_that_cannot_be_parked_stays_in_its_queue(aws: Aws) -> None:
    handler = aws.handler(WRITE)
    aws.sqs.delete_queue(QueueUrl=aws.urls["billing-dlq"])
    assert failed(handler(event("{not json"), Context())) == ["m0"]


def test_without_the_table_nothing_runs_and_nothing_is_acknowledged(aws: Aws) -> None:
    handler = aws.handler(WRITE)
    aws.dynamodb.delete_table(TableName="executions")
    assert failed(handler(event(body()), Context())) == ["m0"]
    assert RAN == []


def test_what_has_no_time_left_is_handed_back_unclaimed(aws: Aws) -> None:
    answer = aws.handler(WRITE)(event(body(customer="c1"), body(customer="c2")), Context(seconds=12))
    assert failed(answer) == ["m1"]
    assert RAN == ["c1"]
    assert aws.item("billing.write#c2/2026-01-01") is None


@pytest.mark.parametrize("seconds", [0.0, 4.0])
def test_an_invocation_without_time_claims_nothing_at_all(aws: Aws, seconds: float) -> None:
    assert failed(aws.handler(WRITE)(event(body(), body(customer="c2")), Context(seconds))) == ["m0", "m1"]
    assert RAN == []
    assert aws.dynamodb.scan(TableName="executions")["Items"] == []


@pytest.mark.parametrize(
    "foreign", [{}, {"Records": "x"}, {"source": "aws.events"}, None, [], {"Records": [{"eventSource": "aws:s3"}]}]
)
def test_a_foreign_event_is_refused_aloud_since_an_answer_would_look_like_success(aws: Aws, foreign: Any) -> None:
    with pytest.raises(ForeignEvent):
        aws.handler(WRITE)(foreign, Context())


def test_a_record_without_id_is_refused_aloud(aws: Aws) -> None:
    received = event(body())
    del received["Records"][0]["messageId"]
    with pytest.raises(ForeignEvent, match="needs the id of each"):
        aws.handler(WRITE)(received, Context())


def test_an_empty_event_is_answered_with_nothing(aws: Aws) -> None:
    assert aws.handler(WRITE)({"Records": []}, Context()) == {"batchItemFailures": []}


def test_in_lambda_a_missing_context_is_an_error(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "worker")
    with pytest.raises(ConfigurationError, match="remaining time"):
        aws.handler(WRITE)(event(body()), None)


def test_outside_lambda_a_missing_context_gives_a_deadline_all_the_same(aws: Aws) -> None:
    assert failed(aws.handler(WRITE)(event(body()), None)) == []
    record = aws.item("billing.write#c1/2026-01-01")
    assert record is not None
    assert "in_progress_expiration" in record


def test_metrics_are_flushed_per_invocation_and_job_names_that_nobody_declared_are_bucketed(
    aws: Aws, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = aws.handler(WRITE)
    handler(event(body(customer="c1"), body("billing.made-up-123")), Context())
    handler(event(body(customer="c2")), Context())
    blobs = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "CloudWatchMetrics" in line]
    counted = [(blob["job"], name, blob[name]) for blob in blobs for name in ("Succeeded", "Dead") if name in blob]
    assert counted == [
        ("unmapped", "Dead", [1.0]),
        ("billing.write", "Succeeded", [1.0]),
        ("billing.write", "Succeeded", [1.0]),
    ]
    assert {blob["queue"] for blob in blobs} == {"billing"}


def test_no_payload_value_is_logged(aws: Aws, capsys: pytest.CaptureFixture[str]) -> None:
    secret = declare("billing.secret", function=work, key=lambda statement: "k")
    aws.handler(secret)(event(body("billing.secret", "s3cret-value")), Context())
    assert "s3cret-value" not in capsys.readouterr().out
    assert RAN == ["s3cret-value"]


def test_a_failure_is_one_structured_line_with_class_and_fingerprint(
    aws: Aws, capsys: pytest.CaptureFixture[str]
) -> None:
    aws.handler(WRITE)(event(body(customer="bad1")), Context())
    (line,) = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"retry"' in line]
    assert (line["error"], line["attempt"], line["job"], line["message_id"]) == ("ValueError", 1, "billing.write", "m0")
    assert len(line["fingerprint"]) == 12
