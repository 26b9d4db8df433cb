"""A statement: what one customer bought in one month, and what it comes to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class StatementId:
    """The business key: one customer, one month. `period` is the first day of the month.

    A customer id becomes part of object keys and mail addresses, so it is letters, digits and hyphens only.
    Raises ValueError for anything else, also when a message is decoded.
    """

    customer_id: str
    period: date

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9A-Za-z-]{1,32}", self.customer_id):
            raise ValueError(f"customer_id {self.customer_id!r} is not 1 to 32 letters, digits and hyphens")
        check_period(self.period)

    @property
    def month(self) -> str:
        return month_of(self.period)


@dataclass(frozen=True, slots=True)
class Purchase:
    """One line of the shop's records. `number` tells equal purchases of one day apart; `amount` is in US dollars."""

    number: int
    customer_id: str
    on: date
    cds: int
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Statement:
    """The purchases of one customer and month, in the shop's order."""

    id: StatementId
    purchases: tuple[Purchase, ...]

    @property
    def total(self) -> Decimal:
        """US dollars, exact to the cent."""
        return sum((purchase.amount for purchase in self.purchases), Decimal("0.00"))


def check_period(period: date) -> None:
    """Raises ValueError unless `period` names a month by its first day."""
    if period.day != 1:
        raise ValueError(f"period {period} is not the first day of a month")


def month_of(day: date) -> str:
    """`1997-01`"""
    return f"{day:%Y-%m}"
