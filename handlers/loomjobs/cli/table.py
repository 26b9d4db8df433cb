"""Text tables."""

from __future__ import annotations

from collections.abc import Sequence


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as their widest cell, two spaces apart; the last one is not padded."""
    cells = [list(headings), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def seconds(value: float) -> str:
    """`90 s`, `10 min`, `12 h`, `7 d`: the largest unit that is exact."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if value >= size and value % size == 0:
            return f"{value // size:g} {unit}"
    return f"{value:g} s"
