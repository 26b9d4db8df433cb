"""One-off schedules: who may make them, what sends them, and what becomes of those that cannot be sent."""

from __future__ import annotations

import json
from typing import Any

from loomjobs.core import names
from loomjobs.core.later import queue_prefix
from tests.infra.conftest import Synthesized

QUEUES = "loomjobs-prod-queues"


def statements(prod: Synthesized, stack: str, action: str) -> list[Any]:
    found = [
        statement
        for policy in prod.templates[stack]["Resources"].values()
        if policy["Type"] == "AWS::IAM::Policy"
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
    ]
    return [each for each in found if each["Action"] == action]


def test_a_worker_may_schedule_for_the_queues_it_sends_to_and_its_own_renewals_and_no_others(prod: Synthesized) -> None:
    for worker in prod.plan.workers:
        made = statements(prod, worker.stack, "scheduler:CreateSchedule")
        shown = json.dumps([each["Resource"] for each in made])
        targets = {grant.target for grant in worker.grants if grant.kind == "send"}
        for queue in {each.queue for each in prod.plan.workers}:
            assert (queue_prefix(queue) + "*" in shown) == (queue in targets), (worker.queue, queue)
        assert ("renew-*" in shown) == (not worker.fifo)
        for each in statements(prod, worker.stack, "iam:PassRole"):
            assert each["Condition"] == {"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}}


def test_the_relay_may_schedule_what_jobs_committed(prod: Synthesized) -> None:
    assert prod.plan.relay is not None
    (made,) = statements(prod, prod.plan.relay.stack, "scheduler:CreateSchedule")
    for grant in prod.plan.relay.grants:
        assert queue_prefix(grant.target) in json.dumps(made["Resource"])


def test_who_may_schedule_is_told_where(prod: Synthesized) -> None:
    for planned in (*prod.plan.workers, prod.plan.relay):
        assert planned is not None
        made = statements(prod, planned.stack, "scheduler:CreateSchedule")
        may = any(
            "send-" in json.dumps(each) or "renew-" in json.dumps(each) for each in made
        )  # and not open-, the valve's
        assert (names.LATER_ROLE in planned.environment) == (names.LATER_DLQ in planned.environment)
        assert may == (names.LATER_ROLE in planned.environment)


def test_the_role_of_the_schedules_sends_to_every_queue_and_to_its_dead_letter_queue(prod: Synthesized) -> None:
    (statement,) = statements(prod, QUEUES, "sqs:SendMessage")
    resources = prod.templates[QUEUES]["Resources"]
    reached = {each["Fn::GetAtt"][0] for each in statement["Resource"]}
    sources = {name for name, each in resources.items() if "RedrivePolicy" in each.get("Properties", {})}
    (undelivered,) = [name for name in resources if name.startswith("LaterUndelivered") and reached & {name}]
    assert reached == sources | {undelivered}
    assert "FifoQueue" not in resources[undelivered]["Properties"]  # EventBridge Scheduler takes none


def test_fifo_queues_take_what_a_schedule_sends(prod: Synthesized) -> None:
    fifo = [each for _, _, each in prod.resources("AWS::SQS::Queue") if each.get("FifoQueue")]
    assert fifo
    assert all(each["ContentBasedDeduplication"] for each in fifo)
