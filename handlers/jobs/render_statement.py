"""Render a statement as a PDF into the statements bucket, then have it mailed and posted."""

from __future__ import annotations

from datetime import timedelta

from jobs.billing_table import BillingTable
from jobs.clients import s3
from jobs.mail_statement import mail_statement
from jobs.post_statement import post_statement
from jobs.queues import interactive
from jobs.services import billing_table, statements
from jobs.statement import StatementId
from jobs.statement_pdf import draw
from loomjobs import JobContext, Permanent, Retry, job


@job(
    "billing.render-statement",
    queue=interactive,
    key=("customer_id", "period"),
    retry=Retry(attempts=3, base=timedelta(seconds=15)),
    timeout=timedelta(seconds=30),
    exclusive=("customer_id", "period"),
    uses=[billing_table.to("read"), statements.to("write")],
    sends=[mail_statement, post_statement],
)
def render_statement(id: StatementId, ctx: JobContext) -> str:
    """Returns the key of the PDF. Drawing it again gives the same bytes under the same key."""
    statement = BillingTable(ctx.address(billing_table)).statement(id)
    if statement is None:
        raise Permanent(f"no statement of {id.month} is written for customer {id.customer_id}")
    key = object_key(id)
    s3().put_object(
        Bucket=ctx.address(statements),
        Key=key,
        Body=draw(statement),
        ContentType="application/pdf",
    )
    ctx.enqueue(mail_statement, id)
    ctx.enqueue(post_statement, id)
    return key


def object_key(id: StatementId) -> str:
    """`statements/1997-01/00001.pdf`"""
    return f"statements/{id.month}/{id.customer_id}.pdf"
