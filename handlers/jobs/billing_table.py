"""Reading and writing the billing table. Every read is consistent: a statement must not miss a purchase."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING, Any

from jobs.billing_items import (
    purchase_of,
    purchases_key,
    range_of_customers,
    statement_item,
    statement_key,
    statement_of,
)
from jobs.clients import dynamodb
from jobs.statement import Purchase, Statement, StatementId

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class BillingTable:
    def __init__(self, name: str, client: DynamoDBClient | None = None) -> None:
        self._name = name
        self._client = client or dynamodb()

    def customers(self, period: date, *, first: str = "", last: str = "~") -> Iterator[str]:
        """Ids of the customers with purchases in the month, from `first` to `last`, in order, each once."""
        before = ""
        for item in self._month(period, first, last, only="sk"):
            customer = item["sk"]["S"].partition("#")[0]
            if customer != before:
                yield customer
            before = customer

    def purchases(self, id: StatementId) -> tuple[Purchase, ...]:
        found = self._month(id.period, id.customer_id, id.customer_id)
        return tuple(purchase_of(item) for item in found)

    def put_once(self, statement: Statement) -> dict[str, Any]:
        """The transaction item that writes a statement, and refuses a second one for its customer and month."""
        condition = "attribute_not_exists(pk)"
        return {"Put": {"TableName": self._name, "Item": statement_item(statement), "ConditionExpression": condition}}

    def statement(self, id: StatementId) -> Statement | None:
        found = self._client.get_item(TableName=self._name, Key=statement_key(id), ConsistentRead=True)
        return statement_of(found["Item"]) if "Item" in found else None

    def _month(self, period: date, first: str, last: str, *, only: str | None = None) -> Iterator[Any]:
        lowest, highest = range_of_customers(first, last)
        projection: dict[str, Any] = {"ProjectionExpression": only} if only else {}
        pages = self._client.get_paginator("query").paginate(
            TableName=self._name,
            KeyConditionExpression="pk = :month AND sk BETWEEN :first AND :last",
            ExpressionAttributeValues={
                ":month": {"S": purchases_key(period)},
                ":first": {"S": lowest},
                ":last": {"S": highest},
            },
            ConsistentRead=True,
            **projection,
        )
        for page in pages:
            yield from page["Items"]
