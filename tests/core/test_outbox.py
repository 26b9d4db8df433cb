"""A row of the outbox, to and from what is stored."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomjobs.core.address import address
from loomjobs.core.call import call
from loomjobs.core.outbox import BadRow, Row, age, due, of_item, old_before, row_of, to_item
from loomjobs.core.outgoing import Origin
from tests.core.catalogue_fixture import LEDGER, Statement, declare

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1)


def row(**changes: Any) -> Row:
    given = {"id": "i", "queue": "mail", "body": "{}", "group": None, "dedup": None, "delay": 0, "at": 0}
    return Row(**{**given, **changes})


@given(
    id=TEXT,
    queue=TEXT,
    body=TEXT,
    group=st.none() | TEXT,
    dedup=st.none() | TEXT,
    delay=st.integers(0, 900),
    at=st.integers(0, 2**43),
)
def test_a_row_is_read_as_it_was_stored(**fields: Any) -> None:
    assert of_item(to_item(row(**fields))) == row(**fields)


def test_a_row_is_the_message_that_would_have_been_sent_now() -> None:
    post = declare("ledger.post", LEDGER)
    message = address(call(post, Statement("c1", date(2026, 1, 1))), id="job1", now=NOW, origin=Origin(hops=2))
    made = row_of(message, now=NOW)
    assert (made.id, made.queue, made.body) == ("job1", "ledger", message.body)
    assert (made.group, made.dedup, made.size) == (message.group, message.dedup, message.size)
    assert made.dedup is not None
    assert made.at == int(NOW.timestamp() * 1000)


def test_attributes_of_a_later_version_are_ignored() -> None:
    assert of_item({**to_item(row()), "later": 1}) == row()


@pytest.mark.parametrize("name", ["id", "queue", "body", "at"])
def test_an_item_without_what_a_row_needs_is_named(name: str) -> None:
    item = {key: value for key, value in to_item(row()).items() if key != name}
    with pytest.raises(BadRow, match=name) as raised:
        of_item(item)
    assert raised.value.id == ("" if name == "id" else "i")


@pytest.mark.parametrize(("name", "value"), [("body", 3), ("body", ""), ("at", "x"), ("delay", "5"), ("group", 1)])
def test_an_attribute_of_another_type_is_named(name: str, value: object) -> None:
    with pytest.raises(BadRow, match=name):
        of_item({**to_item(row()), name: value})


@pytest.mark.parametrize(("waited", "left"), [(0, 60), (20.5, 40), (59.9, 1), (60, 0), (500, 0)])
def test_a_delay_counts_from_the_commit(waited: float, left: int) -> None:
    written = row(delay=60, at=int(NOW.timestamp() * 1000))
    assert due(written, now=NOW + timedelta(seconds=waited)).delay == left


def test_a_row_of_a_clock_ahead_of_ours_has_no_negative_age() -> None:
    ahead = row(at=int(NOW.timestamp() * 1000) + 5_000, delay=10)
    assert age(ahead, now=NOW) == 0
    assert due(ahead, now=NOW).delay == 10


def test_rows_of_sixty_seconds_are_the_sweeps() -> None:
    assert old_before(NOW) == int(NOW.timestamp() * 1000) - 60_000
