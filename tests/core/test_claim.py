"""Claiming a record: every state's verdict, and what each write does to the item."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loomjobs.core.claim import (
    Buried,
    Claim,
    Conflict,
    Ended,
    Lapsed,
    Replace,
    Resume,
    Verdict,
    Wait,
    Won,
    claim_write,
    judge,
    replace_write,
    takeover_write,
)
from loomjobs.core.record import Record
from loomjobs.core.write import Item, apply

NOW = 1_000_000_000_000
CLAIM = Claim(
    id="billing.post#c1",
    owner="mine",
    now=NOW,
    lease=NOW + 60_000,
    payload_hash="p1",
    message="m2",
    sent=NOW - 1_000,
    expires=NOW // 1000 + 86_400,
    version="v1",
)


def item(**attributes: Any) -> dict[str, Any]:
    return {
        "id": CLAIM.id,
        "status": "WAITING",
        "owner": "theirs",
        "epoch": 3,
        "n": 1,
        "ph": "p1",
        "mid": "m1",
        "expiration": NOW // 1000 + 3_600,
    } | attributes


def verdict(**attributes: Any) -> Verdict:
    return judge(Record.of(item(**attributes)), CLAIM)


def claimed(stored: Item | None) -> bool:
    return apply(claim_write(CLAIM), stored).applied


def test_an_absent_record_is_claimed_with_no_attempt_charged() -> None:
    written = apply(claim_write(CLAIM), None)
    assert written.item is not None
    assert {name: written.item[name] for name in ("status", "owner", "n", "epoch", "susp", "free", "ph")} == {
        "status": "INPROGRESS",
        "owner": "mine",
        "n": 0,
        "epoch": 1,
        "susp": 0,
        "free": 0,
        "ph": "p1",
    }


def test_no_claim_is_ever_written_without_a_deadline() -> None:
    written = apply(claim_write(CLAIM), None)
    assert written.item is not None
    assert written.item["in_progress_expiration"] == CLAIM.lease


def test_a_waiting_record_that_is_due_is_claimed_and_keeps_its_charged_attempts() -> None:
    written = apply(claim_write(CLAIM), item(nb=NOW - 1))
    assert written.item is not None
    assert (written.item["n"], written.item["epoch"], "nb" in written.item) == (1, 4, False)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"nb": NOW + 5_000}, Wait(NOW + 5_000, "backing off")),
        (
            {"status": "INPROGRESS", "in_progress_expiration": NOW + 7_000},
            Wait(NOW + 12_000, "in progress elsewhere"),
        ),
        (
            {"status": "INPROGRESS", "in_progress_expiration": NOW - 4_999},
            Wait(NOW + 1, "in progress elsewhere"),
        ),
        ({"status": "INPROGRESS", "in_progress_expiration": NOW - 5_000}, Lapsed()),
        ({"status": "COMPLETED"}, Ended()),
        ({"status": "CANCELLED"}, Ended()),
        ({"status": "EXPIRED"}, Ended()),
        ({"status": "COMPLETED", "ph": "p2"}, Conflict()),
        ({"status": "DEAD", "ph": "p2", "dead_at": 1}, Conflict()),
        ({"nb": NOW + 5_000, "ph": "p2"}, Conflict()),
        ({"status": "DYING"}, Resume()),
        ({"status": "DEAD", "dead_at": NOW, "mid": "m1"}, Buried()),
        ({"status": "DEAD", "dead_at": NOW - 2_000, "mid": "m2"}, Buried()),
        ({"status": "DEAD", "dead_at": NOW - 2_000, "mid": "m1"}, Replace()),
        ({"status": "COMPLETED", "expiration": NOW // 1000}, Replace()),
        (
            {"status": "INPROGRESS", "in_progress_expiration": NOW + 9_000, "expiration": NOW // 1000 - 1},
            Replace(),
        ),
        ({"status": "INPROGRESS", "owner": "mine"}, Won()),
        ({"cancel": True}, Ended()),
        ({"status": "PAUSED"}, Wait(NOW + 60_000, "record of a newer release (PAUSED)")),
    ],
)
def test_a_refused_claim_has_one_meaning(attributes: dict[str, Any], expected: Verdict) -> None:
    assert not claimed(item(**attributes))
    assert verdict(**attributes) == expected


def test_a_record_that_is_waiting_and_due_but_raced_is_tried_again_soon() -> None:
    assert verdict() == Wait(NOW + 1_000, "backing off")


def test_a_crash_alone_is_charged_to_the_job() -> None:
    old = Record.of(item(status="INPROGRESS", in_progress_expiration=NOW - 60_000, wave=1))
    written = apply(
        takeover_write(CLAIM, old, attempts=5), item(status="INPROGRESS", in_progress_expiration=NOW - 60_000)
    )
    assert written.item is not None
    assert (written.item["n"], written.item["susp"], written.item["free"]) == (2, 1, 0)
    assert written.item["hist"][-1]["kind"] == "Crashed"


def test_a_crash_in_a_shared_wave_is_charged_to_nobody_three_times_and_then_to_the_job() -> None:
    stored = item(status="INPROGRESS", in_progress_expiration=NOW - 60_000, wave=4)
    for free, charged, uncharged in ((0, 1, 1), (2, 1, 3), (3, 2, 3)):
        old = Record.of(stored | {"free": free})
        written = apply(takeover_write(CLAIM, old, attempts=5), stored | {"free": free})
        assert written.item is not None
        assert (written.item["n"], written.item["free"]) == (charged, uncharged)


def test_the_last_attempt_lost_to_a_crash_goes_to_dying_and_does_not_run_again() -> None:
    stored = item(status="INPROGRESS", in_progress_expiration=NOW - 60_000, n=4)
    written = apply(takeover_write(CLAIM, Record.of(stored), attempts=5), stored)
    assert written.item is not None
    assert (written.item["status"], written.item["why"], written.item["n"]) == ("DYING", "crashed", 5)


def test_a_take_over_fails_when_the_owner_renewed_or_another_took_over_first() -> None:
    seen = item(status="INPROGRESS", in_progress_expiration=NOW - 60_000)
    write = takeover_write(CLAIM, Record.of(seen), attempts=5)
    assert apply(write, seen).applied
    assert not apply(write, seen | {"in_progress_expiration": NOW + 60_000}).applied
    assert not apply(write, seen | {"owner": "other", "epoch": 4}).applied
    assert not apply(write, seen | {"status": "COMPLETED"}).applied


def test_a_redrive_starts_anew() -> None:
    stored = item(status="DEAD", dead_at=NOW - 2_000, why="permanent", n=5, hist=[{"kind": "X"}], data="1", ended=5)
    written = apply(replace_write(CLAIM, Record.of(stored)), stored)
    assert written.item is not None
    assert (written.item["status"], written.item["n"], written.item["epoch"]) == ("INPROGRESS", 0, 4)
    assert not {"dead_at", "why", "hist", "data", "ended"} & set(written.item)


def test_a_queued_record_without_an_owner_can_be_replaced_once() -> None:
    stored = {"id": CLAIM.id, "status": "QUEUED", "expiration": 1}
    write = replace_write(CLAIM, Record.of(stored))
    assert apply(write, stored).applied
    assert not apply(write, stored | {"owner": "other"}).applied


def test_a_suspect_is_not_claimed_as_part_of_a_shared_wave() -> None:
    shared = replace(CLAIM, wave=5)
    assert not apply(claim_write(shared), item(susp=1)).applied
    assert apply(claim_write(shared), item(susp=0)).applied
    assert apply(claim_write(CLAIM), item(susp=1)).applied
