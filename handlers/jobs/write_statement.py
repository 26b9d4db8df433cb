"""Write a customer's monthly statement, once."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from jobs.billing_table import BillingTable
from jobs.queues import billing
from jobs.render_statement import render_statement
from jobs.services import billing_table
from jobs.statement import Statement, StatementId
from loomjobs import JobContext, Permanent, Retry, call, job


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

    The statement, the job that renders it and this job's completion are one transaction. A statement that stands
    already (this job was redriven) is kept, and only sent on.
    """
    table = BillingTable(ctx.address(billing_table))
    purchases = table.purchases(id)
    if not purchases:
        raise Permanent(f"customer {id.customer_id} has no purchases in {id.month}")
    standing = table.statement(id)
    statement = standing or Statement(id, purchases)
    items = [] if standing else [table.put_once(statement)]
    ctx.commit(items=items, enqueue=[call(render_statement, id)], result=statement.total)
    return statement.total
