"""The prod Plan and the prod templates say the same, read from either side."""

from __future__ import annotations

from typing import Any

from loomjobs.core import names
from loomjobs.core.plan import Parameter
from tests.infra.conftest import Synthesized


def resolved(template: Any, value: Any) -> Any:
    """A template's value with references to SSM parameters as the Plan has them."""
    if isinstance(value, dict) and set(value) == {"Ref"}:
        parameter = template.get("Parameters", {}).get(value["Ref"])
        if parameter is not None:
            return Parameter(parameter["Default"])
    return value


def only(template: Any, kind: str) -> Any:
    (found,) = [each["Properties"] for each in template["Resources"].values() if each["Type"] == kind]
    return found


def test_every_planned_number_and_variable_is_in_the_template(prod: Synthesized) -> None:
    for worker in prod.plan.workers:
        template = prod.templates[worker.stack]
        function, mapping = only(template, "AWS::Lambda::Function"), only(template, "AWS::Lambda::EventSourceMapping")
        assert function["Timeout"] == worker.function_timeout
        assert function["MemorySize"] == worker.memory_mb
        assert function["Handler"] == worker.handler
        assert mapping["BatchSize"] == worker.batch_size
        assert mapping.get("MaximumBatchingWindowInSeconds", 0) == worker.batch_window
        assert mapping["ScalingConfig"]["MaximumConcurrency"] == worker.max_concurrency
        source = Parameter(f"/loomjobs/prod/queues/{worker.queue}/arn")
        assert resolved(template, mapping["EventSourceArn"]) == source
        variables = {key: resolved(template, value) for key, value in function["Environment"]["Variables"].items()}
        release = variables.pop(names.RELEASE)
        assert release == "0" * 12
        assert (names.VALVE_ROLE in variables) == (names.MAPPING in worker.environment)
        variables.pop(names.VALVE_ROLE, None)  # of this stack itself, so no value that the Plan could name
        assert variables == dict(worker.environment)


def test_every_queue_is_as_planned(prod: Synthesized) -> None:
    stack = prod.templates["loomjobs-prod-queues"]["Resources"]
    parameters = {
        each["Properties"]["Name"]: stack[each["Properties"]["Value"]["Fn::GetAtt"][0]]["Properties"]
        for each in stack.values()
        if each["Type"] == "AWS::SSM::Parameter" and each["Properties"]["Name"].endswith("/arn")
    }
    for worker in prod.plan.workers:
        queue = parameters[f"/loomjobs/prod/queues/{worker.queue}/arn"]
        dead = parameters[f"/loomjobs/prod/queues/{worker.queue}/dlq/arn"]
        assert queue["VisibilityTimeout"] == worker.visibility
        assert queue["MessageRetentionPeriod"] == worker.retention
        assert queue["RedrivePolicy"]["maxReceiveCount"] == worker.max_receive_count
        assert dead["MessageRetentionPeriod"] == worker.dlq_retention
        assert queue.get("FifoQueue", False) is worker.fifo


def test_every_schedule_is_as_planned(prod: Synthesized) -> None:
    found = {each["Name"]: each for _, _, each in prod.resources("AWS::Scheduler::Schedule") if "Name" in each}
    assert set(found) == {schedule.name for schedule in prod.plan.schedules}
    for schedule in prod.plan.schedules:
        made = found[schedule.name]
        assert made["ScheduleExpression"] == schedule.expression
        assert made["State"] == ("ENABLED" if schedule.enabled else "DISABLED")
        assert made["Target"]["RetryPolicy"]["MaximumEventAgeInSeconds"] == schedule.retry_age
        assert made["Description"] == schedule.why


def granted(template: Any) -> set[str]:
    """The planned grants that the role's policy shows, by the parameters that its resources come from."""
    statements = [
        statement
        for each in template["Resources"].values()
        if each["Type"] == "AWS::IAM::Policy"
        for statement in each["Properties"]["PolicyDocument"]["Statement"]
    ]
    shown = str([statement["Resource"] for statement in statements])
    return {each["Default"] for name, each in template["Parameters"].items() if name in shown}


def test_every_planned_grant_is_in_the_workers_role_and_the_role_has_no_other(prod: Synthesized) -> None:
    for worker in prod.plan.workers:
        expected = {
            f"/loomjobs/prod/queues/{worker.queue}/arn",
            f"/loomjobs/prod/queues/{worker.queue}/dlq/arn",
            "/loomjobs/prod/foundation/executions/arn",
        }
        if names.OUTBOX in worker.environment:  # the rows of committed calls
            expected |= {"/loomjobs/prod/outbox/table/arn"}
        if names.LATER_ROLE in worker.environment:  # renewals, and calls that are due later than SQS can hold
            expected |= {"/loomjobs/prod/queues/later/group", "/loomjobs/prod/queues/later/role"}
        if names.MAPPING in worker.environment:  # the schedule that switches the mapping on again
            expected.add("/loomjobs/prod/queues/later/group")
        paths = granted(prod.templates[worker.stack]) - expected
        for grant in worker.grants:
            prefix = f"/loomjobs/prod/{'queues' if grant.kind == 'send' else 'resources'}/{grant.target}/"
            matching = {path for path in paths if path.startswith(prefix)}
            own = grant.kind == "send" and grant.target == worker.queue
            assert matching or own or grant.target == "mail", (worker.queue, grant)  # mail's ARN is no reference
        planned = tuple(
            f"/loomjobs/prod/{'queues' if grant.kind == 'send' else 'resources'}/{grant.target}/"
            for grant in worker.grants
        )
        assert not [path for path in paths if not path.startswith(planned)]


def test_nothing_is_deployed_that_the_plan_does_not_have(prod: Synthesized) -> None:
    assert prod.plan.relay is not None
    planned = {worker.stack for worker in prod.plan.workers} | {prod.plan.relay.stack}
    for kind in ("AWS::Lambda::Function", "AWS::Lambda::EventSourceMapping"):
        assert sorted(stack for stack, _, _ in prod.resources(kind)) == sorted(planned)
    queues = [each for stack, _, each in prod.resources("AWS::SQS::Queue") if stack == "loomjobs-prod-queues"]
    assert len(queues) == 2 * len(prod.plan.workers) + 1  # for what one-off schedules could not send
