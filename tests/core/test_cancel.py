"""Cancelling: every state's step, what each write does, and who wins a race."""

from __future__ import annotations

from typing import Any

import pytest

from loomjobs.core.cancel import (
    Already,
    Ask,
    Asked,
    End,
    Step,
    TooLate,
    abandon_write,
    asked,
    cancelled_write,
    next_step,
    unless_cancelled,
)
from loomjobs.core.claim import Claim, Ended, claim_write, insert_write, judge, takeover_write
from loomjobs.core.decision import Failure
from loomjobs.core.ending import complete_write, defer_write, fail_write, landed, renew_write
from loomjobs.core.record import Record
from loomjobs.core.unrun import cause
from loomjobs.core.write import Item, Write, apply

NOW = 1_000_000_000_000
TTL = NOW // 1000 + 86_400
ID = "billing.post#c1"
FAILURE = Failure("ValueError", "no", "abc")
CLAIM = Claim(
    id=ID,
    owner="mine",
    now=NOW,
    lease=NOW + 60_000,
    payload_hash="p1",
    message="m1",
    sent=NOW - 1_000,
    expires=TTL,
    version="v1",
)


def item(**attributes: Any) -> dict[str, Any]:
    first = {"id": ID, "status": "WAITING", "owner": "theirs", "epoch": 3, "n": 1, "ph": "p1", "expiration": TTL}
    return first | attributes


def running(**attributes: Any) -> dict[str, Any]:
    return item(status="INPROGRESS", owner="mine", in_progress_expiration=NOW + 60_000) | attributes


def step(stored: Item | None) -> Step:
    return next_step(ID, None if stored is None else Record.of(stored), now=NOW, expires=TTL)


def applied(write: Write, stored: Item | None) -> Record:
    written = apply(write, stored)
    assert written.applied
    assert written.item is not None
    return Record.of(written.item)


def ended(stored: Item | None) -> Record:
    found = step(stored)
    assert isinstance(found, End)
    return applied(found.write, stored)


def test_a_job_that_has_not_arrived_is_cancelled_by_a_record_that_waits_for_it() -> None:
    record = ended(None)
    assert (record.status, record.cancelled, record.expires, record.ended) == ("CANCELLED", True, TTL, NOW)
    for other in ("p1", "p2"):
        claim = Claim(
            id=ID, owner="o", now=NOW, lease=NOW, payload_hash=other, message="m", sent=NOW, expires=TTL, version=""
        )
        assert judge(record, claim) == Ended()
    assert cause(record) == "cancelled"


@pytest.mark.parametrize("attributes", [{}, {"nb": NOW + 9_000, "slot": NOW}, {"status": "QUEUED", "owner": ""}])
def test_a_waiting_or_queued_job_is_cancelled_and_never_claimed_again(attributes: dict[str, Any]) -> None:
    stored = {name: value for name, value in item(**attributes).items() if value != ""}
    found = step(stored)
    assert isinstance(found, End)
    after = apply(found.write, stored).item
    assert after is not None
    assert (after["status"], "nb" in after, "slot" in after) == ("CANCELLED", False, False)
    assert not apply(claim_write(CLAIM), after).applied
    assert not apply(insert_write(CLAIM), after).applied


def test_a_running_job_is_told_and_told_once() -> None:
    found = step(running())
    assert isinstance(found, Ask)
    told = apply(found.write, running()).item
    assert told is not None
    assert (told["status"], told["cancel"]) == ("INPROGRESS", NOW)
    assert step(told) == Asked()


@pytest.mark.parametrize("status", ["DYING", "DEAD", "COMPLETED", "EXPIRED", "PAUSED"])
def test_what_has_ended_is_too_late_to_cancel(status: str) -> None:
    assert step(item(status=status)) == TooLate(status)


def test_a_second_cancel_comes_to_the_same() -> None:
    assert step(item(status="CANCELLED")) == Already()


