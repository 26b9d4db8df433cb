"""Close a month: find its customers and hand them out in pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import islice

from jobs.billing_table import BillingTable
from jobs.close_page import Page, close_page
from jobs.queues import billing
from jobs.services import billing_table
from jobs.statement import check_period
from loomjobs import JobContext, MissedRuns, Overlap, Retry, Tick, cron, job, schedule

PAGE = 500
"""Customers of one page: about a second of sending, in 50 requests of 10 messages."""


@dataclass(frozen=True, slots=True)
class Close:
    """`period` is the first day of the month to close."""

    period: date

    def __post_init__(self) -> None:
        check_period(self.period)

    @classmethod
    def before(cls, tick: Tick) -> Close:
        """The month before the tick's."""
        last_day = tick.at.date().replace(day=1) - timedelta(days=1)
        return cls(last_day.replace(day=1))


@job(
    "billing.close-month",
    queue=billing,
    key="period",
    retry=Retry(attempts=5, base=timedelta(seconds=30)),
    uses=[billing_table.to("read")],
    sends=[close_page],
)
def close_month(close: Close, ctx: JobContext) -> int:
    """Send one page job per 500 customers with purchases in the month; returns how many pages.

    A run that crashed half-way is repeated from the start. Pages may then be cut elsewhere, and overlap those sent
    before: a statement's own key keeps it to one.
    """
    customers = BillingTable(ctx.address(billing_table)).customers(close.period)
    pages = (Page(close.period, first, last) for first, last in _cut(customers))
    return ctx.enqueue_many(close_page, pages).accepted


def _cut(customers: Iterator[str]) -> Iterator[tuple[str, str]]:
    """The first and last customer of each page; the ids between them stay in the table."""
    while page := list(islice(customers, PAGE)):
        yield page[0], page[-1]


schedule(
    close_month,
    cron("0 2 1 * ? *"),
    payload=Close.before,
    why="Statements of the past month go out on the 1st; an hour late is harmless, accounting closes at 06:00.",
    missed=MissedRuns.SKIP,
    overlap=Overlap.ALLOW,
    only=["local"],  # a first deploy to AWS bills nobody: add the environments that shall close by themselves
)
