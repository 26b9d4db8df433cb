"""Changes of a catalogue, deployed in order: nothing hinders a removal, and a new job is one file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.environments import ENVIRONMENTS
from infra.provide import Actions, Provided
from loomjobs.core.catalogue import load
from loomjobs.core.environment import Environment
from loomjobs.core.registry import isolated
from loomjobs.core.uses import Resource
from tests.core.catalogue_fixture import BILLING, MAIL, catalogue, declare
from tests.infra.conftest import Synthesize, Synthesized

DEV = Environment(name="dev", settings={"sender": "x"}, retain=False)


def bucket(scope: Any, environment: Environment) -> Provided:
    from aws_cdk import aws_s3 as s3

    made = s3.Bucket(scope, "Statements")
    objects = made.arn_for_objects("statements/*")
    return Provided(
        made.bucket_name, write=Actions("s3:PutObject", on=objects, wildcard="One a month."), read=made.grant_read
    )


def reads(found: Synthesized) -> dict[str, set[str]]:
    """The parameters that each stack reads."""
    return {
        stack: {each["Default"] for each in template.get("Parameters", {}).values() if "SSM" in each["Type"]}
        for stack, template in found.templates.items()
    }


def writes(found: Synthesized) -> set[str]:
    return {each["Name"] for _, _, each in found.resources("AWS::SSM::Parameter")}


@pytest.fixture(autouse=True)
def _no_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    """These little stacks are about references; cdk-nag's findings on them are not of interest."""
    monkeypatch.setattr("infra.application.Validations.of", lambda app: _Quiet())


class _Quiet:
    def add_plugins(self, *plugins: Any) -> None: ...
    def acknowledge(self, *findings: Any) -> None: ...


def test_two_queues_whose_jobs_send_to_each_other_compose(synthesize: Synthesize) -> None:
    ping = declare("billing.ping", BILLING, sends=["mail.pong"])
    pong = declare("mail.pong", MAIL, sends=[ping])
    found = synthesize(catalogue(ping, pong), DEV, {})
    assert "/loomjobs/dev/queues/mail/arn" in reads(found)["loomjobs-dev-worker-billing"]
    assert "/loomjobs/dev/queues/billing/arn" in reads(found)["loomjobs-dev-worker-mail"]
    assert "/loomjobs/dev/queues/mail/url" in reads(found)["loomjobs-dev-worker-billing"]


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(lambda: [declare("billing.write", BILLING), declare("mail.send", MAIL)], id="a use"),
        pytest.param(lambda: [declare("mail.send", MAIL)], id="a queue with its job"),
    ],
)
def test_what_is_removed_is_needed_by_no_stack_that_stays_whatever_the_order(
    synthesize: Synthesize, after: Any
) -> None:
    uses = [Resource("statements").to("write", "read")]
    before = synthesize(
        catalogue(declare("billing.write", BILLING, uses=uses), declare("mail.send", MAIL)), DEV, {"statements": bucket}
    )
    later = synthesize(catalogue(*after()), DEV, {"statements": bucket})
    for found in (before, later):
        text = json.dumps(found.templates)
        assert "ImportValue" not in text
        assert '"Export"' not in text
    for stack, paths in reads(later).items():
        assert {path for path in paths if path.startswith("/loomjobs/")} <= writes(later), stack
    assert not [path for path in reads(later).get("loomjobs-dev-worker-billing", ()) if "/resources/" in path]


def test_a_grant_is_on_the_workers_role_with_its_literal_part_kept(synthesize: Synthesize) -> None:
    write = declare("billing.write", BILLING, uses=[Resource("statements").to("write")])
    found = synthesize(catalogue(write), DEV, {"statements": bucket})
    template = found.templates["loomjobs-dev-worker-billing"]
    (policy,) = [each["Properties"] for each in template["Resources"].values() if each["Type"] == "AWS::IAM::Policy"]
    (statement,) = [each for each in policy["PolicyDocument"]["Statement"] if each["Action"] == "s3:PutObject"]
    (reference, literal) = statement["Resource"]["Fn::Join"][1]
    assert literal == "/statements/*"
    path = template["Parameters"][reference["Ref"]]["Default"]
    assert path.startswith("/loomjobs/dev/resources/statements/refs/")
    assert "s3:GetObject*" not in json.dumps(policy)  # `read` is not declared


def test_a_cdk_grant_method_is_carried_as_it_is(synthesize: Synthesize) -> None:
    read = declare("billing.read", BILLING, uses=[Resource("statements").to("read")])
    found = synthesize(catalogue(read), DEV, {"statements": bucket})
    policy = json.dumps(found.templates["loomjobs-dev-worker-billing"])
    assert "s3:GetObject*" in policy
    assert "s3:PutObject" not in policy


def test_a_new_job_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synthesize: Synthesize) -> None:
    package = tmp_path / "team_of_one"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "queues.py").write_text(
        'from loomjobs import Queue, Workload\n\nshop = Queue("shop", workload=Workload.BACKGROUND)\n'
    )
    (package / "greet.py").write_text(
        "from dataclasses import dataclass\n"
        "from loomjobs import JobContext, job\n"
        "from team_of_one.queues import shop\n\n"
        "@dataclass\nclass Greeting:\n    name: str\n\n"
        '@job("shop.greet", queue=shop, key="name")\n'
        "def greet(greeting: Greeting, ctx: JobContext) -> str:\n    return f'hello {greeting.name}'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with isolated():
        loaded = load("team_of_one")
    try:
        assert loaded.problems == ()
        found = synthesize(loaded, DEV, {})
        worker = found.plan.worker("shop")
        assert (worker.jobs, worker.modules) == (("shop.greet",), ("team_of_one.greet",))
        text = json.dumps(found.templates["loomjobs-dev-worker-shop"])
        assert '"LOOMJOBS_MODULES": "team_of_one.greet"' in text

        from loomjobs.core.call import call
        from loomjobs.local.backend import Backend

        backend = Backend(loaded)
        (greet,) = loaded.jobs
        greeting = sys.modules["team_of_one.greet"].Greeting("you")
        backend.producer.enqueue(call(greet, greeting))
        ((_, decision),) = backend.deliver("shop")
        assert getattr(decision, "why", "") == "succeeded"
    finally:
        for name in [name for name in sys.modules if name.startswith("team_of_one")]:
            del sys.modules[name]


@pytest.mark.parametrize("environment", list(ENVIRONMENTS))
def test_every_environment_composes(reference: Any, environment: str) -> None:
    assert reference(environment).plan.environment == environment


def test_an_unknown_environment_is_an_error_that_lists_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    from infra.synth import chosen

    with pytest.raises(SystemExit, match=r"There is no environment 'prd'.*local, dev, staging, prod"):
        chosen("prd")
    with pytest.raises(SystemExit, match="Which environment"):
        chosen(None)
