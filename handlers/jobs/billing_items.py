"""How purchases and statements lie in the billing table: keys and items, as DynamoDB's API takes them.

    pk                  sk                  attributes
    purchases#1997-01   00001#00000002      on, cds, amount
    customer#00001      statement#1997-01   total, purchases: [{number, on, cds, amount}]

A month's purchases share a partition, sorted by customer: the close reads them in order, and consistently, which an
index could not give. Statements lie with their customer, so that writing a month of them is spread over the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from jobs.statement import Purchase, Statement, StatementId, month_of

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef as AttributeValue

Item: TypeAlias = "dict[str, AttributeValue]"
Stored: TypeAlias = Mapping[str, Any]


def purchase_item(purchase: Purchase) -> Item:
    return {
        "pk": {"S": purchases_key(purchase.on)},
        "sk": {"S": f"{purchase.customer_id}#{purchase.number:08d}"},
        **_bought(purchase),
    }


def purchase_of(item: Stored) -> Purchase:
    customer_id, _, number = item["sk"]["S"].partition("#")
    return _purchase(item, customer_id, int(number))


def statement_item(statement: Statement) -> Item:
    return {
        **statement_key(statement.id),
        "total": {"N": str(statement.total)},
        "purchases": {"L": [{"M": _line(purchase)} for purchase in statement.purchases]},
    }


def statement_of(item: Stored) -> Statement:
    customer_id = item["pk"]["S"].partition("#")[2]
    period = date.fromisoformat(item["sk"]["S"].partition("#")[2] + "-01")
    lines = [line["M"] for line in item["purchases"]["L"]]
    purchases = tuple(_purchase(line, customer_id, int(line["number"]["N"])) for line in lines)
    return Statement(StatementId(customer_id, period), purchases)


def purchases_key(day: date) -> str:
    """The partition of the month that `day` is in."""
    return f"purchases#{month_of(day)}"


def range_of_customers(first: str, last: str) -> tuple[str, str]:
    """Bounds of the sort keys of all customers from `first` to `last`, both included."""
    # "#" sorts below and "~" above every character of a customer id, so "1#" to "10#~" holds 1 and 10 but not 100.
    return f"{first}#", f"{last}#~"


def statement_key(id: StatementId) -> Item:
    return {"pk": {"S": f"customer#{id.customer_id}"}, "sk": {"S": f"statement#{id.month}"}}


def _line(purchase: Purchase) -> Item:
    return {"number": {"N": str(purchase.number)}, **_bought(purchase)}


def _bought(purchase: Purchase) -> Item:
    return {
        "on": {"S": purchase.on.isoformat()},
        "cds": {"N": str(purchase.cds)},
        "amount": {"N": str(purchase.amount)},
    }


def _purchase(item: Stored, customer_id: str, number: int) -> Purchase:
    # DynamoDB gives 12.00 back as 12
    amount = Decimal(item["amount"]["N"]).quantize(Decimal("0.01"))
    return Purchase(number, customer_id, date.fromisoformat(item["on"]["S"]), int(item["cds"]["N"]), amount)
