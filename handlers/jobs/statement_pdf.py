"""Draws a statement. The same statement gives the same bytes, whenever and wherever it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from itertools import islice
from typing import TYPE_CHECKING

from jobs.statement import Purchase, Statement

if TYPE_CHECKING:
    from reportlab.pdfgen.canvas import Canvas

_A4 = (595.28, 841.89)
"""Points. Positions below are points from the left and from the bottom."""
_LEFT, _MIDDLE, _RIGHT = 72, 300, 523
_TOP, _FIRST_LINE, _LAST_LINE, _STEP = 760, 690, 90, 16
_LINES = (_FIRST_LINE - _LAST_LINE) // _STEP
"""Purchases of one page."""


def draw(statement: Statement) -> bytes:
    """A PDF of as many A4 pages as its purchases need, at least one."""
    from reportlab.pdfgen.canvas import Canvas

    # invariant: no date of creation and a fixed document id
    canvas = Canvas(buffer := BytesIO(), pagesize=_A4, invariant=True, pageCompression=1)
    canvas.setTitle(f"Statement {statement.id.customer_id} {statement.id.month}")
    lines = iter(statement.purchases)
    page, more = list(islice(lines, _LINES)), True
    while more:
        _heading(canvas, statement)
        bottom = _purchases(canvas, page)
        page = list(islice(lines, _LINES))
        more = bool(page)
        if not more:
            _total(canvas, statement, bottom)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def _heading(canvas: Canvas, statement: Statement) -> None:
    canvas.setFont("Helvetica-Bold", 16)
    canvas.drawString(_LEFT, _TOP, f"Statement {statement.id.month}")
    canvas.setFont("Helvetica", 11)
    canvas.drawString(_LEFT, _TOP - 24, f"Customer {statement.id.customer_id}")


def _purchases(canvas: Canvas, purchases: Sequence[Purchase]) -> int:
    """One line each; returns where the next line would be."""
    at = _FIRST_LINE
    for purchase in purchases:
        canvas.drawString(_LEFT, at, purchase.on.isoformat())
        canvas.drawRightString(_MIDDLE, at, f"{purchase.cds} CD{'s' if purchase.cds != 1 else ''}")
        canvas.drawRightString(_RIGHT, at, f"{purchase.amount} USD")
        at -= _STEP
    return at


def _total(canvas: Canvas, statement: Statement, at: int) -> None:
    canvas.setFont("Helvetica-Bold", 11)
    canvas.drawString(_LEFT, at - _STEP, "Total")
    canvas.drawRightString(_RIGHT, at - _STEP, f"{statement.total} USD")
