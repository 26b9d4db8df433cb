"""Post a customer's monthly statement to the accounting system."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from jobs.billing_table import BillingTable
from jobs.clients import http
from jobs.queues import accounting
from jobs.services import accounting_api, accounting_token, accounting_url, billing_table
from jobs.statement import Statement, StatementId
from loomjobs import JobContext, Permanent, Retry, job

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse


class AccountingError(Exception):
    """Accounting did not take the statement. Sorted by the status of `response`: 429 and 503 wait for Retry-After."""

    def __init__(self, response: BaseHTTPResponse) -> None:
        self.response = response
        super().__init__(f"accounting answered {response.status}: {response.data[:200]!r}")


@job(
    "accounting.post-statement",
    queue=accounting,
    key=("customer_id", "period"),
    group="customer_id",
    retry=Retry(attempts=25, base=timedelta(seconds=30), cap=timedelta(minutes=10)),
    timeout=timedelta(seconds=90),
    exclusive=("customer_id", "period"),
    uses=[billing_table.to("read"), accounting_api, accounting_url, accounting_token],
)
def post_statement(id: StatementId, ctx: JobContext) -> str:
    """Returns the number of the accounting entry. The other side keeps one entry per `Idempotency-Key`."""
    statement = BillingTable(ctx.address(billing_table)).statement(id)
    if statement is None:
        raise Permanent(f"no statement of {id.month} is written for customer {id.customer_id}")
    response = http().request(
        "POST",
        f"{ctx.address(accounting_url)}/entries",
        json=_entry(statement),
        headers={
            "Authorization": f"Bearer {ctx.secret(accounting_token)}",
            "Idempotency-Key": ctx.idempotency_key,
        },
    )
    if response.status == 422:
        raise Permanent(f"accounting refuses customer {id.customer_id}: {response.json()['error']}")
    if response.status not in (200, 201):
        raise AccountingError(response)
    return str(response.json()["entry"])


def _entry(statement: Statement) -> dict[str, str]:
    """Money travels as text: a JSON number would be read as a float."""
    return {
        "customer": statement.id.customer_id,
        "period": statement.id.month,
        "total": str(statement.total),
        "currency": "USD",
    }
