"""Close one page of a month: one job for each of its customers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from jobs.billing_table import BillingTable
from jobs.queues import billing
from jobs.services import billing_table
from jobs.statement import StatementId, check_period
from jobs.write_statement import write_statement
from loomjobs import JobContext, Retry, job


@dataclass(frozen=True, slots=True)
class Page:
    """The customers of a month from `first` to `last`, both included."""

    period: date
    first: str
    last: str

    def __post_init__(self) -> None:
        check_period(self.period)


@job(
    "billing.close-page",
    queue=billing,
    key=("period", "first", "last"),
    retry=Retry(attempts=5, base=timedelta(seconds=30)),
    uses=[billing_table.to("read")],
    sends=[write_statement],
)
def close_page(page: Page, ctx: JobContext) -> int:
    """Send one statement job per customer; returns how many."""
    table = BillingTable(ctx.address(billing_table))
    customers = table.customers(page.period, first=page.first, last=page.last)
    return ctx.enqueue_many(write_statement, (StatementId(each, page.period) for each in customers)).accepted
