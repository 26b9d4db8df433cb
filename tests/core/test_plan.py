"""The Plan: numbers derived once, and true for any legal declaration."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomjobs.core import defaults, limits, names
from loomjobs.core.admit import Admit
from loomjobs.core.cron import cron
from loomjobs.core.environment import Environment
from loomjobs.core.grant import Grant
from loomjobs.core.plan import Parameter, function_timeout, make_plan, receive_limit, visibility
from loomjobs.core.queue import Queue, Workload
from loomjobs.core.schedule import MissedRuns, Overlap, Schedule, Tick
from loomjobs.core.uses import Rate, Resource, Secret, Service, Setting
from tests.core.catalogue_fixture import BILLING, DEV, LEDGER, MAIL, Statement, catalogue, declare


def monthly(job: Any, **options: Any) -> Schedule:
    return Schedule(
        name=job.name,
        job=job,
        when=cron("0 2 1 * ? *"),
        payload=lambda tick: Statement("all", date(2026, 1, 1)),
        why="the books close",
        missed=MissedRuns.SKIP,
        overlap=Overlap.ALLOW,
        **options,
    )


def test_the_function_has_time_for_a_full_batch_a_suspect_and_the_reserve() -> None:
    assert function_timeout(BILLING) == 10 * 15 + 15 + defaults.RESERVE


def test_a_batch_of_one_needs_no_room_for_a_suspect() -> None:
    assert function_timeout(Queue("x", workload=Workload.BULK, batch_size=1)) == 30 + defaults.RESERVE


def test_visibility_is_six_function_timeouts_and_the_window() -> None:
    queue = Queue("x", workload=Workload.BULK, batch_size=20, batch_window=timedelta(seconds=5))
    assert visibility(queue) == 6 * function_timeout(queue) + 5


@given(
    batch=st.integers(1, 10),
    timeout=st.integers(1, 80),
    fifo=st.booleans(),
    workers=st.integers(2, 1_000),
)
def test_every_derived_number_is_one_that_aws_takes(batch: int, timeout: int, fifo: bool, workers: int) -> None:
    queue = Queue(
        "x",
        workload=Workload.BULK,
        batch_size=batch,
        fifo=fifo,
        max_workers=workers,
        job_timeout=timedelta(seconds=timeout),
    )
    worker = make_plan(catalogue(declare("a.b", queue)), DEV).worker("x")
    assert worker.function_timeout <= limits.LAMBDA_TIMEOUT_SECONDS
    assert worker.visibility <= limits.SQS_VISIBILITY_SECONDS
    assert worker.visibility >= 6 * worker.function_timeout
    assert limits.SQS_RECEIVE_COUNT[0] <= worker.max_receive_count <= limits.SQS_RECEIVE_COUNT[1]
    assert worker.max_receive_count * worker.visibility < worker.retention
    assert worker.retention < worker.dlq_retention == limits.SQS_RETENTION_SECONDS[1]
    assert worker.downstream_concurrency == workers


def test_a_record_outlives_every_message_that_could_ask_for_it() -> None:
    plan = make_plan(catalogue(declare("a.b")), DEV)
    worker = plan.worker("billing")
    assert plan.record_ttl > worker.retention + worker.dlq_retention


def test_a_grant_says_which_jobs_brought_it() -> None:
    post = declare("ledger.post", LEDGER)
    write = declare("billing.write", uses=[Resource("statements").to("write", "read")], sends=[post])
    again = declare("billing.again", uses=[Resource("statements").to("read")], sends=["ledger.post"])
    worker = make_plan(catalogue(again, write, post), DEV).worker("billing")
    assert worker.grants == (
        Grant("send", "ledger", "send", ("billing.again", "billing.write")),
        Grant("resource", "statements", "read", ("billing.again", "billing.write")),
        Grant("resource", "statements", "write", ("billing.write",)),
    )


def test_a_worker_that_sends_to_a_queue_with_a_policy_may_read_how_full_it_is() -> None:
    counted = Queue("counted", workload=Workload.BULK, admit=Admit(depth=10, on_error="open"))
    aged = Queue("aged", workload=Workload.BULK, admit=Admit(age=timedelta(hours=1), on_error="closed"))
    first, second = declare("counted.do", counted), declare("aged.do", aged)
    write = declare("billing.write", sends=[first, second])
    plan = make_plan(catalogue(first, second, write, schedules=[monthly(first)]), DEV)
    assert [(grant.kind, grant.target) for grant in plan.worker("billing").grants] == [
        ("send", "aged"),
        ("send", "counted"),
        ("age", "aged"),
        ("depth", "aged"),
        ("depth", "counted"),
    ]
    assert plan.worker("aged").admit == aged.admit
    assert plan.relay is not None
    for unasking in (plan.relay, plan.worker(names.TICKS)):
        assert {grant.kind for grant in unasking.grants} == {"send"}


def test_a_worker_is_told_what_it_uses_and_nothing_else() -> None:
    mail = declare("mail.send", MAIL, uses=[Setting("sender"), Secret("token"), Service("ses")])
    write = declare("billing.write", uses=[Resource("statements").to("write")], sends=[mail])
    plan = make_plan(catalogue(mail, write), DEV)
    billing, mailer = plan.worker("billing").environment, plan.worker("mail").environment
    assert billing["LOOMJOBS_SEND_MAIL"] == Parameter("/loomjobs/dev/queues/mail/url")
    assert billing["LOOMJOBS_ADDRESS_STATEMENTS"] == Parameter("/loomjobs/dev/resources/statements/address")
    assert mailer["LOOMJOBS_SETTING_SENDER"] == "a@b.c"
    assert mailer["LOOMJOBS_SECRET_TOKEN"] == Parameter("/loomjobs/dev/resources/token/address")
    assert not {"LOOMJOBS_SETTING_SENDER", "LOOMJOBS_SECRET_TOKEN"} & set(billing)
    assert "LOOMJOBS_SEND_MAIL" not in mailer


def test_a_worker_imports_only_the_modules_of_its_own_jobs() -> None:
    worker = make_plan(catalogue(declare("a.b")), DEV).worker("billing")
    assert worker.modules == ("tests.core.catalogue_fixture",)
    assert worker.environment[names.MODULES] == "tests.core.catalogue_fixture"


def test_the_scheduler_may_send_to_the_queues_of_scheduled_jobs_and_knows_no_settings() -> None:
    close = declare("billing.close", uses=[Setting("sender"), Resource("statements").to("read")])
    plan = make_plan(catalogue(close, schedules=[monthly(close)]), DEV)
    scheduler = plan.worker(names.TICKS)
    assert scheduler.handler == "scheduler.handler"
    assert scheduler.grants == (Grant("send", "billing", "send", ("schedule billing.close",)),)
    assert not [name for name in scheduler.environment if "SETTING" in name or "ADDRESS" in name]


def test_without_schedules_there_is_no_scheduler() -> None:
    assert [worker.queue for worker in make_plan(catalogue(declare("a.b")), DEV).workers] == ["billing"]


def test_a_tick_is_not_retried_for_longer_than_its_period_nor_than_aws_allows() -> None:
    close = declare("billing.close")
    (schedule,) = make_plan(catalogue(close, schedules=[monthly(close)]), DEV).schedules
    assert schedule.retry_age == 86_400
    often = Schedule(
        name="often",
        job=close,
        when=cron("*/5 * * * ? *"),
        payload=lambda tick: tick,
        why="to be sure",
        missed=MissedRuns.SKIP,
        overlap=Overlap.ALLOW,
    )
    assert make_plan(catalogue(close, schedules=[often]), DEV).schedules[0].retry_age == 300


def test_a_schedule_is_enabled_only_where_it_says() -> None:
    close = declare("billing.close")
    declared = catalogue(close, schedules=[monthly(close, only=("local",))])
    assert make_plan(declared, Environment(name="local")).schedules[0].enabled
    assert not make_plan(declared, DEV).schedules[0].enabled


def test_the_plan_is_plain_data() -> None:
    close = declare("billing.close")
    plan = make_plan(catalogue(close, schedules=[monthly(close)]), DEV)
    assert msgspec.json.decode(msgspec.json.encode(plan))["workers"][0]["queue"] == "billing"


@pytest.mark.parametrize("workload", list(Workload))
def test_the_age_alarm_follows_the_latency_class(workload: Workload) -> None:
    queue = Queue("x", workload=workload)
    assert make_plan(catalogue(declare("a.b", queue)), DEV).worker("x").age_alarm == workload.value


def test_a_tick_carries_the_scheduled_instant() -> None:
    at = cron("0 2 1 * ? *").next(_start())
    assert at is not None
    assert Tick("x", at).at.isoformat() == "2026-02-01T02:00:00+00:00"


def _start() -> Any:
    from datetime import UTC, datetime

    return datetime(2026, 1, 15, tzinfo=UTC)


def test_receives_last_for_the_retention_less_a_day() -> None:
    assert receive_limit(BILLING) == (7 - 1) * 86_400 // visibility(BILLING)


def test_a_services_concurrency_is_that_of_all_queues_whose_jobs_use_it_and_its_rate_the_environments() -> None:
    from loomjobs.core.uses import Service

    api = Service(
        "api", rate=Rate(90, per=timedelta(minutes=1)), breaker=True, capacity=Rate(100, per=timedelta(minutes=1))
    )
    side = replace(MAIL, parallel=4, max_workers=3)
    known = catalogue(
        declare("billing.one", uses=[api]), declare("billing.two", uses=[api]), declare("mail.one", side, uses=[api])
    )
    (planned,) = make_plan(known, DEV).services
    assert planned.concurrency == BILLING.max_workers + 12
    assert (planned.rate, planned.capacity, planned.breaker) == ((90, 60.0), (100, 60.0), True)
    quick = replace(DEV, rates={"api": Rate(5, per=timedelta(seconds=1))})
    assert make_plan(known, quick).services[0].rate == (5, 1.0)


def test_a_payload_beside_its_message_outlives_every_message_that_could_ask_for_it() -> None:
    plan = make_plan(catalogue(declare("a.b")), DEV)
    worker = plan.worker("billing")
    needed = worker.retention + worker.dlq_retention + defaults.PAYLOAD_DELAY + defaults.REDRIVE_WINDOW
    assert plan.payload_life >= max(needed, 30 * 86_400)
