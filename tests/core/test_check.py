"""The check: relations between declarations and environments, every problem at once."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest

from loomjobs.core.admit import Admit
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.check import check
from loomjobs.core.cron import cron
from loomjobs.core.environment import Environment
from loomjobs.core.problem import Problem
from loomjobs.core.queue import Queue, Workload
from loomjobs.core.retry import Retry
from loomjobs.core.schedule import MissedRuns, Overlap, Schedule
from loomjobs.core.uses import Rate, Resource, Secret, Service, Setting
from tests.core.catalogue_fixture import BILLING, DEV, LEDGER, Statement, catalogue, declare


def whats(problems: list[Problem]) -> str:
    return "\n".join(str(problem) for problem in problems)


def schedule(job: Any, payload: Any, **options: Any) -> Schedule:
    return Schedule(
        name=job.name,
        job=job,
        when=cron("0 2 1 * ? *"),
        payload=payload,
        why="the books close",
        missed=MissedRuns.SKIP,
        overlap=Overlap.ALLOW,
        **options,
    )


def test_a_sound_catalogue_has_no_findings() -> None:
    assert check(catalogue(declare("a.b")), [DEV], provided=()) == []


def test_an_unknown_target_is_reported_with_the_nearest_name() -> None:
    found = check(catalogue(declare("billing.write", sends=["billing.pots"]), declare("billing.post")))
    assert "sends= names 'billing.pots'" in whats(found)
    assert "Did you mean billing.post?" in whats(found)


def test_a_name_taken_by_an_alias_is_reported() -> None:
    found = check(catalogue(declare("a.b"), declare("a.c", aliases=["a.b"])))
    assert "the name a.b is also declared at" in whats(found)


def test_a_batch_that_does_not_fit_lambda_is_reported_with_the_one_that_does() -> None:
    queue = Queue("slow", workload=Workload.BULK, batch_size=10, job_timeout=timedelta(minutes=2))
    found = check(catalogue(declare("a.b", queue)))
    assert "needs 1325 s" in whats(found)
    assert "batch_size=6 fits" in whats(found)


def test_the_suggested_batch_really_fits() -> None:
    for seconds in (50, 90, 120, 400, 440, 895):
        queue = Queue("slow", workload=Workload.BULK, batch_size=10, job_timeout=timedelta(seconds=seconds))
        (problem,) = [one for one in check(catalogue(declare("a.b", queue))) if "needs" in one.what] or [None]
        if problem is None:
            continue
        size = int(problem.cure.split("batch_size=")[1].split()[0])
        fitting = Queue("slow", workload=Workload.BULK, batch_size=size, job_timeout=timedelta(seconds=seconds))
        assert "needs" not in whats(check(catalogue(declare("a.b", fitting))))


def test_a_job_longer_than_lambda_is_told_so() -> None:
    queue = Queue("slow", workload=Workload.BULK, batch_size=1, job_timeout=timedelta(minutes=20))
    assert "Lower job_timeout= to at most 895 s" in whats(check(catalogue(declare("a.b", queue))))


def test_more_attempts_than_the_retention_holds_receives_for_are_reported() -> None:
    found = check(catalogue(declare("a.b", LEDGER, retry=Retry(attempts=200))))
    assert "200 attempts may take 1000 receives" in whats(found)


def test_one_queue_declared_in_two_ways_is_reported() -> None:
    other = Queue("billing", workload=Workload.INTERACTIVE)
    found = check(catalogue(declare("a.b", BILLING), declare("a.c", other)))
    assert "it is declared twice, with different options" in whats(found)


MINUTE = timedelta(minutes=1)


def test_retries_that_may_exceed_a_services_capacity_are_reported_with_both_numbers() -> None:
    """5 attempts by 10 workers; the mean waits 7.5 + 15 + 30 + 60 s are 1.875 minutes, so 26 a minute make 48."""
    service = Service("accounting-api", capacity=Rate(26, per=MINUTE))
    (problem,) = check(catalogue(declare("a.b", uses=[service])))
    assert problem.where == "Service accounting-api"
    assert "50 calls within 112 s, its capacity is 48" in problem.what
    assert "lower max_workers= of billing" in problem.cure
    enough = Service("accounting-api", capacity=Rate(27, per=MINUTE))
    assert not check(catalogue(declare("a.b", uses=[enough])))


def test_all_jobs_of_a_service_share_its_capacity_and_the_shortest_retries_count() -> None:
    service = Service("accounting-api", capacity=Rate(59, per=MINUTE))
    once = Retry(attempts=1)
    assert not check(catalogue(declare("a.b", uses=[service])))
    found = check(catalogue(declare("a.b", uses=[service]), declare("a.c", uses=[service], retry=once)))
    assert "60 calls within 60 s, its capacity is 59" in whats(found)


def test_a_rate_within_the_capacity_bounds_retries_too() -> None:
    slow = Service("accounting-api", capacity=Rate(1, per=timedelta(seconds=1)), rate=Rate(60, per=MINUTE))
    assert not check(catalogue(declare("a.b", uses=[slow])))
    fast = Service("accounting-api", capacity=Rate(1, per=timedelta(seconds=1)), rate=Rate(61, per=MINUTE))
    assert "rate= lets 61 through per 0:01:00" in whats(check(catalogue(declare("a.b", uses=[fast]))))


def test_one_service_declared_in_two_ways_is_reported() -> None:
    jobs = [declare(name, uses=[Service("api", breaker=name == "a.b")]) for name in ("a.b", "a.c")]
    assert "Service api: it is declared in several ways" in whats(check(catalogue(*jobs)))


def test_the_schedulers_queue_name_is_reserved() -> None:
    assert "the name is the scheduler's own" in whats(
        check(catalogue(declare("a.b", Queue("ticks", workload=Workload.BULK))))
    )


def test_what_nobody_provides_and_what_nobody_uses_are_both_reported() -> None:
    job = declare("a.b", uses=[Resource("statments").to("write"), Secret("token")])
    found = check(catalogue(job), provided=["statements", "token"])
    assert "uses 'statments', which infra/resources.py does not provide" in whats(found)
    assert "Did you mean statements?" in whats(found)
    assert [one.severity for one in found] == ["error", "warning"]


def test_a_missing_setting_is_reported_for_each_environment_that_lacks_it() -> None:
    job = declare("a.b", uses=[Setting("sender")])
    found = check(catalogue(job), [DEV, Environment(name="prod")])
    assert [(one.where, one.what) for one in found] == [
        ("environment prod", "the setting 'sender' of job a.b is missing")
    ]


def test_a_missing_network_is_reported() -> None:
    job = declare("a.b", Queue("inner", workload=Workload.BULK, network="private"))
    assert "the network 'private' of queue inner is missing" in whats(check(catalogue(job), [DEV]))


def test_a_schedule_whose_payload_does_not_fit_its_job_is_found_before_its_first_tick() -> None:
    job = declare("billing.close")
    wrong = check(catalogue(job, schedules=[schedule(job, lambda tick: {"customer": 1})]))
    assert "is refused" in whats(wrong)
    raising = check(catalogue(job, schedules=[schedule(job, lambda tick: 1 / 0)]))
    assert "raised ZeroDivisionError" in whats(raising)
    assert not check(catalogue(job, schedules=[schedule(job, lambda tick: Statement("a", date(2026, 1, 1)))]))


def test_a_schedule_for_an_unknown_environment_is_reported() -> None:
    job = declare("billing.close")
    one = schedule(job, lambda tick: Statement("a", date(2026, 1, 1)), only=("lokal",))
    found = check(catalogue(job, schedules=[one]), [DEV, Environment(name="local")])
    assert "only= names the environment 'lokal'" in whats(found)
    assert "Did you mean local?" in whats(found)


def test_variables_that_lambda_would_refuse_are_reported() -> None:
    many = [Resource(f"a-resource-with-quite-a-long-name-{n}").to("read") for n in range(25)]
    found = check(catalogue(declare("a.b", uses=many)), [DEV])
    assert "the variables of worker billing come to about" in whats(found)


def test_problems_of_loading_come_along() -> None:
    broken = Catalogue((declare("a.b"),), (), (Problem("module jobs.x", "it does not import", "Mend it."),))
    assert "module jobs.x" in whats(check(broken, [DEV]))


@pytest.mark.parametrize("name", ["Prod", "", "a" * 21, "pr.od"])
def test_an_environment_name_that_aws_names_cannot_carry_is_refused(name: str) -> None:
    from loomjobs.core.errors import DeclarationError

    with pytest.raises(DeclarationError):
        Environment(name=name)


@pytest.mark.parametrize(
    ("policy", "back", "warned"),
    [
        ({}, "near.do", ["near"]),
        ({}, "far.do", ["far", "near"]),
        ({}, "billing.do", []),
        ({"full": "delay", "delay": timedelta(minutes=1)}, "near.do", []),
    ],
    ids=["to itself", "through another", "through one that takes everything", "a delaying one"],
)
def test_queues_that_may_wait_for_their_own_jobs_are_warned_of(
    policy: dict[str, Any], back: str, warned: list[str]
) -> None:
    admit = Admit(**{"depth": 10, "on_error": "open"} | policy)
    near, far = (Queue(name, workload=Workload.BULK, admit=admit) for name in ("near", "far"))
    jobs = [
        declare("near.do", near, sends=[back]),
        declare("far.do", far, sends=["near.do"]),
        declare("billing.do", BILLING, sends=["near.do"]),
    ]
    found = [problem for problem in check(catalogue(*jobs)) if "a circle of waiting" in problem.what]
    assert [problem.where for problem in found] == [f"queue {name}" for name in warned]
    assert {problem.severity for problem in found} <= {"warning"}
