"""Declaring a job: what is wrong is said at import, all at once, with the cure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pytest

from loomjobs.core.context import JobContext
from loomjobs.core.declaration import payload_problems
from loomjobs.core.declare import job
from loomjobs.core.errors import DeclarationError
from loomjobs.core.job import Job, Options
from loomjobs.core.key import EACH_ENQUEUE
from loomjobs.core.registry import current, isolated
from loomjobs.core.uses import Rate, Resource, Service
from tests.core.catalogue_fixture import BILLING, LEDGER, Statement, run

KEY = ("customer_id", "period")


def declared(function: Any = run, name: str = "billing.write", **options: Any) -> Job[Any, Any]:
    with isolated():
        return job(name, **{"queue": BILLING, "key": KEY} | options)(function)


def problems(function: Any = run, name: str = "billing.write", **options: Any) -> str:
    with pytest.raises(DeclarationError) as caught:
        declared(function, name, **options)
    return str(caught.value)


def test_a_declared_job_stays_a_plain_function() -> None:
    def double(statement: Statement, ctx: JobContext) -> str:
        return statement.customer_id * 2

    assert declared(double)(Statement("ab", date(2026, 1, 1)), None) == "abab"  # type: ignore[arg-type]


def test_the_key_is_required() -> None:
    with pytest.raises(TypeError, match="key"):
        job("a.b", queue=BILLING)  # type: ignore[call-arg]


def test_a_misspelt_option_is_refused() -> None:
    with pytest.raises(TypeError, match="retires"):
        job("a.b", queue=BILLING, key=KEY, retires=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["write", "Billing.write", "billing..write", "billing.write!", "", ".a", "a."])
def test_a_name_is_dotted_and_lower_case(name: str) -> None:
    assert "is not a job name" in problems(name=name)


def test_a_key_that_names_no_field_is_refused_with_the_nearest() -> None:
    assert "customer_id" in problems(key=("custmer_id",))


def test_a_group_is_required_on_fifo_and_refused_elsewhere() -> None:
    assert "queue ledger is FIFO and group= is missing" in problems(queue=LEDGER)
    assert "group= has no effect on standard queue billing" in problems(group="customer_id")
    assert "group='costumer_id' is not a field" in problems(queue=LEDGER, group="costumer_id")


def test_a_timeout_longer_than_the_queues_is_refused() -> None:
    assert "does not fit its queue" in problems(timeout=timedelta(minutes=1))
    assert declared(timeout=timedelta(seconds=5)).timeout == timedelta(seconds=5)
    assert declared().timeout == BILLING.job_timeout


def test_a_time_to_live_is_a_timedelta_above_zero() -> None:
    assert declared(expires=timedelta(hours=1)).options.expires == timedelta(hours=1)
    for wrong in (timedelta(0), timedelta(seconds=-1), timedelta.max, 60):
        assert "is not a time to live. Give a timedelta above 0" in problems(expires=wrong)


@pytest.mark.parametrize("fields", ["customer_id", ("customer_id", "period")])
def test_a_lock_names_payload_fields(fields: Any) -> None:
    assert declared(exclusive=fields).options.exclusive == fields


@pytest.mark.parametrize("fields", [(), 7, ("customer_id", 7)])
def test_a_lock_on_what_is_no_field_is_refused(fields: Any) -> None:
    assert "names no payload field" in problems(exclusive=fields)


def test_a_misspelt_field_of_a_lock_or_a_rate_is_refused_with_the_nearest() -> None:
    assert "exclusive= 'costumer_id' is not a field" in problems(exclusive="costumer_id")
    text = problems(rate=Rate(90, per=timedelta(minutes=1), key="costumer_id"))
    assert "the key of rate= 'costumer_id' is not a field" in text
    assert "Did you mean customer_id?" in text


def test_a_rate_counts_the_whole_job_or_each_value_of_a_field() -> None:
    for key in (None, "customer_id"):
        rate = Rate(90, per=timedelta(minutes=1), key=key)
        assert declared(rate=rate).options.rate == rate
    assert "rate=90 is not a Rate" in problems(rate=90)


def test_a_field_with_several_spellings_tells_no_locks_apart() -> None:
    @dataclass(frozen=True)
    class Loose:
        amount: float
        tenant: str | None

    def run(payload: Loose, ctx: JobContext) -> None: ...

    for name in ("amount", "tenant"):
        with isolated(), pytest.raises(DeclarationError, match="more than one spelling, or may be missing"):
            job("a.b", queue=BILLING, key=EACH_ENQUEUE, exclusive=name)(run)


@pytest.mark.parametrize("option", ["rate", "capacity"])
def test_a_services_limits_have_no_key_since_it_has_no_payload(option: str) -> None:
    with pytest.raises(DeclarationError, match=f"{option}= has key='tenant'"):
        Service("accounting-api", **{option: Rate(1, per=timedelta(seconds=1), key="tenant")})
    with pytest.raises(DeclarationError, match=f"{option}=90 is not a Rate"):
        Service("accounting-api", **{option: 90})


def test_a_bare_resource_is_refused_since_it_says_no_way_of_use() -> None:
    assert 'Resource("statements").to("read")' in problems(uses=[Resource("statements")])


def test_several_problems_come_together() -> None:
    text = problems(name="Write", queue=LEDGER, timeout=timedelta(hours=1))
    assert text.count("\n") >= 2


def test_a_function_of_another_shape_is_refused() -> None:
    def one(statement: Statement) -> None: ...
    def three(statement: Statement, ctx: JobContext, more: int) -> None: ...
    def untyped(statement, ctx): ...  # type: ignore[no-untyped-def]
    def yields(statement: Statement, ctx: JobContext) -> Any:
        yield 1

    assert "A job takes two arguments" in problems(one)
    assert "A job takes two arguments" in problems(three)
    assert "has no type" in problems(untyped)
    assert "its function yields" in problems(yields)


def test_hints_that_do_not_resolve_are_a_listed_problem_and_not_a_name_error() -> None:
    def later(statement: Missing, ctx: JobContext) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    job_ = declared(later)
    (problem,) = payload_problems(job_)
    assert "its annotations do not resolve: name 'Missing' is not defined" in problem.what
    assert "TYPE_CHECKING" in problem.cure


def test_a_payload_defined_inside_a_function_resolves() -> None:
    @dataclass(frozen=True)
    class Inner:
        number: int

    with isolated():

        @job("a.b", queue=BILLING, key="number")
        def inner(payload: Inner, ctx: JobContext) -> None: ...

    assert inner.payload_type is Inner


def test_two_jobs_of_one_name_are_refused_with_both_places() -> None:
    def first(statement: Statement, ctx: JobContext) -> None: ...
    def second(statement: Statement, ctx: JobContext) -> None: ...

    with isolated():
        job("a.b", queue=BILLING, key=KEY)(first)
        with pytest.raises(DeclarationError, match=r"its name is taken by .*test_job.py:\d+"):
            job("a.b", queue=BILLING, key=KEY)(second)


def test_the_same_declaration_may_be_executed_again() -> None:
    with isolated() as registry:
        for _ in range(2):
            job("a.b", queue=BILLING, key=KEY)(run)
        assert list(registry.jobs) == ["a.b"]


def test_a_refused_declaration_is_not_registered() -> None:
    with isolated() as registry:
        with pytest.raises(DeclarationError):
            job("a.b", queue=LEDGER, key=KEY)(run)
        assert not registry.jobs


def test_an_isolated_registry_leaves_the_process_own_alone() -> None:
    before = dict(current().jobs)
    declared(name="only.here")
    assert current().jobs == before


def test_an_async_job_is_known_as_one() -> None:
    async def fetch(statement: Statement, ctx: JobContext) -> int:
        return 1

    assert declared(fetch).is_async
    assert not declared().is_async


def test_each_enqueue_needs_no_field() -> None:
    assert declared(key=EACH_ENQUEUE).options.key is EACH_ENQUEUE


def test_the_summary_is_the_first_line_of_the_docstring() -> None:
    assert declared().summary == "Write a statement."


def test_options_are_kept_as_given() -> None:
    assert declared(version=3, aliases=["billing.old"], strict=True).options == Options(
        queue=BILLING, key=KEY, version=3, aliases=("billing.old",), strict=True
    )


def test_a_job_cannot_alias_itself() -> None:
    assert "its own name stands in aliases=" in problems(aliases=["billing.write"])
