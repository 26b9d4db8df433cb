"""The stacks of one environment, composed from its Plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import App, Stack, Tags, Validations
from aws_cdk import Environment as Place
from cdk_nag import AwsSolutionsChecks

from infra.dashboard import Dashboard
from infra.foundation import Foundation
from infra.outbox import Outbox
from infra.provide import Provider
from infra.queues import Queues
from infra.resource_stack import Resources
from infra.schedules import Schedules
from infra.worker import Code, WorkerStack
from loomjobs.core import names
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.environment import Environment
from loomjobs.core.plan import Plan, make_plan


def compose(
    app: App, environment: Environment, catalogue: Catalogue, *, providers: Mapping[str, Provider], code: Code
) -> Plan:
    """Add every stack to `app`; returns the Plan that they render.

    Stacks refer to each other by parameters, which CloudFormation does not see, so their order is said here: workers
    after outbox, queues, resources and foundation, the outbox after the queues. Nothing points the other way.
    """
    plan = make_plan(catalogue, environment)
    common: dict[str, Any] = {
        "environment": environment,
        "env": Place(account=environment.account, region=environment.region),
    }
    protected: dict[str, Any] = common | {"termination_protection": environment.retain}

    def name(part: str) -> str:
        return names.stack(environment, part)

    foundation = Foundation(app, name("foundation"), plan=plan, **protected)
    # CloudFormation takes no empty stack, and a project begins without jobs and resources
    resources = Resources(app, name("resources"), providers=providers, **protected) if providers else None
    base: list[Stack] = [foundation, *([resources] if resources else [])]
    later: list[Stack] = []
    if plan.workers:
        base.append(Queues(app, name("queues"), plan=plan, **protected))
        later.append(Dashboard(app, name("observability"), plan=plan, **common))
    if plan.relay is not None:
        outbox = Outbox(app, name("outbox"), plan=plan, relay=plan.relay, code=code, **protected)
        for each in base:
            outbox.add_stack_dependency(each)
        base.append(outbox)
    rights = resources.rights if resources else None
    later += [
        WorkerStack(app, worker.stack, worker=worker, rights=rights, code=code, **common) for worker in plan.workers
    ]
    if plan.schedules:
        later.append(Schedules(app, name("schedules"), plan=plan, **common))
    for stack in later:
        for each in base:
            stack.add_stack_dependency(each)
    Tags.of(app).add("app", environment.app)
    Tags.of(app).add("environment", environment.name)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    return plan
