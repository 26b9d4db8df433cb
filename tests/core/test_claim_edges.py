"""Claiming a record, at its edges: what each claim leaves in the item, and what refuses it by a hair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from loomjobs.core.claim import (
    Conflict,
    Replace,
    Wait,
    claim_write,
    insert_write,
    judge,
    replace_write,
    slot_write,
    takeover_write,
)
from loomjobs.core.record import Record
from loomjobs.core.write import Item, Write, apply
from tests.core.test_claim import CLAIM, NOW, item, verdict

THIRD = replace(CLAIM, redrives=2, receives=3, wave=4)
SKEW = 5_000


def without(stored: Item, *names: str) -> dict[str, Any]:
    return {name: value for name, value in stored.items() if name not in names}


def stored_by(write: Write, stored: Item | None) -> Record:
    written = apply(write, stored)
    assert written.applied
    assert written.item is not None
    return Record.of(written.item)


def lapsed(**attributes: Any) -> dict[str, Any]:
    return item(status="INPROGRESS", in_progress_expiration=NOW - SKEW, ver="v0", susp=1) | attributes


def take_over(stored: Item, *, attempts: int = 5) -> Write:
    return takeover_write(CLAIM, Record.of(stored), attempts=attempts)


@pytest.mark.parametrize(
    ("claiming", "stored"),
    [
        (insert_write, None),
        (claim_write, None),
        (claim_write, item(susp=0)),
        (lambda claim: takeover_write(claim, Record.of(lapsed()), attempts=5), lapsed()),
        (lambda claim: replace_write(claim, Record.of(item(status="DEAD"))), item(status="DEAD")),
    ],
)
def test_a_claimed_record_says_by_which_message_and_by_which_worker(
    claiming: Callable[[Any], Write], stored: Item | None
) -> None:
    written = apply(claiming(THIRD), stored).item
    assert written is not None
    wanted = {"mid": "m2", "sent": NOW - 1_000, "rd": 2, "rc": 3, "ver": "v1", "wave": 4, "expiration": CLAIM.expires}
    assert {name: written.get(name) for name in wanted} == wanted


def test_a_batched_first_claim_and_a_single_one_make_the_same_record() -> None:
    assert apply(insert_write(CLAIM), None).item == apply(claim_write(CLAIM), None).item


def test_what_a_batch_carries_asks_for_no_item_back() -> None:
    assert not insert_write(CLAIM).wants_item
    assert not slot_write(CLAIM, at=NOW).wants_item


def test_a_first_claim_leaves_every_record_that_is_there_alone() -> None:
    for stored in (item(), {"id": CLAIM.id}, item(status="COMPLETED", expiration=1)):
        assert not apply(insert_write(CLAIM), stored).applied


# -- a slot of a rate


def test_a_job_that_waits_for_its_first_slot_has_used_up_nothing_and_belongs_to_nobody() -> None:
    at = NOW + 7_000
    waiting = apply(slot_write(CLAIM, at=at), None).item
    assert waiting is not None
    record = Record.of(waiting)
    assert (record.status, record.owner, record.epoch, record.attempts) == ("WAITING", "", 0, 0)
    assert (record.suspicions, record.uncharged, record.expires) == (0, 0, CLAIM.expires)
    assert (record.slot, record.not_before) == (at, at)
    assert not apply(claim_write(CLAIM), waiting).applied
    assert judge(record, CLAIM) == Wait(at, "backing off")


def test_another_payload_conflicts_with_a_job_that_only_waits_for_its_slot() -> None:
    record = stored_by(slot_write(CLAIM, at=NOW + 7_000), None)
    assert judge(record, replace(CLAIM, payload_hash="p2")) == Conflict()


def test_a_job_that_had_its_slot_runs_as_if_it_had_not_waited() -> None:
    waiting = apply(slot_write(CLAIM, at=NOW), None).item
    run = apply(claim_write(CLAIM), waiting).item
    assert run == apply(claim_write(CLAIM), None).item


def test_a_retry_keeps_its_past_while_it_waits_for_a_slot() -> None:
    record = stored_by(slot_write(CLAIM, at=NOW + 7_000), item(n=2, susp=1, free=1))
    assert (record.attempts, record.suspicions, record.uncharged, record.epoch) == (2, 1, 1, 3)


# -- who may be claimed


@pytest.mark.parametrize("status", ["WAITING", "QUEUED"])
@pytest.mark.parametrize(("due", "expected"), [(NOW - 1, True), (NOW, True), (NOW + 1, False)])
def test_a_record_is_due_at_its_instant_and_not_before(status: str, due: int, expected: bool) -> None:
    assert apply(claim_write(CLAIM), item(status=status, nb=due)).applied is expected


@pytest.mark.parametrize("status", ["WAITING", "QUEUED"])
def test_a_record_that_is_not_due_is_waited_for(status: str) -> None:
    assert verdict(status=status, nb=NOW + 9_000) == Wait(NOW + 9_000, "backing off")


@pytest.mark.parametrize(("left", "expected"), [(-1, False), (0, False), (1, True)])
def test_a_record_past_its_ttl_is_replaced_and_never_claimed(left: int, expected: bool) -> None:
    stored = item(expiration=NOW // 1000 + left)
    assert apply(claim_write(CLAIM), stored).applied is expected
    assert (judge(Record.of(stored), CLAIM) == Replace()) is not expected


def test_a_due_record_of_another_payload_is_a_conflict_and_not_a_claim() -> None:
    assert not apply(claim_write(CLAIM), item(ph="p2")).applied
    assert verdict(ph="p2") == Conflict()


def test_a_due_record_that_knows_no_payload_takes_that_of_its_first_claim() -> None:
    assert stored_by(claim_write(CLAIM), without(item(), "ph")).payload_hash == "p1"


def test_a_record_that_was_never_suspected_may_join_a_shared_wave() -> None:
    assert apply(claim_write(replace(CLAIM, wave=5)), item()).applied


# -- taking over


@pytest.mark.parametrize(("late", "expected"), [(-1, False), (0, True), (1, True)])
def test_a_lease_is_taken_over_when_the_skew_after_it_is_over(late: int, expected: bool) -> None:
    stored = lapsed(in_progress_expiration=NOW - SKEW - late)
    assert apply(take_over(stored), stored).applied is expected


def test_a_crash_is_remembered_with_its_instant_its_count_and_the_worker_that_crashed() -> None:
    record = stored_by(take_over(lapsed()), lapsed())
    crash = record.history[-1]
    assert (crash["kind"], crash["at"], crash["n"], crash["ver"]) == ("Crashed", NOW, 2, "v0")
    assert crash["message"]


def test_each_take_over_is_a_new_epoch_so_that_an_older_view_cannot_take_over_again() -> None:
    record = stored_by(take_over(lapsed()), lapsed())
    assert (record.epoch, record.suspicions) == (4, 2)
    assert not apply(take_over(lapsed()), lapsed(epoch=4)).applied


def test_a_view_from_before_the_first_epoch_does_not_fit_a_record_that_has_one() -> None:
    early = without(lapsed(), "epoch")
    write = take_over(early)
    assert apply(write, early).applied
    assert apply(write, early | {"epoch": 0}).applied
    for epoch in (1, 2, 4):
        assert not apply(write, early | {"epoch": epoch}).applied


# -- starting anew


LEFT_BEHIND = {"nb": 5, "slot": 5, "ck": "{}", "ckv": 2, "cont": 4, "dfr": 3, "cancel": 1}


def test_a_job_that_starts_anew_is_told_nothing_of_its_former_life() -> None:
    stored = item(status="DEAD", dead_at=NOW - 2_000, n=5, susp=2, free=3, ph="p0", why="permanent", **LEFT_BEHIND)
    record = stored_by(replace_write(CLAIM, Record.of(stored)), stored)
    assert (record.attempts, record.suspicions, record.uncharged, record.payload_hash) == (0, 0, 0, "p1")
    assert (record.not_before, record.slot, record.cancelled) == (0, None, False)
    assert (record.checkpoint, record.checkpoint_version, record.continued, record.deferred) == (None, 1, 0, 0)
    assert (record.dead_at, record.why, record.history, record.result, record.ended) == (0, "", (), None, 0)
