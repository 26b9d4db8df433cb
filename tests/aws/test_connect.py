"""A process put together from environment variables, and what it says when one is missing."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import boto3
import pytest

from loomjobs import enqueue, enqueue_many, status
from loomjobs.aws import process
from loomjobs.aws.scheduler import with_scheduled_time
from loomjobs.core import names
from loomjobs.core.cron import cron
from loomjobs.core.errors import ConfigurationError, UndeclaredSend
from loomjobs.core.schedule import MissedRuns, Overlap, Schedule, Tick
from loomjobs.core.tick_job import with_ticks
from loomjobs.core.uses import Resource, Secret, Setting
from loomjobs.runtime.status import NoResult
from tests.aws.conftest import Aws, Context, body, event, failed
from tests.core.catalogue_fixture import MAIL, Statement, catalogue, declare

WRITE = declare("billing.write")
ONE = Statement("c1", date(2026, 1, 1))


def test_outside_lambda_the_queue_is_found_by_the_environments_name_and_each_enqueue_is_logged(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    boto3.client("ssm").put_parameter(Name="/loomjobs/dev/queues/billing/url", Value=aws.urls["billing"], Type="String")
    monkeypatch.setenv(names.ENV, "dev")
    with caplog.at_level("INFO", logger="loomjobs"):
        sent = enqueue(WRITE, ONE)
    assert sent.outcome == "accepted"
    assert [(each.message, each.__dict__["id"], each.__dict__["to_queue"]) for each in caplog.records] == [
        ("enqueued", sent.id, "billing")
    ]
    assert enqueue_many(WRITE, [ONE, ONE]).accepted == 2
    assert len(aws.receive("billing")["Records"]) == 3


def test_without_an_environment_the_error_names_the_setting(aws: Aws) -> None:
    with pytest.raises(ConfigurationError, match="Set LOOMJOBS_ENV"):
        enqueue(WRITE, ONE)


def test_an_environment_that_is_not_deployed_is_said_with_its_path(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(names.ENV, "prod")
    with pytest.raises(ConfigurationError, match="/loomjobs/prod/queues/billing/url"):
        enqueue(WRITE, ONE)


@pytest.mark.parametrize("missing", [names.TABLE, names.DLQ_URL, names.SOURCE_URL, names.RECORD_TTL, names.QUEUE])
def test_a_worker_without_a_variable_does_not_start_and_names_it(aws: Aws, missing: str) -> None:
    environment = aws.environment("billing")
    del environment[missing]
    with pytest.raises(ConfigurationError, match=missing):
        process.worker_process(environment, catalogue(WRITE))


def test_a_worker_of_a_queue_without_jobs_does_not_start(aws: Aws) -> None:
    with pytest.raises(ConfigurationError, match="declares a job on queue 'billing'"):
        process.worker_process(aws.environment("billing"), catalogue(declare("mail.send", MAIL)))


def test_a_job_sends_what_it_declares_and_its_trace_goes_along(aws: Aws) -> None:
    mail = declare("mail.send", MAIL)

    def relay(statement: Statement, ctx: Any) -> None:
        ctx.enqueue(mail, statement)
        enqueue(mail, statement)  # the plain function is the same inside a job

    write = declare("billing.write", function=relay, sends=[mail])
    trace = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
    aws.handler(write)(event(body(trace=trace, hops=2)), Context())
    import json

    sent = [json.loads(record["body"]) for record in aws.receive("mail")["Records"]]
    assert [(each["job"], each["trace"], each["hops"]) for each in sent] == [("mail.send", trace, 3)] * 2


def test_an_undeclared_send_is_refused_with_the_cure_and_is_permanent(aws: Aws) -> None:
    mail = declare("mail.send", MAIL)
    seen: list[Exception] = []

    def relay(statement: Statement, ctx: Any) -> None:
        try:
            enqueue(mail, statement)
        except UndeclaredSend as error:
            seen.append(error)
            raise

    write = declare("billing.write", function=relay)
    assert failed(aws.handler(write)(event(body()), Context())) == []
    assert "sends=[...]" in str(seen[0])
    assert aws.receive("mail") == {"Records": []}
    assert len(aws.receive("billing-dlq")["Records"]) == 1


def test_a_job_reaches_what_it_declares_and_nothing_else(aws: Aws) -> None:
    secret = boto3.client("secretsmanager").create_secret(Name="token", SecretString="s3cret")
    seen: list[str] = []

    def look(statement: Statement, ctx: Any) -> None:
        seen.append(ctx.address(Resource("statements")))
        seen.append(ctx.address(Setting("sender")))
        seen.append(ctx.secret(Secret("token")))
        ctx.address(Resource("ledger"))

    uses = [Resource("statements").to("write"), Setting("sender"), Secret("token")]
    environment = aws.environment("billing") | {
        names.address_key("statements"): "bucket",
        names.setting_key("sender"): "a@b.c",
        names.secret_key("token"): secret["ARN"],
        names.address_key("ledger"): "must not be seen",
    }
    from loomjobs.aws.handler import make_handler

    job = declare("billing.write", function=look, uses=uses)
    handler = make_handler(process.worker_process(environment, catalogue(job)))
    assert failed(handler(event(body()), Context())) == ["m0"]
    assert seen == ["bucket", "a@b.c", "s3cret"]
    record = aws.item("billing.write#c1/2026-01-01")
    assert record is not None
    assert "without declaring it" in record["hist"]["L"][0]["M"]["message"]["S"]


def test_the_status_of_a_job_is_its_record(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    def count(statement: Statement, ctx: Any) -> int:
        return 42

    write = declare("billing.write", function=count)
    boto3.client("ssm").put_parameter(
        Name="/loomjobs/dev/foundation/executions/name", Value="executions", Type="String"
    )
    monkeypatch.setenv(names.ENV, "dev")
    assert status(write, ONE).state == "unknown"
    with pytest.raises(NoResult, match="is unknown"):
        status(write, ONE).result()
    aws.handler(write)(event(body()), Context())
    assert (status(write, ONE).state, status(write, ONE).attempts, status(write, ONE).result()) == ("succeeded", 1, 42)


def tick(name: str, at: str) -> str:
    import json

    return json.dumps({"job": names.TICK_JOB, "payload": {"schedule": name, "at": at}})


def test_a_tick_becomes_the_jobs_message_once_however_often_and_late_it_comes(aws: Aws) -> None:
    ticks: list[Tick] = []

    def payload(each: Tick) -> Statement:
        ticks.append(each)
        return Statement("all", each.at.date())

    monthly = Schedule(
        name="billing.close",
        job=WRITE,
        when=cron("0 2 1 * ? *"),
        payload=payload,
        why="the books close",
        missed=MissedRuns.SKIP,
        overlap=Overlap.ALLOW,
    )
    from loomjobs.aws.handler import make_handler

    aws.queue("ticks")
    aws.queue("ticks-dlq")
    loaded = with_ticks(catalogue(WRITE, schedules=[monthly]))
    handler = make_handler(process.worker_process(aws.environment("ticks"), loaded))
    for at in ("2026-02-01T02:00:00Z", "2026-02-01T02:00:00Z", "2026-02-01T03:00:00+01:00"):
        assert failed(handler(event(tick("billing.close", at)), Context())) == []
    assert ticks == [Tick("billing.close", datetime(2026, 2, 1, 2, tzinfo=UTC))]
    assert len(aws.receive("billing")["Records"]) == 1


def test_a_tick_of_a_schedule_that_is_gone_is_a_dead_letter(aws: Aws) -> None:
    from loomjobs.aws.handler import make_handler

    aws.queue("ticks")
    aws.queue("ticks-dlq")
    handler = make_handler(process.worker_process(aws.environment("ticks"), with_ticks(catalogue(WRITE))))
    assert failed(handler(event(tick("gone", "2026-02-01T02:00:00Z")), Context())) == []
    assert len(aws.receive("ticks-dlq")["Records"]) == 1


def test_where_the_scheduled_instant_was_not_substituted_the_minute_of_arrival_stands_in() -> None:
    received = event(tick("billing.close", names.SCHEDULED_TIME))
    sent = datetime.fromtimestamp(int(received["Records"][0]["attributes"]["SentTimestamp"]) / 1000, UTC)
    filled = with_scheduled_time(received)["Records"][0]["body"]
    assert sent.replace(second=0, microsecond=0).isoformat() in filled
    assert with_scheduled_time({"Records": []}) == {"Records": []}
    assert with_scheduled_time(None) is None
