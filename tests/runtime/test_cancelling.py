"""`cancel`: what it comes to in every state, on records that others change meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from loomjobs.core.defaults import RECORD_TTL
from loomjobs.core.errors import InvalidOption, StoreUnavailable
from loomjobs.core.key import EACH_ENQUEUE
from loomjobs.core.record import record_id
from loomjobs.core.write import Item, Write, Written
from loomjobs.local.clock import Clock
from loomjobs.local.store import MemoryStore
from loomjobs.runtime.cancelling import Cancelled, cancel, cancel_of, telling_time
from loomjobs.runtime.status import reading, status
from tests.core.catalogue_fixture import Statement, declare

WRITE = declare("billing.write")
ANY = declare("billing.any", key=EACH_ENQUEUE)
ONE = Statement("c1", date(2026, 1, 1))
KEY = "c1/2026-01-01"
ID = record_id("billing.write", KEY)
CLOCK = Clock()
MILLIS = int(CLOCK.now.timestamp() * 1000)


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    made = MemoryStore()
    with reading(made), telling_time(CLOCK):
        yield made


def stored(status: str, **attributes: Any) -> dict[str, Any]:
    first = {"id": ID, "status": status, "owner": "o", "epoch": 1, "n": 0, "expiration": MILLIS // 1000 + 900}
    return first | {"in_progress_expiration": MILLIS + 60_000} | attributes


def test_a_job_is_cancelled_before_it_has_a_record_for_as_long_as_a_message_of_it_can_live(store: MemoryStore) -> None:
    assert cancel(WRITE, ONE) == Cancelled(WRITE, KEY, "cancelled", "cancelled")
    assert status(WRITE, ONE).state == "cancelled"
    assert store.items[ID]["expiration"] == MILLIS // 1000 + RECORD_TTL
    assert cancel(WRITE, ONE).outcome == "cancelled"


@pytest.mark.parametrize(
    ("state", "outcome", "left", "says"),
    [
        ("WAITING", "cancelled", "CANCELLED", "cancelled"),
        ("QUEUED", "cancelled", "CANCELLED", "cancelled"),
        ("CANCELLED", "cancelled", "CANCELLED", "cancelled"),
        ("INPROGRESS", "requested", "INPROGRESS", "running"),
        ("COMPLETED", "too-late", "COMPLETED", "succeeded"),
        ("DYING", "too-late", "DYING", "dead"),
        ("DEAD", "too-late", "DEAD", "dead"),
        ("EXPIRED", "too-late", "EXPIRED", "expired"),
        ("PAUSED", "too-late", "PAUSED", "unknown"),
    ],
)
def test_every_state_has_its_outcome(store: MemoryStore, state: str, outcome: str, left: str, says: str) -> None:
    store.items[ID] = stored(state)
    for _ in range(2):
        assert cancel(WRITE, ONE) == Cancelled(WRITE, KEY, outcome, says)  # type: ignore[arg-type]
        assert store.items[ID]["status"] == left
    assert ("cancel" in store.items[ID]) == (state in ("WAITING", "QUEUED", "INPROGRESS"))


def test_each_enqueue_is_cancelled_by_the_id_that_enqueue_returned(store: MemoryStore) -> None:
    with pytest.raises(InvalidOption, match="Pass key= with the id that enqueue returned"):
        cancel(ANY, ONE)
    assert cancel(ANY, key="t1").outcome == "cancelled"
    assert record_id("billing.any", "t1") in store.items


def test_a_key_is_given_or_derived_and_not_both_or_empty(store: MemoryStore) -> None:
    assert cancel(WRITE, key=KEY) == cancel(WRITE, ONE)
    with pytest.raises(InvalidOption, match="not both"):
        cancel(WRITE, ONE, key=KEY)  # type: ignore[call-overload]
    with pytest.raises(InvalidOption, match="key= is empty"):
        cancel(WRITE, key="")


class Busy(MemoryStore):
    """A record that somebody else changes before each of our writes, as long as there are `changes`."""

    def __init__(self, *changes: Item) -> None:
        super().__init__()
        self.changes = list(changes)

    def write(self, write: Write, /) -> Written:
        if self.changes:
            self.items[write.id] = self.changes.pop(0)
        return super().write(write)


@pytest.mark.parametrize(
    ("seen", "changes", "outcome"),
    [
        (None, [stored("INPROGRESS")], "requested"),
        (None, [stored("INPROGRESS"), stored("COMPLETED")], "too-late"),
        (stored("WAITING"), [stored("INPROGRESS", epoch=2), stored("WAITING", epoch=2)], "cancelled"),
        (stored("INPROGRESS"), [stored("INPROGRESS", owner="p", epoch=2)], "requested"),
        (stored("INPROGRESS"), [stored("INPROGRESS", cancel=1)], "requested"),
        (stored("WAITING"), [stored("CANCELLED")], "cancelled"),
    ],
)
def test_a_race_is_settled_by_looking_again(seen: Item | None, changes: list[Item], outcome: str) -> None:
    store = Busy(*changes)
    if seen is not None:
        store.items[ID] = seen
    assert cancel_of(WRITE, KEY, store=store, clock=CLOCK).outcome == outcome


def test_a_record_that_never_holds_still_is_an_error_that_says_what_to_do() -> None:
    store = Busy(*(stored("WAITING", epoch=epoch) for epoch in range(2, 12)))
    with pytest.raises(StoreUnavailable, match=f"billing.write {KEY}: its record changed 6 times.*cancel it again"):
        cancel_of(WRITE, KEY, store=store, clock=CLOCK)


def test_a_record_that_vanishes_between_look_and_write_is_looked_for_again() -> None:
    class Vanishing(MemoryStore):
        def write(self, write: Write, /) -> Written:
            self.items.pop(ID, None) if "nb" in write.removes else None
            return super().write(write)

    store = Vanishing()
    store.items[ID] = stored("WAITING")
    assert cancel_of(WRITE, KEY, store=store, clock=CLOCK).outcome == "cancelled"
    assert store.items[ID]["epoch"] == 1


@pytest.mark.parametrize("fault", ["refused", "reply-lost"])
def test_a_store_that_does_not_answer_is_said_and_a_second_cancel_settles_it(store: MemoryStore, fault: Any) -> None:
    store.faults = [fault]
    with pytest.raises(StoreUnavailable):
        cancel(WRITE, ONE)
    assert cancel(WRITE, ONE).outcome == "cancelled"


def test_without_a_clock_of_its_own_a_cancel_is_of_now() -> None:
    store = MemoryStore()
    before = datetime.now(UTC)
    with reading(store):
        cancel(WRITE, ONE)
    at = datetime.fromtimestamp(store.items[ID]["cancel"] / 1000, UTC)
    assert timedelta(seconds=-1) < at - before < timedelta(minutes=1)
