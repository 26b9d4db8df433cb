"""Failures that production teams met, in the templates. The comment behind a test's name is its pitfall's number."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from loomjobs.aws.journal import PowertoolsJournal
from loomjobs.core.claim import Claim
from loomjobs.core.decision import Failure, RetryIn
from loomjobs.core.delivery import Delivery
from loomjobs.core.names import APP
from loomjobs.core.plan import Worker
from loomjobs.runtime.ports import Run
from tests.infra.conftest import ROOT, Synthesized

AT = datetime(2026, 1, 1, tzinfo=UTC)


def alarms(prod: Synthesized, worker: Worker, metric: str) -> list[Any]:
    return [
        each["Properties"]
        for each in prod.templates[worker.stack]["Resources"].values()
        if each["Type"] == "AWS::CloudWatch::Alarm" and each["Properties"]["MetricName"] == metric
    ]


def dimensions(alarm: Any) -> dict[str, Any]:
    return {each["Name"]: each["Value"] for each in alarm["Dimensions"]}


def written(
    worker: Worker, metric: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[tuple[str, dict[str, Any]]]:
    """Namespace and dimensions under which this worker's own journal writes a metric."""
    for name in ("POWERTOOLS_SERVICE_NAME", "POWERTOOLS_METRICS_NAMESPACE"):
        monkeypatch.setenv(name, str(worker.environment[name]))
    journal = PowertoolsJournal(queue=worker.queue, jobs=frozenset(worker.jobs))
    for job in worker.jobs:
        delivery = Delivery(
            message_id="m", body="", receipt="r", queue=worker.queue, sent_at=AT, received_at=AT, receives=1
        )
        journal.ended(
            Run(
                delivery=delivery,
                decision=RetryIn(1.0, Failure("E", "x", "f"), 1),
                job=job,
                failure=Failure("E", "x", "f"),
                sorting="transient",
            )
        )
    journal.counted("StoreUnavailable", None)
    journal.flush()
    found = []
    for line in capsys.readouterr().out.splitlines():
        blob = json.loads(line)
        for directive in blob.get("_aws", {}).get("CloudWatchMetrics", []):
            if metric in blob:
                (names,) = directive["Dimensions"]
                found.append((directive["Namespace"], {name: blob[name] for name in names}))
    return found


def test_a_queue_is_never_consumed_by_reserved_concurrency_and_gives_up_after_five_receives_at_least(
    prod: Synthesized,
) -> None:  # B006
    for _, _, function in prod.resources("AWS::Lambda::Function"):
        assert "ReservedConcurrentExecutions" not in function
    for stack, _, mapping in prod.resources("AWS::Lambda::EventSourceMapping"):
        assert stack.endswith("outbox") or mapping["ScalingConfig"]["MaximumConcurrency"] >= 2
    limits = [
        each["RedrivePolicy"]["maxReceiveCount"]
        for _, _, each in prod.resources("AWS::SQS::Queue")
        if "RedrivePolicy" in each
    ]
    assert len(limits) >= len(prod.plan.workers)
    assert min(limits) >= 5


def test_every_worker_has_an_alarm_on_what_the_loop_guard_dropped_and_none_allows_loops(
    prod: Synthesized,
) -> None:  # B015
    for worker in prod.plan.workers:
        (alarm,) = alarms(prod, worker, "RecursiveInvocationsDropped")
        assert (alarm["Statistic"], alarm["Threshold"], alarm["Namespace"]) == ("Sum", 1, "AWS/Lambda")
        assert list(dimensions(alarm)) == ["FunctionName"]
    for _, _, function in prod.resources("AWS::Lambda::Function"):
        assert function.get("RecursiveLoop", "Terminate") == "Terminate"


def test_every_job_has_an_alarm_on_the_failures_that_its_worker_counts(
    prod: Synthesized, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # B031
    for worker in prod.plan.workers:
        found = alarms(prod, worker, "Failed")
        emitted = written(worker, "Failed", monkeypatch, capsys)
        assert [dimensions(alarm)["job"] for alarm in found] == list(worker.jobs)
        for alarm in found:
            assert (alarm["Namespace"], dimensions(alarm)) in emitted
            assert (alarm["Statistic"], alarm["EvaluationPeriods"], alarm["Period"]) == ("Sum", 5, 60)
            assert alarm["Threshold"] == 10


def test_every_worker_has_an_alarm_on_a_store_that_is_not_available(
    prod: Synthesized, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # B032
    for worker in prod.plan.workers:
        (alarm,) = alarms(prod, worker, "StoreUnavailable")
        assert [(alarm["Namespace"], dimensions(alarm))] == written(worker, "StoreUnavailable", monkeypatch, capsys)
        assert dimensions(alarm) == {"service": worker.environment[APP], "queue": worker.queue, "job": "unmapped"}
        assert (alarm["Statistic"], alarm["Threshold"], alarm["EvaluationPeriods"]) == ("Sum", 1, 1)


def test_the_alarm_shows_both_of_a_stores_ends(prod: Synthesized) -> None:  # B032
    for worker in prod.plan.workers:
        (alarm,) = alarms(prod, worker, "StoreUnavailable")
        assert alarm["AlarmActions"] == alarm["OKActions"]
        assert alarm["TreatMissingData"] == "notBreaching"


def test_the_ttl_attribute_is_the_one_that_records_carry(prod: Synthesized) -> None:  # B033
    claim = Claim(
        id="a", owner="o", now=1, lease=2, payload_hash="p", message="m", sent=1, expires=1_800_000_000, version="v"
    )
    ttl = [
        each["TimeToLiveSpecification"]
        for _, _, each in prod.resources("AWS::DynamoDB::Table")
        if "TimeToLiveSpecification" in each
    ]
    assert len(ttl) == 1
    assert claim.fresh()[ttl[0]["AttributeName"]] == claim.expires


def test_every_queue_has_an_alarm_at_eighty_per_cent_of_what_may_be_in_flight(prod: Synthesized) -> None:  # B048
    for worker in prod.plan.workers:
        (alarm,) = alarms(prod, worker, "ApproximateNumberOfMessagesNotVisible")
        assert (alarm["Namespace"], alarm["Statistic"], alarm["Threshold"]) == ("AWS/SQS", "Maximum", 96_000)
        assert alarm["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
        source = json.dumps(dimensions(alarm)["QueueName"])
        assert f"queues{worker.queue}arn" in source.replace("/", "")
        assert "dlq" not in source


def test_the_dashboard_shows_what_is_in_flight_of_every_queue(prod: Synthesized) -> None:  # B048
    (board,) = [each for _, _, each in prod.resources("AWS::CloudWatch::Dashboard")]
    shown = json.dumps(board["DashboardBody"])
    assert shown.count("ApproximateNumberOfMessagesNotVisible") == len(prod.plan.workers)


def test_the_runbook_says_how_much_comes_to_be_in_flight() -> None:  # B048
    text = (ROOT / "docs" / "runbook.md").read_text()
    _, _, section = text.partition("## Too many messages are in flight")
    section = section.partition("\n## ")[0]
    assert "120,000" in section
    assert "in flight = max_workers" in section
