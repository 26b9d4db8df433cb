"""The code of the how-to page runs."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

from loomjobs.core.call import call
from loomjobs.sql import SqlOutbox
from tests.core.catalogue_fixture import Statement, declare

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "enqueue-with-postgresql.md"


def test_the_page_puts_an_order_and_its_job_into_one_transaction(connection: Any) -> None:
    known: dict[str, Any] = {
        "SqlOutbox": SqlOutbox,
        "connection": connection,
        "call": call,
        "write": declare("billing.write"),
        "Statement": Statement,
        "date": date,
    }
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, known)
    assert connection.execute("SELECT count(*) FROM orders").fetchone() == (1,)
    assert connection.execute("SELECT count(*) FROM loomjobs_outbox").fetchone() == (1,)
