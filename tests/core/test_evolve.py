"""Payloads that changed, and jobs that were removed."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from loomjobs.core.catalogue import Catalogue
from loomjobs.core.decision import Acknowledge, DeadLetter, DeferFor
from loomjobs.core.declare import job
from loomjobs.core.delivery import Attribute, Delivery
from loomjobs.core.errors import BadPayload, DeclarationError
from loomjobs.core.evolve import Tombstone, tombstone, upcast
from loomjobs.core.job import Job
from loomjobs.core.letter import ATTRIBUTE
from loomjobs.core.payload import digest
from loomjobs.core.plan import make_plan
from loomjobs.core.registry import isolated
from loomjobs.core.work import Unworkable, Work, understand
from tests.core.catalogue_fixture import BILLING, DEV, LEDGER, MAIL, Statement, declare, run

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = ("customer_id", "period")


def one_to_two(old: dict[str, Any]) -> dict[str, Any]:
    old["customer_id"] = old.pop("customer")
    return old


def two_to_three(old: dict[str, Any]) -> dict[str, Any]:
    return {**old, "period": old["period"] + "-01"}


STEPS = {1: one_to_two, 2: two_to_three}
WRITE = declare("billing.write", version=3, upcasters=STEPS)
GRAVE = Tombstone("billing.old", BILLING, "replaced by billing.write in 2026-10", "jobs.removed", "jobs/removed.py:3")
ALL = Catalogue((WRITE,), tombstones=(GRAVE,))


def delivery(queue: str = "billing", **members: Any) -> Delivery:
    return Delivery(message_id="m1", body=json.dumps(members), receipt="r", queue=queue, sent_at=NOW, received_at=NOW)


def understood(payload: object, version: int, among: Job[Any, Any] = WRITE) -> Work | Unworkable:
    body = {"job": among.name, "payload": payload, "payload_version": version}
    return understand(delivery(**body), Catalogue((among,)))


def letter(found: Work | Unworkable) -> tuple[str, str]:
    assert isinstance(found, Unworkable)
    assert isinstance(found.decision, DeadLetter)
    assert found.decision.failure is not None
    return found.decision.reason, found.decision.failure.message


@pytest.mark.parametrize(
    ("version", "payload"),
    [
        (1, {"customer": "c1", "period": "2026-01"}),
        (2, {"customer_id": "c1", "period": "2026-01"}),
        (3, {"customer_id": "c1", "period": "2026-01-01"}),
    ],
)
def test_a_payload_of_every_version_reaches_the_job_at_its_own(version: int, payload: dict[str, str]) -> None:
    work = understood(payload, version)
    assert isinstance(work, Work)
    assert work.payload == Statement("c1", date(2026, 1, 1))
    assert work.key == "c1/2026-01-01"


def test_the_hash_is_that_of_the_payload_as_it_was_sent() -> None:
    sent = {"customer": "c1", "period": "2026-01"}
    work = understood(sent, 1)
    assert isinstance(work, Work)
    assert work.payload_hash == digest({"customer": "c1", "period": "2026-01"})
    assert work.envelope.payload == sent


def test_an_upcaster_that_changes_what_it_was_given_changes_a_copy() -> None:
    deep = {"customer": "c1", "lines": [{"n": 1}]}

    def change(old: dict[str, Any]) -> dict[str, Any]:
        old["lines"][0]["n"] = 2
        return old

    assert upcast(deep, 1, {1: change}, to=2) == {"customer": "c1", "lines": [{"n": 2}]}
    assert deep == {"customer": "c1", "lines": [{"n": 1}]}


def test_without_upcasters_an_old_payload_is_read_as_it_is() -> None:
    plain = {"customer_id": "c1", "period": "2026-01-01"}
    assert upcast(plain, 1, {}, to=3) is plain
    assert isinstance(understood(plain, 1, declare("billing.write", version=3)), Work)


def test_a_newer_version_still_waits_for_the_deploy() -> None:
    found = understood({}, 4)
    assert isinstance(found, Unworkable)
    assert isinstance(found.decision, DeferFor)


def test_an_upcaster_that_raises_is_a_dead_letter_that_names_the_step_and_no_value() -> None:
    reason, text = letter(understood({"secret": "hunter2"}, 1))
    assert reason == "bad-payload"
    assert "the upcaster from version 1 to 2 (one_to_two) raised KeyError" in text
    reason, text = letter(understood({"customer_id": "c1"}, 2))
    assert "from version 2 to 3 (two_to_three) raised KeyError" in text


@pytest.mark.parametrize("payload", [[1], "text", None, 7])
def test_what_is_no_object_cannot_be_lifted(payload: object) -> None:
    assert letter(understood(payload, 1))[0] == "bad-payload"


def test_an_upcaster_that_forgets_to_return_is_named() -> None:
    def forgets(old: dict[str, Any]) -> dict[str, Any]:
        return None  # type: ignore[return-value]

    with pytest.raises(BadPayload, match=r"\(forgets\) returned NoneType; return the new payload"):
        upcast({}, 1, {1: forgets}, to=2)


@pytest.mark.parametrize(
    ("version", "upcasters", "what"),
    [
        (3, {2: two_to_three}, "upcasters= has no step from version 1. Add 1: a function from version 1 to 2"),
        (3, {1: one_to_two}, "no step from version 2"),
        (2, {1: one_to_two, 2: two_to_three}, "a step from version 2, and the job is at 2. Raise version= to 3"),
        (1, {1: one_to_two}, "and the job is at 1"),
        (2, {1: "one_to_two"}, "is 'one_to_two', which is no function"),
        (2, {"1": one_to_two}, "the step '1'"),
        (2, {True: one_to_two}, "the step True"),
        (2, {0: one_to_two, 1: one_to_two}, "the step 0"),
        (2, [one_to_two], "is not a mapping"),
    ],
)
def test_steps_that_do_not_add_up_are_refused_at_import_with_the_cure(version: int, upcasters: Any, what: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        declare("billing.write", version=version, upcasters=upcasters)
    assert what in str(caught.value)


def test_a_removed_jobs_message_is_acknowledged_with_the_reason() -> None:
    found = understand(delivery(job="billing.old", payload={"anything": 1}, payload_version=9), ALL)
    assert isinstance(found, Unworkable)
    assert found.decision == Acknowledge("removed", note="replaced by billing.write in 2026-10")
    assert found.job == "billing.old"


def test_on_another_queue_a_removed_jobs_message_is_unroutable() -> None:
    reason, text = letter(understand(delivery("mail", job="billing.old", payload={}), ALL))
    assert (reason, text) == ("unroutable", "job billing.old belongs to queue billing, and this is queue mail")


def test_a_tombstone_keeps_its_queues_worker_and_is_imported_there() -> None:
    grave = Tombstone("mail.old", MAIL, "gone", "jobs.removed", "jobs/removed.py:4")
    plan = make_plan(Catalogue((WRITE,), tombstones=(GRAVE, grave)), DEV)
    billing, mail = plan.worker("billing"), plan.worker("mail")
    assert billing.modules == ("jobs.removed", run.__module__)
    assert (mail.modules, mail.jobs) == (("jobs.removed",), ())
    assert mail.environment["LOOMJOBS_MODULES"] == "jobs.removed"


def test_a_tombstone_is_registered_with_its_place() -> None:
    with isolated() as registry:
        for _ in range(2):
            tombstone("billing.old", queue=BILLING, why="gone")
        grave = registry.tombstones["billing.old"]
    assert (grave.module, grave.why, grave.queue) == (__name__, "gone", BILLING)
    assert "test_evolve.py:" in grave.source


@pytest.mark.parametrize(
    ("name", "options", "what"),
    [
        ("Old", {"queue": BILLING, "why": "gone"}, "is not a job name"),
        ("a.b", {"queue": "billing", "why": "gone"}, "Give the Queue"),
        ("a.b", {"queue": BILLING, "why": " "}, "why= is empty"),
    ],
)
def test_a_tombstone_that_says_too_little_is_refused(name: str, options: Any, what: str) -> None:
    with isolated() as registry, pytest.raises(DeclarationError, match=what):
        tombstone(name, **options)
    assert not registry.tombstones


@pytest.mark.parametrize("first", ["job", "tombstone"])
@pytest.mark.parametrize("aliases", [["billing.old"], []])
def test_a_name_belongs_to_a_job_or_to_a_tombstone(first: str, aliases: list[str]) -> None:
    name = "billing.write" if aliases else "billing.old"

    def bury() -> None:
        tombstone("billing.old", queue=LEDGER, why="gone")

    def live() -> None:
        job(name, queue=BILLING, key=KEY, aliases=aliases)(run)

    one, other = (live, bury) if first == "job" else (bury, live)
    with isolated():
        one()
        with pytest.raises(DeclarationError, match=r"the name billing.old has a tombstone at .*test_evolve.py:\d+"):
            other()


def test_two_tombstones_of_one_name_are_refused() -> None:
    with isolated():
        tombstone("billing.old", queue=BILLING, why="gone")
        with pytest.raises(DeclarationError, match="Keep one of the two"):
            tombstone("billing.old", queue=BILLING, why="gone")


HOURS = timedelta(hours=6)
TIMED = declare("billing.timed", expires=HOURS)


def expires(**members: Any) -> datetime | None:
    body = {"job": "billing.timed", "payload": {"customer_id": "c1", "period": "2026-01-01"}} | members
    work = understand(delivery(**body), Catalogue((TIMED,)))
    assert isinstance(work, Work)
    assert work.expires == work.envelope.expires
    return work.expires


def test_a_deadline_is_the_envelopes_else_the_jobs_own_from_the_enqueue() -> None:
    assert expires(expires="2026-01-01T01:00:00Z") == NOW + timedelta(hours=1)
    assert expires(enqueued_at="2025-12-31T23:00:00Z") == NOW + timedelta(hours=5)
    assert expires() == NOW + HOURS
    assert expires(enqueued_at="9999-12-31T23:00:00Z") is None


def test_a_dead_letter_that_comes_back_has_no_deadline() -> None:
    assert expires(expires="2026-01-01T01:00:00Z", redrives=1) is None
    body = {"job": "billing.timed", "payload": {"customer_id": "c1", "period": "2026-01-01"}}
    back = delivery(**body)
    report = {ATTRIBUTE: Attribute("String", '{"v": 1, "reason": "deadline"}')}
    again = Delivery(
        message_id="m2", body=back.body, receipt="r", queue="billing", sent_at=NOW, received_at=NOW, attributes=report
    )
    work = understand(again, Catalogue((TIMED,)))
    assert isinstance(work, Work)
    assert work.expires is None
