"""Ending a run: fenced by the owner, replayable, and bounded in size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loomjobs.core.decision import Failure
from loomjobs.core.ending import bury_write, complete_write, defer_write, die_write, fail_write, landed
from loomjobs.core.record import HISTORY, Record, record_id
from loomjobs.core.write import Write, apply

NOW = 1_000_000_000_000
TTL = NOW // 1000 + 86_400
FAILURE = Failure("ValueError", "x" * 2_000, "abc")


def held(**attributes: Any) -> dict[str, Any]:
    return {"id": "a#1", "status": "INPROGRESS", "owner": "mine", "n": 1, "susp": 1, "epoch": 2} | attributes


def complete(record: Record) -> Write:
    return complete_write(record, now=NOW, expires=TTL, result='"ok"')


def fail(record: Record) -> Write:
    return fail_write(record, FAILURE, now=NOW, not_before=NOW + 5, expires=TTL)


def defer(record: Record) -> Write:
    return defer_write(record, not_before=NOW + 5, expires=TTL)


def die(record: Record) -> Write:
    return die_write(record, "permanent", FAILURE, now=NOW, expires=TTL)


ENDINGS = [complete, fail, defer, die]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("lost", [{"owner": "theirs"}, {"status": "COMPLETED"}, {"status": "WAITING"}])
def test_a_late_finisher_changes_nothing(ending: Callable[[Record], Write], lost: dict[str, Any]) -> None:
    assert not apply(ending(Record.of(held())), held(**lost)).applied


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_lost_reply_is_recognised_by_the_owner_and_the_state_it_wrote(
    ending: Callable[[Record], Write],
) -> None:
    record = Record.of(held())
    write = ending(record)
    after = apply(write, held()).item
    assert not apply(write, after).applied
    assert landed(record, write, after)
    assert not landed(record, write, held(owner="theirs", status=write.sets["status"]))
    assert not landed(record, write, None)


@pytest.mark.parametrize(("ending", "charged"), [(complete, 1), (fail, 2), (defer, 1), (die, 2)])
def test_only_a_failure_charges_an_attempt(ending: Callable[[Record], Write], charged: int) -> None:
    after = apply(ending(Record.of(held())), held()).item
    assert after is not None
    assert after["n"] == charged


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_ending_clears_suspicion_and_renews_the_ttl(ending: Callable[[Record], Write]) -> None:
    after = apply(ending(Record.of(held())), held()).item
    assert after is not None
    assert (after["susp"], after["expiration"]) == (0, TTL)


def test_a_record_is_buried_only_from_dying_and_by_its_owner() -> None:
    record = Record.of(held())
    write = bury_write(record, now=NOW, expires=TTL)
    assert not apply(write, held()).applied
    assert not apply(write, held(status="DYING", owner="theirs")).applied
    after = apply(write, held(status="DYING")).item
    assert after is not None
    assert (after["status"], after["dead_at"]) == ("DEAD", NOW)


def test_history_keeps_the_newest_failures_and_bounds_their_text() -> None:
    stored = held(hist=[{"n": n} for n in range(HISTORY)])
    after = apply(fail(Record.of(stored)), stored).item
    assert after is not None
    assert [entry["n"] for entry in after["hist"]] == [*range(1, HISTORY), 2]
    assert len(after["hist"][-1]["message"]) == 500


def test_a_record_id_is_readable_and_hashed_only_where_it_would_not_fit() -> None:
    assert record_id("billing.post", "c1/1997-01") == "billing.post#c1/1997-01"
    long = record_id("billing.post", "é" * 400)
    assert long.startswith("billing.post#sha256:")
    assert long != record_id("billing.post", "é" * 401)
    assert record_id("billing.post", "\ud800").startswith("billing.post#")


def test_a_reader_tolerates_attributes_and_states_of_a_newer_release() -> None:
    record = Record.of({"id": "a#1", "status": "PAUSED", "shiny": 1})
    assert (record.status, record.attempts, record.wave) == ("PAUSED", 0, 1)