@pytest.mark.parametrize("status", ["COMPLETED", "DEAD", "WAITING", "CANCELLED", "EXPIRED", "DYING", "INPROGRESS"])
def test_a_record_whose_ttl_is_over_counts_as_absent(status: str) -> None:
    stored = item(status=status, expiration=NOW // 1000, data="1", hist=[{"kind": "X"}], why="x", n=4)
    found = step(stored)
    assert isinstance(found, End)
    after = apply(found.write, stored).item
    assert after is not None
    assert (after["status"], after["n"], after["epoch"], after["cancel"]) == ("CANCELLED", 0, 4, NOW)
    assert not {"data", "hist", "why", "ph"} & set(after)


def test_a_run_that_is_alive_is_told_whatever_its_ttl_says() -> None:
    assert isinstance(step(running(expiration=NOW // 1000)), Ask)


@pytest.mark.parametrize(
    ("seen", "now_stored"),
    [
        (None, running()),
        (item(), running(epoch=4)),
        (item(), item(status="COMPLETED")),
        (item(), item(owner="other", epoch=5)),
        (running(), running(status="COMPLETED")),
        (running(), running(owner="other", epoch=4)),
        (running(), running(cancel=NOW - 5)),
        (item(expiration=1), item(expiration=TTL)),
    ],
)
def test_a_cancel_that_lost_a_race_writes_nothing_and_sees_who_won(seen: Item | None, now_stored: Item) -> None:
    found = step(seen)
    assert isinstance(found, (End, Ask))
    written = apply(found.write, now_stored)
    assert (written.applied, written.item) == (False, now_stored)


def test_completion_wins_over_a_cancel_and_later_deliveries_are_plain_duplicates() -> None:
    told = running(cancel=NOW)
    record = applied(complete_write(Record.of(told), now=NOW, expires=TTL, result=None), told)
    assert (record.status, cause(record)) == ("COMPLETED", "duplicate")
    assert cause(Record.of(item(status="EXPIRED", cancel=NOW))) == "expired"
    assert cause(Record.of(item(cancel=NOW))) == "cancelled"


@pytest.mark.parametrize("fails", [True, False])
def test_a_run_that_was_told_does_not_go_back_to_waiting_and_ends_as_cancelled(fails: bool) -> None:
    mine = Record.of(running())
    back = fail_write(mine, FAILURE, now=NOW, not_before=NOW, expires=TTL)
    write = unless_cancelled(back if fails else defer_write(mine, not_before=NOW, expires=TTL))
    assert apply(write, running()).applied
    told = running(cancel=NOW - 1)
    refused = apply(write, told)
    assert not refused.applied
    assert asked(mine, refused.item)
    assert not landed(mine, write, refused.item)
    end = cancelled_write(mine, FAILURE if fails else None, now=NOW, expires=TTL)
    record = applied(end, told)
    assert (record.status, record.attempts, len(record.history)) == ("CANCELLED", 1 + fails, int(fails))
    assert apply(end, told).item == apply(end, told).item
    again = apply(end, apply(end, told).item)
    assert not again.applied
    assert landed(mine, end, again.item)


@pytest.mark.parametrize("stored", [None, running(owner="other", cancel=1), running(), item(owner="mine", cancel=1)])
def test_a_refusal_that_is_no_cancel_is_told_apart(stored: Item | None) -> None:
    assert not asked(Record.of(running()), stored)


def test_only_the_owner_ends_a_run_as_cancelled() -> None:
    write = cancelled_write(Record.of(running()), now=NOW, expires=TTL)
    assert not apply(write, running(owner="other")).applied
    assert not apply(write, running(status="COMPLETED")).applied


def test_a_heartbeat_is_refused_once_the_run_was_told() -> None:
    write = renew_write(Record.of(running()), lease=NOW + 90_000)
    assert apply(write, running()).applied
    assert not apply(write, running(cancel=NOW)).applied


def test_a_crashed_run_that_was_told_is_abandoned_and_not_taken_over() -> None:
    lapsed = running(in_progress_expiration=NOW - 60_000, cancel=NOW - 70_000, owner="theirs")
    record = applied(abandon_write(Record.of(lapsed), now=NOW, expires=TTL), lapsed)
    assert (record.status, cause(record)) == ("CANCELLED", "cancelled")
    alive = lapsed | {"in_progress_expiration": NOW}
    assert not apply(abandon_write(Record.of(alive), now=NOW, expires=TTL), alive).applied
    untold = {name: value for name, value in lapsed.items() if name != "cancel"}
    assert not apply(abandon_write(Record.of(untold), now=NOW, expires=TTL), untold).applied
    taken = apply(takeover_write(CLAIM, Record.of(lapsed), attempts=5), lapsed).item
    assert not apply(abandon_write(Record.of(lapsed), now=NOW, expires=TTL), taken).applied
