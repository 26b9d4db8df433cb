"""The reference jobs: each effect once, from the purchases as they are."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from pypdf import PdfReader

from jobs import post_statement as posting
from jobs.close_month import PAGE, Close, close_month
from jobs.close_page import Page, close_page
from jobs.mail_statement import address_of, mail_statement
from jobs.post_statement import AccountingError, post_statement
from jobs.render_statement import object_key, render_statement
from jobs.statement import Purchase, Statement, StatementId
from jobs.statement_pdf import draw
from jobs.write_statement import write_statement
from loomjobs import Permanent, Tick, enqueue
from loomjobs.core.classify import classify
from loomjobs.core.errors import BadPayload
from loomjobs.testing import Jobs
from tests.jobs.conftest import PERIOD, Cloud, bought, of


def test_the_close_hands_out_pages_of_customers_with_purchases_in_the_month(jobs: Jobs, cloud: Cloud) -> None:
    count = PAGE + 3
    cloud.load(*(bought(f"{n:05d}", "1.00")[0] for n in range(count)))
    cloud.load(*bought("99999", "1.00", on=date(1997, 2, 1)))
    assert jobs.run(close_month, Close(PERIOD)) == 2
    assert jobs.enqueued(close_page) == [
        Page(PERIOD, "00000", f"{PAGE - 1:05d}"),
        Page(PERIOD, f"{PAGE:05d}", f"{count - 1:05d}"),
    ]


def test_a_page_enqueues_a_statement_for_each_of_its_customers(jobs: Jobs, cloud: Cloud) -> None:
    cloud.load(*(bought(customer, "1.00", "2.00")[0] for customer in ("1", "10", "100", "2")))
    assert jobs.run(close_page, Page(PERIOD, "1", "10")) == 2
    assert jobs.enqueued(write_statement) == [of("1"), of("10")]


def test_the_schedule_closes_the_month_before_its_tick(jobs: Jobs, cloud: Cloud) -> None:
    assert Close.before(Tick("x", datetime(1997, 2, 1, 2, tzinfo=UTC))) == Close(PERIOD)
    assert Close.before(Tick("x", datetime(1998, 1, 1, 2, tzinfo=UTC))) == Close(date(1997, 12, 1))
    outcomes = [jobs.tick(close_month, datetime(1997, 2, 1, 2, tzinfo=UTC)) for _ in range(2)]
    assert [each.state for each in outcomes] == ["succeeded", "succeeded"]
    assert len({each.key for each in outcomes}) == 1


def test_a_statement_adds_up_to_the_cent_and_is_written_once(jobs: Jobs, cloud: Cloud) -> None:
    cloud.load(*bought("1", "0.10", "0.20", "33.33"))
    assert jobs.run(write_statement, of("1")) == Decimal("33.63")
    cloud.load(Purchase(9, "1", date(1997, 1, 9), 1, Decimal("100.00")))
    assert jobs.run(write_statement, of("1")) == Decimal("33.63")
    jobs.assert_enqueued(render_statement, of("1"), times=2)


def test_a_customer_without_purchases_is_a_permanent_failure(jobs: Jobs, cloud: Cloud) -> None:
    with pytest.raises(Permanent, match="no purchases in 1997-01"):
        jobs.run(write_statement, of("1"))


def test_a_statement_is_drawn_as_the_same_bytes_each_time_and_can_be_read(jobs: Jobs, cloud: Cloud) -> None:
    cloud.load(*bought("1", "11.77", "0.23"))
    jobs.run(write_statement, of("1"))
    drawn = []
    for _ in range(2):
        assert jobs.run(render_statement, of("1")) == object_key(of("1")) == "statements/1997-01/1.pdf"
        drawn.append(cloud.s3.get_object(Bucket="bucket", Key="statements/1997-01/1.pdf")["Body"].read())
    assert drawn[0] == drawn[1]
    text = PdfReader(BytesIO(drawn[0])).pages[0].extract_text()
    assert "Customer 1" in text
    assert "12.00 USD" in text
    jobs.assert_enqueued(mail_statement, of("1"), times=2)


@pytest.mark.parametrize(("lines", "pages"), [(0, 1), (1, 1), (37, 1), (38, 2), (100, 3)])
def test_a_long_statement_has_pages_and_its_total_on_the_last(lines: int, pages: int) -> None:
    purchases = tuple(bought("1", *["1.00"] * lines))
    document = PdfReader(BytesIO(draw(Statement(of("1"), purchases))))
    assert len(document.pages) == pages
    assert f"{lines}.00 USD" in document.pages[-1].extract_text()


def test_mail_goes_to_the_simulator_only_and_carries_the_idempotency_key(jobs: Jobs, cloud: Cloud) -> None:
    import boto3

    cloud.load(*bought("1", "5.00"))
    jobs.run(write_statement, of("1"))
    jobs.run(mail_statement, of("1"))
    assert address_of("1") == "success+1@simulator.amazonses.com"
    assert boto3.client("ses").get_send_quota()["SentLast24Hours"] == 1


@pytest.mark.parametrize("customer", ["1@evil", "../x", "", "x" * 33, "a b"])
def test_a_customer_id_that_could_leave_its_place_is_no_payload(customer: str) -> None:
    with pytest.raises((ValueError, BadPayload)):
        enqueue(write_statement, StatementId(customer, PERIOD))


class Accounting:
    """An answer of the accounting system, and what it was asked."""

    def __init__(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        self.answer = SimpleNamespace(status=status, data=b"", json=lambda: body, headers=headers or {})
        self.asked: list[Any] = []

    def request(self, *arguments: Any, **options: Any) -> Any:
        self.asked.append((arguments, options))
        return self.answer


def post(jobs: Jobs, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, accounting: Accounting) -> str:
    cloud.load(*bought("1", "5.00", "0.05"))
    jobs.run(write_statement, of("1"))
    monkeypatch.setattr(posting, "http", lambda: accounting)
    return jobs.run(post_statement, of("1"))


@pytest.mark.parametrize("status", [200, 201])
def test_a_posting_carries_its_key_and_money_as_text(
    jobs: Jobs, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    accounting = Accounting(status, {"entry": 7})
    assert post(jobs, cloud, monkeypatch, accounting) == "7"
    ((method, url), options) = accounting.asked[0]
    assert (method, url) == ("POST", "http://127.0.0.1:9/entries")
    assert options["json"] == {"customer": "1", "period": "1997-01", "total": "5.05", "currency": "USD"}
    key = options["headers"]["Idempotency-Key"]
    assert re.fullmatch("[0-9a-f]{64}", key)
    jobs.run(post_statement, of("1"))
    assert accounting.asked[1][1]["headers"]["Idempotency-Key"] == key
    assert options["headers"]["Authorization"] == "Bearer token"


def test_a_refused_customer_is_a_permanent_failure(jobs: Jobs, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Permanent, match="the account is closed"):
        post(jobs, cloud, monkeypatch, Accounting(422, {"error": "the account is closed"}))


@pytest.mark.parametrize(
    ("status", "kind", "after"), [(429, "throttled", 3.0), (503, "transient", 0.0), (500, "transient", 0.0)]
)
def test_a_busy_accounting_system_is_waited_for(
    jobs: Jobs, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, status: int, kind: str, after: float
) -> None:
    headers = {"Retry-After": "3"} if after else {}
    with pytest.raises(AccountingError) as caught:
        post(jobs, cloud, monkeypatch, Accounting(status, {}, headers))
    sorting = classify(caught.value, post_statement.options.retry, now=datetime.now(UTC))
    assert (sorting.kind, sorting.after) == (kind, after)
