"""The key of encrypted payload fields: there where a job has such fields, and for each worker's own jobs only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from loomjobs import Encrypted, JobContext
from loomjobs.core import names
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.environment import Environment
from loomjobs.core.plan import Parameter, make_plan
from tests.core.catalogue_fixture import BILLING, LEDGER, catalogue, declare
from tests.core.catalogue_fixture import run as write
from tests.infra.conftest import Synthesize, Synthesized

DEV = Environment(name="dev", settings={"sender": "a@b.c"})


@dataclass(frozen=True)
class Payment:
    id: str
    iban: Annotated[str, Encrypted()]


def pay(payment: Payment, ctx: JobContext) -> None: ...


def jobs() -> Catalogue:
    paid = declare("ledger.pay", LEDGER, pay, key="id", group="id", aliases=["ledger.paid"])
    return catalogue(paid, declare("billing.write", BILLING, write, sends=[paid]))


@pytest.fixture(scope="module")
def made(synthesize: Synthesize) -> Synthesized:
    return synthesize(jobs(), DEV, {})


def statements(made: Synthesized, stack: str, action: str) -> list[Any]:
    policies = [each for name, _, each in made.resources("AWS::IAM::Policy") if name == stack]
    found = [each for policy in policies for each in policy["PolicyDocument"]["Statement"]]
    return [each for each in found if action in each["Action"]]


def test_an_application_without_encrypted_fields_has_no_key(synthesize: Synthesize) -> None:
    made = synthesize(catalogue(declare("billing.write", BILLING, write)), DEV, {})
    assert list(made.resources("AWS::KMS::Key")) == []
    assert not made.plan.has_key
    assert all(names.KEY not in worker.environment for worker in made.plan.workers)


def test_the_key_rotates_and_is_found_by_parameter(made: Synthesized) -> None:
    ((stack, logical, key),) = made.resources("AWS::KMS::Key")
    assert stack == "loomjobs-dev-foundation"
    assert key["EnableKeyRotation"] is True
    (parameter,) = [
        each
        for _, _, each in made.resources("AWS::SSM::Parameter")
        if each["Name"] == "/loomjobs/dev/foundation/key/arn"
    ]
    assert parameter["Value"] == {"Fn::GetAtt": [logical, "Arn"]}


def test_the_worker_of_the_job_may_decrypt_its_fields_also_under_its_old_name_and_nothing_else(
    made: Synthesized,
) -> None:
    (allowed,) = statements(made, "loomjobs-dev-worker-ledger", "kms:Decrypt")
    assert allowed["Action"] == "kms:Decrypt"
    assert allowed["Condition"] == {"StringEquals": {"kms:EncryptionContext:job": ["ledger.paid", "ledger.pay"]}}
    assert statements(made, "loomjobs-dev-worker-ledger", "kms:GenerateDataKey") == []


def test_the_worker_of_a_job_that_sends_it_may_encrypt_for_it_only(made: Synthesized) -> None:
    (allowed,) = statements(made, "loomjobs-dev-worker-billing", "kms:GenerateDataKey")
    assert allowed["Condition"] == {"StringEquals": {"kms:EncryptionContext:job": "ledger.pay"}} or allowed[
        "Condition"
    ] == {"StringEquals": {"kms:EncryptionContext:job": ["ledger.pay"]}}
    assert statements(made, "loomjobs-dev-worker-billing", "kms:Decrypt") == []


def test_the_plan_gives_the_key_to_those_workers_and_says_why() -> None:
    plan = make_plan(jobs(), DEV)
    for queue, verb, because in (("ledger", "decrypt", "ledger.pay"), ("billing", "encrypt", "billing.write")):
        worker = plan.worker(queue)
        assert worker.environment[names.KEY] == Parameter("/loomjobs/dev/foundation/key/arn")
        assert {(each.verb, *each.because) for each in worker.grants if each.kind == "key"} == {(verb, because)}
