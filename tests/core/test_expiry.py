"""Deadlines: what is late, and what becomes of it in every state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomjobs.core.claim import Buried, Claim, Conflict, Ended, Lapsed, Resume, Wait, Won, claim_write, judge
from loomjobs.core.expiry import (
    Bury,
    Expire,
    LateVerdict,
    expire_write,
    expired_write,
    failures,
    judge_late,
    verdict_on_deadline,
    verdict_on_retry,
)
from loomjobs.core.record import Record
from loomjobs.core.unrun import cause
from loomjobs.core.write import Item, apply

AT = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
NOW = 1_000_000_000_000
TTL = NOW // 1000 + 86_400
CLAIM = Claim(
    id="billing.post#c1",
    owner="mine",
    now=NOW,
    lease=NOW + 60_000,
    payload_hash="p1",
    message="m2",
    sent=NOW - 1_000,
    expires=TTL,
    version="v1",
)


def item(**attributes: Any) -> dict[str, Any]:
    first = {"id": CLAIM.id, "status": "WAITING", "owner": "theirs", "epoch": 3, "n": 0, "ph": "p1", "mid": "m1"}
    return first | {"expiration": TTL} | attributes


def late(**attributes: Any) -> LateVerdict:
    return judge_late(Record.of(item(**attributes)), CLAIM)


@pytest.mark.parametrize(
    ("expires", "attempts", "fate"),
    [
        (None, 0, "run"),
        (None, 9, "run"),
        (AT + SECOND, 0, "run"),
        (AT + SECOND, 1, "run"),
        (AT, 0, "run"),
        (AT, 1, "run"),
        (AT - timedelta(microseconds=1), 0, "expire"),
        (AT - timedelta(microseconds=1), 1, "bury"),
        (AT - timedelta(days=9), 7, "bury"),
    ],
)
def test_a_late_job_expires_unless_it_failed_before(expires: datetime | None, attempts: int, fate: str) -> None:
    assert verdict_on_deadline(expires, AT, attempts) == fate


@pytest.mark.parametrize(
    ("expires", "wait", "fate"),
    [
        (None, 1e9, "run"),
        (AT + 10 * SECOND, 9.9, "run"),
        (AT + 10 * SECOND, 10.0, "run"),
        (AT + 10 * SECOND, 10.1, "bury"),
        (AT - SECOND, 0.0, "bury"),
    ],
)
def test_a_retry_that_would_start_after_the_deadline_is_not_waited_for(
    expires: datetime | None, wait: float, fate: str
) -> None:
    assert verdict_on_retry(expires, AT, wait) == fate


@given(st.timedeltas(), st.integers(0, 30))
def test_every_instant_has_one_fate(ahead: timedelta, attempts: int) -> None:
    try:
        expires = AT + ahead
    except OverflowError:
        return
    fate = verdict_on_deadline(expires, AT, attempts)
    assert (fate == "run") == (expires >= AT)
    assert fate != ("expire" if attempts else "bury")


def test_a_job_that_is_late_on_its_first_delivery_ends_as_expired_by_one_write() -> None:
    written = apply(expire_write(CLAIM), None)
    assert written.item is not None
    record = Record.of(written.item)
    assert (record.status, record.epoch, record.attempts, record.expires, record.ended, record.message) == (
        "EXPIRED",
        1,
        0,
        TTL,
        NOW,
        "m2",
    )
    assert cause(record) == "expired"
    assert not apply(claim_write(CLAIM), written.item).applied


def test_an_answer_that_was_lost_is_recognised() -> None:
    stored = apply(expire_write(CLAIM), None).item
    refused = apply(expire_write(CLAIM), stored)
    assert refused.item is not None
    assert judge_late(Record.of(refused.item), CLAIM) == Ended()
    assert late(owner="mine", status="DYING") == Resume()
    assert late(owner="mine", status="INPROGRESS") == Won()


@pytest.mark.parametrize("status", ["WAITING", "QUEUED"])
@pytest.mark.parametrize("nb", [{}, {"nb": NOW + 60_000}, {"nb": NOW - 60_000}])
def test_a_waiting_job_that_never_failed_expires_whatever_it_waits_for(status: str, nb: dict[str, int]) -> None:
    stored = item(status=status, **nb)
    verdict = late(status=status, **nb)
    assert isinstance(verdict, Expire)
    after = apply(verdict.write, stored).item
    assert after is not None
    assert (after["status"], "nb" in after, after["owner"]) == ("EXPIRED", False, "mine")


@pytest.mark.parametrize("failed", [{"n": 1}, {"hist": [{"kind": "Crashed"}]}, {"susp": 1}])
def test_a_waiting_job_that_failed_before_is_a_dead_letter(failed: dict[str, Any]) -> None:
    stored = item(nb=NOW + 60_000, **failed)
    assert failures(Record.of(stored)) == 1
    verdict = late(nb=NOW + 60_000, **failed)
    assert isinstance(verdict, Bury)
    after = apply(verdict.write, stored).item
    assert after is not None
    record = Record.of(after)
    assert (record.status, record.why, record.owner, record.epoch) == ("DYING", "deadline", "mine", 4)
    assert record.attempts == failed.get("n", 0)
    assert "nb" not in after


def test_a_crashed_run_is_charged_and_dead_by_its_deadline() -> None:
    stored = item(status="INPROGRESS", in_progress_expiration=NOW - 60_000)
    verdict = late(status="INPROGRESS", in_progress_expiration=NOW - 60_000)
    assert isinstance(verdict, Bury)
    record = Record.of(apply(verdict.write, stored).item or {})
    assert (record.status, record.why, record.attempts, record.history[-1]["kind"]) == (
        "DYING",
        "deadline",
        1,
        "Crashed",
    )
    renewed = stored | {"in_progress_expiration": NOW + 60_000}
    assert not apply(verdict.write, renewed).applied


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        (
            {"status": "INPROGRESS", "in_progress_expiration": NOW + 7_000},
            Wait(NOW + 12_000, "in progress elsewhere"),
        ),
        ({"status": "INPROGRESS", "in_progress_expiration": NOW - 60_000, "cancel": 1}, Lapsed()),
        ({"status": "COMPLETED"}, Ended()),
        ({"status": "CANCELLED"}, Ended()),
        ({"status": "EXPIRED"}, Ended()),
        ({"cancel": 1}, Ended()),
        ({"ph": "p2"}, Conflict()),
        ({"status": "DYING"}, Resume()),
        ({"status": "DEAD", "dead_at": NOW}, Buried()),
        ({"status": "PAUSED"}, Wait(NOW + 60_000, "record of a newer release (PAUSED)")),
    ],
)
def test_every_other_state_means_what_it_means_to_a_claim(attributes: dict[str, Any], expected: LateVerdict) -> None:
    assert late(**attributes) == expected
    assert judge(Record.of(item(**attributes)), CLAIM) == expected


@pytest.mark.parametrize(
    "attributes", [{"status": "COMPLETED", "expiration": NOW // 1000}, {"status": "DEAD", "dead_at": NOW - 9_000}]
)
def test_over_a_stale_or_an_older_dead_record_late_work_expires_anew(attributes: dict[str, Any]) -> None:
    stored = item(n=5, hist=[{"kind": "X"}], data="1", why="x", **attributes)
    verdict = judge_late(Record.of(stored), CLAIM)
    assert isinstance(verdict, Expire)
    after = apply(verdict.write, stored).item
    assert after is not None
    assert (after["status"], after["n"], after["epoch"], after["ph"]) == ("EXPIRED", 0, 4, "p1")
    assert not {"hist", "data", "why", "dead_at"} & set(after)


@pytest.mark.parametrize(
    "moved", [{"owner": "other", "epoch": 4}, {"status": "INPROGRESS"}, {"status": "COMPLETED"}, {"epoch": 4}]
)
@pytest.mark.parametrize("failed", [0, 1])
def test_a_race_with_a_claim_has_one_winner(moved: dict[str, Any], failed: int) -> None:
    verdict = late(n=failed)
    assert isinstance(verdict, (Expire, Bury))
    now_stored: Item = item(n=failed) | moved
    assert not apply(verdict.write, now_stored).applied


def test_the_owner_of_a_claim_that_started_too_late_ends_it_as_expired() -> None:
    mine = item(status="INPROGRESS", owner="mine", in_progress_expiration=NOW + 60_000)
    write = expired_write(Record.of(mine), now=NOW, expires=TTL)
    record = Record.of(apply(write, mine).item or {})
    assert (record.status, record.ended) == ("EXPIRED", NOW)
    assert not apply(write, mine | {"owner": "other"}).applied
