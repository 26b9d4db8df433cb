"""What a worker may do that sends to a queue with an `admit=`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from loomjobs import Admit, Queue, Workload
from loomjobs.core.environment import Environment
from tests.core.catalogue_fixture import BILLING, MAIL, catalogue, declare
from tests.infra.conftest import Synthesize, Synthesized

DEV = Environment(name="dev", retain=False)


@pytest.fixture(scope="module")
def made(synthesize: Synthesize) -> Synthesized:
    counted = Queue("counted", workload=Workload.BULK, admit=Admit(depth=10, on_error="open"))
    aged = Queue("aged", workload=Workload.BULK, admit=Admit(age=timedelta(hours=1), on_error="closed"))
    first, second = declare("counted.do", counted), declare("aged.do", aged)
    jobs = [first, second, declare("billing.write", BILLING, sends=[first]), declare("mail.send", MAIL, sends=[second])]
    return synthesize(catalogue(*jobs), DEV, {})


def rights(made: Synthesized, worker: str) -> list[tuple[str, Any]]:
    """Single actions of a role, with the queue or resource that each is for."""
    policies = [each for stack, _, each in made.resources("AWS::IAM::Policy") if stack == f"loomjobs-dev-{worker}"]
    found = []
    for statement in (each for policy in policies for each in policy["PolicyDocument"]["Statement"]):
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        for on in statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]:
            reference = on.get("Ref", "") if isinstance(on, dict) else on
            parameter = made.templates[f"loomjobs-dev-{worker}"]["Parameters"].get(reference, {})
            found += [(action, parameter.get("Default", reference)) for action in actions]
    return found


def test_it_may_count_the_messages_of_that_queue_and_no_other(made: Synthesized) -> None:
    counts = [on for action, on in rights(made, "worker-billing") if action == "sqs:GetQueueAttributes"]
    assert counts == ["/loomjobs/dev/queues/billing/arn", "/loomjobs/dev/queues/counted/arn"]


def test_it_may_read_metrics_only_where_the_policy_has_an_age(made: Synthesized) -> None:
    metric = "cloudwatch:GetMetricStatistics"
    assert ("sqs:GetQueueAttributes", "/loomjobs/dev/queues/aged/arn") in rights(made, "worker-mail")
    assert (metric, "*") in rights(made, "worker-mail")
    for worker in ("worker-billing", "worker-aged", "worker-counted"):
        assert metric not in dict(rights(made, worker))


def test_the_relay_of_committed_calls_may_send_and_not_ask(made: Synthesized) -> None:
    actions = {action for action, _ in rights(made, "outbox") if action.startswith(("sqs:", "cloudwatch:"))}
    assert actions == {"sqs:SendMessage"}
