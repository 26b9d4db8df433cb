"""Write a customer's monthly statement, once."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from jobs.billing_table import BillingTable
from jobs.queues import billing
from jobs.render_statement import render_statement
from jobs.services import billing_table
from jobs.statement import Statement, StatementId
from loomjobs import JobContext, Permanent, Retry, job


@job(
    "billing.write-statement",
    queue=billing,
    key=("customer_id", "period"),
    retry=Retry(attempts=5, base=timedelta(seconds=30)),
    uses=[billing_table.to("read", "write")],
    sends=[render_statement],
)
def write_statement(id: StatementId, ctx: JobContext) -> Decimal:
    """Add up the purchases as they are now, not as they were at enqueue; returns the total in US dollars.

    The first statement written for a customer and month stands. A run after a crash finds it and only sends on.
    """
    table = BillingTable(ctx.address(billing_table))
    purchases = table.purchases(id)
    if not purchases:
        raise Permanent(f"customer {id.customer_id} has no purchases in {id.month}")
    statement = table.write_once(Statement(id, purchases))
    ctx.enqueue(render_statement, id)
    return statement.total
