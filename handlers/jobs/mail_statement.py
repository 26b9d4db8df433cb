"""Mail a customer that the statement is there, through SES, to its simulator only.

What SES cannot guarantee: it knows no idempotency key. A crash, or a lost answer, after SES took the mail and before
the job's record says so, makes the next attempt send a second one. The window is the one SendEmail call and the write
after it, some tens of milliseconds. Both mails carry the same `X-Idempotency-Key`, so that a receiver can drop one.
"""

from __future__ import annotations

from datetime import timedelta

from jobs.billing_table import BillingTable
from jobs.clients import ses
from jobs.queues import notifications
from jobs.services import billing_table, mail
from jobs.statement import Statement, StatementId
from loomjobs import JobContext, Permanent, Retry, job


@job(
    "notifications.mail-statement",
    queue=notifications,
    key=("customer_id", "period"),
    retry=Retry(attempts=15, base=timedelta(seconds=15), cap=timedelta(minutes=30)),
    timeout=timedelta(seconds=60),
    uses=[billing_table.to("read"), mail.to("send")],
)
def mail_statement(id: StatementId, ctx: JobContext) -> str:
    """Returns the id that SES gave the mail."""
    statement = BillingTable(ctx.address(billing_table)).statement(id)
    if statement is None:
        raise Permanent(f"no statement of {id.month} is written for customer {id.customer_id}")
    sent = ses().send_email(
        FromEmailAddress=ctx.address(mail),
        Destination={"ToAddresses": [address_of(id.customer_id)]},
        Content={
            "Simple": {
                "Subject": {"Data": f"Your statement for {id.month}"},
                "Body": {"Text": {"Data": _text(statement)}},
                "Headers": [{"Name": "X-Idempotency-Key", "Value": ctx.idempotency_key}],
            }
        },
    )
    return str(sent["MessageId"])


def address_of(customer_id: str) -> str:
    """A mailbox of the SES simulator, which accepts mail and bothers nobody. The worker's role may send nowhere else:
    https://docs.aws.amazon.com/ses/latest/dg/send-an-email-from-console.html#send-email-simulator"""
    return f"success+{customer_id}@simulator.amazonses.com"


def _text(statement: Statement) -> str:
    return (
        f"Customer {statement.id.customer_id}\n\n"
        f"Your statement for {statement.id.month} is ready: {len(statement.purchases)} purchases.\n"
        f"Total: {statement.total} USD\n"
    )
