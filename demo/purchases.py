"""Reads the shop's records: customer id, day, number of CDs, dollar value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from itertools import groupby
from pathlib import Path
from typing import Final

from jobs.statement import Purchase

FILE: Final = Path(__file__).parent / "data" / "cdnow" / "CDNOW_master.txt"


class BadLine(ValueError):
    """A line that is not a purchase; the text names the file and the line."""


def read(path: Path = FILE) -> Iterator[Purchase]:
    """Every purchase, in the file's order; the line number tells equal ones of a day apart."""
    with path.open(encoding="ascii") as file:
        for number, line in enumerate(file, 1):
            is_heading = number == 1 and line.split()[:1] == ["customer_id"]
            if line.strip() and not is_heading:
                yield _purchase(line, number, path)


def month(period: date, *, customers: int | None = None, path: Path = FILE) -> Mapping[str, list[Purchase]]:
    """The purchases of the month by customer, in order of their ids: all, or the first `customers`."""
    inside = sorted(
        (each for each in read(path) if (each.on.year, each.on.month) == (period.year, period.month)),
        key=lambda each: (each.customer_id, each.number),
    )
    grouped = {customer: list(bought) for customer, bought in groupby(inside, key=lambda each: each.customer_id)}
    return dict(list(grouped.items())[:customers])


def _purchase(line: str, number: int, path: Path) -> Purchase:
    fields = line.split()
    try:
        customer, day, cds, amount = fields
        on = datetime.strptime(day, "%Y%m%d").date()  # noqa: DTZ007 a calendar day has no zone
        return Purchase(number, customer, on, int(cds), Decimal(amount))
    except (ValueError, InvalidOperation) as error:
        raise BadLine(f"{path.name}, line {number}: not 'customer YYYYMMDD cds dollars': {error}") from None
