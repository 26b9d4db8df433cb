"""The bucket of payloads beside messages: how long they live, and who may do what with whose."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from infra.asset import SERVICES
from loomjobs import Queue, Workload
from loomjobs.core import defaults, names
from loomjobs.core.cron import cron
from loomjobs.core.environment import Environment
from loomjobs.core.plan import Parameter
from loomjobs.core.schedule import MissedRuns, Overlap, Schedule
from tests.core.catalogue_fixture import BILLING, MAIL, Statement, catalogue, declare
from tests.infra.conftest import Synthesize, Synthesized

DAY = 86_400
PAYLOADS = "/loomjobs/dev/foundation/payloads/arn"


@pytest.fixture(scope="module")
def made(synthesize: Synthesize) -> Synthesized:
    reports = Queue("reports", workload=Workload.BULK, oversized="offload")
    yearly = Queue("yearly", workload=Workload.BULK, oversized="offload")
    render, close = declare("reports.render", reports), declare("yearly.close", yearly)
    every = Schedule(
        name="yearly.close",
        job=close,
        when=cron("0 2 1 1 ? *"),
        payload=lambda tick: Statement("all", date(2026, 1, 1)),
        why="the year is over",
        missed=MissedRuns.SKIP,
        overlap=Overlap.ALLOW,
    )
    jobs = [render, close, declare("billing.write", BILLING, sends=[render]), declare("mail.send", MAIL)]
    return synthesize(catalogue(*jobs, schedules=[every]), Environment(name="dev", retain=False), {})


def rights(made: Synthesized, worker: str) -> list[tuple[str, str, Any]]:
    """Single actions on the bucket: what of it they are for, and their condition."""
    template = made.templates[f"loomjobs-dev-{worker}"]
    policies = [each["Properties"] for each in template["Resources"].values() if each["Type"] == "AWS::IAM::Policy"]
    statements = [each for policy in policies for each in policy["PolicyDocument"]["Statement"]]
    return [
        (each["Action"], _on(template, each["Resource"]), each.get("Condition"))
        for each in statements
        if str(each["Action"]).startswith("s3:")
    ]


def foundation(made: Synthesized, kind: str) -> tuple[str, Any]:
    ((_, logical, properties),) = [each for each in made.resources(kind) if each[0].endswith("-foundation")]
    return logical, properties


def _on(template: Any, resource: Any) -> str:
    parts = resource["Fn::Join"][1] if "Fn::Join" in resource else [resource]
    texts = [part if isinstance(part, str) else template["Parameters"][part["Ref"]]["Default"] for part in parts]
    return "".join(texts)


def test_a_worker_reads_what_is_beside_the_messages_of_its_own_queue_and_knows_what_is_gone(made: Synthesized) -> None:
    # ListBucket for the prefix: without it S3 answers 403 for what is gone, as for a missing right
    assert rights(made, "worker-reports") == [
        ("s3:GetObject", f"{PAYLOADS}/payloads/reports/*", None),
        ("s3:ListBucket", PAYLOADS, {"StringLike": {"s3:prefix": "payloads/reports/*"}}),
    ]


def test_a_worker_that_sends_to_such_a_queue_stores_there_and_reads_nothing(made: Synthesized) -> None:
    assert rights(made, "worker-billing") == [("s3:PutObject", f"{PAYLOADS}/payloads/reports/*", None)]


def test_the_scheduler_stores_for_its_schedules(made: Synthesized) -> None:
    assert rights(made, "scheduler") == [("s3:PutObject", f"{PAYLOADS}/payloads/yearly/*", None)]


def test_the_relay_and_others_have_no_business_there(made: Synthesized) -> None:
    assert rights(made, "outbox") == []
    assert rights(made, "worker-mail") == []


def test_who_has_a_right_knows_the_bucket_and_nobody_else(made: Synthesized) -> None:
    told = {worker.queue for worker in made.plan.workers if names.PAYLOADS in worker.environment}
    assert told == {"billing", "reports", "yearly", "ticks"}
    assert made.plan.worker("reports").environment[names.PAYLOADS] == Parameter(
        "/loomjobs/dev/foundation/payloads/name"
    )
    assert made.plan.relay is not None
    assert names.PAYLOADS not in made.plan.relay.environment


def test_an_object_outlives_every_message_that_could_ask_for_it(prod: Synthesized) -> None:  # B047
    _, bucket = foundation(prod, "AWS::S3::Bucket")
    (rule,) = bucket["LifecycleConfiguration"]["Rules"]
    longest = max(worker.retention + worker.dlq_retention for worker in prod.plan.workers)
    needed = longest + defaults.PAYLOAD_DELAY + defaults.REDRIVE_WINDOW
    assert rule["ExpirationInDays"] * DAY >= needed
    assert rule["ExpirationInDays"] >= 30
    assert (rule["Prefix"], rule["Status"]) == ("payloads/", "Enabled")
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}


def test_the_bucket_is_private_encrypted_and_not_versioned(prod: Synthesized) -> None:
    logical, bucket = foundation(prod, "AWS::S3::Bucket")
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert "BucketEncryption" in bucket
    assert "VersioningConfiguration" not in bucket
    assert prod.templates["loomjobs-prod-foundation"]["Resources"][logical]["DeletionPolicy"] == "Retain"
    _, policy = foundation(prod, "AWS::S3::BucketPolicy")
    (refused,) = policy["PolicyDocument"]["Statement"]
    assert refused["Effect"] == "Deny"
    assert refused["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_workers_ship_what_boto3_needs_for_it() -> None:
    assert "s3" in SERVICES
