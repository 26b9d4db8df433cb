"""What is stored after each transition, attribute by attribute: releases overlap, so an item is a contract."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loomjobs.core.cancel import abandon_write, cancelled_write
from loomjobs.core.claim import Claim, claim_write, insert_write, replace_write, slot_write, takeover_write
from loomjobs.core.decision import Failure
from loomjobs.core.ending import (
    bury_write,
    checkpoint_write,
    complete_write,
    continue_write,
    defer_write,
    die_write,
    fail_write,
    renew_write,
)
from loomjobs.core.halt import halt_id, halt_write, is_halted, lift_write
from loomjobs.core.record import Record, record_id
from loomjobs.core.write import Write, apply

NOW = 1_800_000_000_000
TTL = NOW // 1000 + 86_400
CLAIM = Claim(
    id="a.b#1", owner="one", now=NOW, lease=NOW + 60_000, payload_hash="p", message="m1", sent=NOW - 5, expires=TTL,
    version="r1", redrives=2, receives=3, wave=1,
)  # fmt: skip
FAILURE = Failure("ValueError", "no", "f1")
CLAIMED: dict[str, Any] = {
    "id": "a.b#1",
    "status": "INPROGRESS",
    "owner": "one",
    "epoch": 1,
    "n": 0,
    "susp": 0,
    "free": 0,
    "in_progress_expiration": NOW + 60_000,
    "wave": 1,
    "ph": "p",
    "mid": "m1",
    "sent": NOW - 5,
    "rd": 2,
    "rc": 3,
    "ver": "r1",
    "expiration": TTL,
}
LINE = {"kind": "ValueError", "message": "no", "fingerprint": "f1", "at": NOW + 1, "n": 1, "ver": "r1"}
LATE = replace(CLAIM, owner="two", now=NOW + 65_000, lease=NOW + 125_000, message="m2", sent=NOW + 9, receives=4)


def after(write: Write, item: dict[str, Any] | None = None) -> Any:
    written = apply(write, item)
    assert written.applied, (write, item)
    return written.item


def refused(write: Write, item: dict[str, Any] | None) -> bool:
    return not apply(write, item).applied


def claimed(**more: Any) -> dict[str, Any]:
    return CLAIMED | more


RECORD = Record.of(CLAIMED)


def test_a_first_claim_by_either_write_stores_the_same() -> None:
    assert after(insert_write(CLAIM)) == CLAIMED
    assert after(claim_write(CLAIM)) == CLAIMED
    assert insert_write(CLAIM).wants_item is False
    assert claim_write(CLAIM).wants_item is True


def test_a_waiting_record_is_claimed_with_its_history_and_without_its_wait() -> None:
    waiting = claimed(status="WAITING", owner="old", n=2, susp=0, nb=NOW, slot=NOW, hist=[LINE], ck="7", cont=1)
    assert after(claim_write(CLAIM), waiting) == claimed(n=2, epoch=2, hist=[LINE], ck="7", cont=1)


@pytest.mark.parametrize(
    "in_the_way",
    [
        {"status": "INPROGRESS"},
        {"status": "COMPLETED"},
        {"nb": NOW + 1},
        {"ph": "other"},
        {"cancel": 1},
        {"expiration": NOW // 1000},
        {"expiration": NOW // 1000 - 1},
    ],
)
def test_what_stands_in_the_way_of_a_claim(in_the_way: dict[str, Any]) -> None:
    waiting = claimed(status="WAITING", nb=NOW)
    assert not refused(claim_write(CLAIM), waiting)
    assert not refused(claim_write(CLAIM), waiting | {"expiration": NOW // 1000 + 1})
    assert refused(claim_write(CLAIM), waiting | in_the_way)
    assert refused(slot_write(CLAIM, at=NOW + 9), waiting | in_the_way)


@pytest.mark.parametrize("status", ["WAITING", "QUEUED"])
def test_a_record_without_hash_or_wait_is_anybodys_to_claim(status: str) -> None:
    bare = {"id": "a.b#1", "status": status, "expiration": TTL}
    assert after(claim_write(CLAIM), bare) == CLAIMED


def test_a_shared_wave_does_not_take_a_suspect() -> None:
    shared = replace(CLAIM, wave=4)
    waiting = claimed(status="WAITING")
    assert not refused(claim_write(shared), waiting)
    without = {name: value for name, value in waiting.items() if name != "susp"}
    assert not refused(claim_write(shared), without)
    assert refused(claim_write(shared), waiting | {"susp": 1})
    assert not refused(claim_write(CLAIM), waiting | {"susp": 1})


def test_a_slot_is_kept_without_a_holder() -> None:
    stored = {"id": "a.b#1", "status": "WAITING", "nb": NOW + 9, "slot": NOW + 9, "expiration": TTL}
    stored |= {"n": 0, "susp": 0, "free": 0, "epoch": 0, "ph": "p"}
    assert after(slot_write(CLAIM, at=NOW + 9)) == stored
    waiting = claimed(status="WAITING", n=3, susp=0, free=1, epoch=5, nb=NOW)
    assert after(slot_write(CLAIM, at=NOW + 9), waiting) == waiting | {"nb": NOW + 9, "slot": NOW + 9}
    assert slot_write(CLAIM, at=1).wants_item is False


@pytest.mark.parametrize(("old", "charged", "free"), [({}, 1, 0), ({"wave": 4}, 0, 1), ({"wave": 4, "free": 3}, 1, 3)])
def test_a_take_over_charges_the_crash_or_counts_it_free(old: dict[str, Any], charged: int, free: int) -> None:
    item = claimed(**old)
    taken = after(takeover_write(LATE, Record.of(item), attempts=5), item)
    line = {
        "kind": "Crashed",
        "message": "the worker process ended during the run, or could not record its end",
        "at": NOW + 65_000,
        "n": charged,
        "ver": "r1",
    }
    assert taken == CLAIMED | LATE.fresh() | {"n": charged, "free": free, "susp": 1, "epoch": 2, "hist": [line]}


def test_the_last_attempts_crash_is_a_death() -> None:
    item = claimed(n=4, free=0)
    taken = after(takeover_write(LATE, Record.of(item), attempts=5), item)
    assert (taken["status"], taken["why"], taken["n"]) == ("DYING", "crashed", 5)
    assert after(takeover_write(LATE, Record.of(item), attempts=6), item)["status"] == "INPROGRESS"


@pytest.mark.parametrize(
    ("changed", "lease"),
    [({"owner": "x"}, 0), ({"epoch": 9}, 0), ({"status": "COMPLETED"}, 0), ({}, 1)],
)
def test_a_take_over_is_of_the_very_run_that_lapsed(changed: dict[str, Any], lease: int) -> None:
    """The lease ended five seconds ago to the millisecond; one later is too early."""
    item = claimed()
    assert not refused(takeover_write(LATE, Record.of(item), attempts=5), item)
    moved = item | changed | {"in_progress_expiration": NOW + 60_000 + lease}
    assert refused(takeover_write(LATE, Record.of(item), attempts=5), moved)


def test_a_record_that_starts_anew_keeps_nothing_of_its_former_life() -> None:
    dead = claimed(
        status="DEAD", n=5, susp=2, free=1, epoch=7, nb=1, slot=1, dead_at=1, why="x", ck="1", ckv=2, cont=3, dfr=4,
        data="1", ended=1, hist=[LINE], cancel=1, ph="old",
    )  # fmt: skip
    assert after(replace_write(LATE, Record.of(dead)), dead) == CLAIMED | LATE.fresh() | {"epoch": 8}


@pytest.mark.parametrize(
    "old", [{"status": "QUEUED", "expiration": 1}, {"status": "QUEUED", "expiration": 1, "epoch": 0}]
)
def test_a_record_that_nobody_held_can_be_replaced_and_not_after_somebody_did(old: dict[str, Any]) -> None:
    item = {"id": "a.b#1"} | old
    assert after(replace_write(CLAIM, Record.of(item)), item)["owner"] == "one"
    assert refused(replace_write(CLAIM, Record.of(item)), item | {"owner": "x"})
    assert refused(replace_write(CLAIM, Record.of(item)), item | {"epoch": 1})


# -- endings ----------------------------------------------------------------------------------------
ENDINGS: dict[str, tuple[Write, dict[str, Any]]] = {
    "complete": (
        complete_write(RECORD, now=NOW + 1, expires=TTL + 1, result='"r"'),
        {"status": "COMPLETED", "susp": 0, "ended": NOW + 1, "expiration": TTL + 1, "data": '"r"'},
    ),
    "complete without a result": (
        complete_write(RECORD, now=NOW + 1, expires=TTL + 1, result=None),
        {"status": "COMPLETED", "susp": 0, "ended": NOW + 1, "expiration": TTL + 1},
    ),
    "fail": (
        fail_write(RECORD, FAILURE, now=NOW + 1, not_before=NOW + 9, expires=TTL + 1),
        {"status": "WAITING", "n": 1, "nb": NOW + 9, "susp": 0, "hist": [LINE], "expiration": TTL + 1},
    ),
    "defer": (
        defer_write(RECORD, not_before=NOW + 9, expires=TTL + 1, why="w" * 150, now=NOW + 1),
        {"status": "WAITING", "nb": NOW + 9, "susp": 0, "expiration": TTL + 1}
        | {"dfr": 1, "dfr_why": "w" * 100, "dfr_at": NOW + 1},
    ),
    "continue": (
        continue_write(RECORD, not_before=NOW + 9, expires=TTL + 1),
        {"status": "WAITING", "nb": NOW + 9, "susp": 0, "cont": 1, "expiration": TTL + 1},
    ),
    "checkpoint": (
        checkpoint_write(RECORD, "7", version=3, expires=TTL + 1),
        {"status": "INPROGRESS", "ck": "7", "ckv": 3, "expiration": TTL + 1},
    ),
    "renew": (renew_write(RECORD, lease=NOW + 99), {"in_progress_expiration": NOW + 99}),
    "die": (
        die_write(RECORD, "exhausted", FAILURE, now=NOW + 1, expires=TTL + 1),
        {"status": "DYING", "n": 1, "why": "exhausted", "susp": 0, "expiration": TTL + 1, "hist": [LINE]},
    ),
    "die without a run": (
        die_write(RECORD, "retention", None, now=NOW + 1, expires=TTL + 1, attempts=0),
        {"status": "DYING", "n": 0, "why": "retention", "susp": 0, "expiration": TTL + 1},
    ),
    "cancelled": (
        cancelled_write(RECORD, FAILURE, now=NOW + 1, expires=TTL + 1),
        {"status": "CANCELLED", "susp": 0, "ended": NOW + 1, "expiration": TTL + 1, "n": 1, "hist": [LINE]}
        | {"cancel": NOW + 1},
    ),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_what_an_ending_stores(name: str) -> None:
    write, changes = ENDINGS[name]
    assert after(write, claimed(susp=0)) == CLAIMED | changes
    assert write.wants_item is False


@pytest.mark.parametrize("name", ENDINGS)
@pytest.mark.parametrize("moved", [{"owner": "two"}, {"status": "WAITING"}, {"status": "COMPLETED"}])
def test_an_ending_is_refused_once_the_claim_is_anothers_or_over(name: str, moved: dict[str, Any]) -> None:
    assert refused(ENDINGS[name][0], claimed(**moved))
    assert refused(ENDINGS[name][0], None)


def test_a_lease_is_not_renewed_against_a_cancel() -> None:
    assert refused(renew_write(RECORD, lease=1), claimed(cancel=1))


def test_a_burial_stores_when() -> None:
    dying = claimed(status="DYING", n=1, why="permanent")
    buried = after(bury_write(Record.of(dying), now=NOW + 2, expires=TTL + 2), dying)
    assert buried == dying | {"status": "DEAD", "dead_at": NOW + 2, "ended": NOW + 2, "expiration": TTL + 2}


def test_counts_go_on_from_what_is_stored() -> None:
    record = Record.of(claimed(cont=4, dfr=6, n=2))
    assert continue_write(record, not_before=1, expires=1).sets["cont"] == 5
    assert defer_write(record, not_before=1, expires=1).sets["dfr"] == 7
    assert die_write(record, "permanent", None, now=1, expires=1).sets["n"] == 3
    assert cancelled_write(record, now=1, expires=1).sets.get("n") is None


def test_a_lapsed_run_is_abandoned_after_its_lease_and_the_skew() -> None:
    item = claimed(cancel=1)
    done = after(abandon_write(Record.of(item), now=NOW + 65_000, expires=TTL + 1), item)
    changes = {"status": "CANCELLED", "susp": 0, "ended": NOW + 65_000, "expiration": TTL + 1}
    assert done == item | changes
    assert refused(abandon_write(Record.of(item), now=NOW + 64_999, expires=TTL), item)
    assert refused(abandon_write(Record.of(item), now=NOW + 65_000, expires=TTL), claimed())


# -- reading ----------------------------------------------------------------------------------------
def test_a_record_reads_every_attribute_and_has_a_first_value_for_each() -> None:
    full = claimed(
        nb=7, dead_at=8, ended=9, why="w", cancel=1, hist=[LINE], data="d", slot=10, ck="c", ckv=4, cont=5, dfr=6
    )
    read = Record.of(full)
    assert (read.not_before, read.dead_at, read.ended, read.why, read.cancelled) == (7, 8, 9, "w", True)
    assert (read.history, read.result, read.slot, read.checkpoint) == ((LINE,), "d", 10, "c")
    assert (read.checkpoint_version, read.continued, read.deferred, read.version) == (4, 5, 6, "r1")
    assert (read.lease, read.wave, read.message, read.sent, read.receives) == (NOW + 60_000, 1, "m1", NOW - 5, 3)
    bare = Record.of({"id": "x"})
    zeros = (bare.lease, bare.not_before, bare.sent, bare.dead_at, bare.ended, bare.expires, bare.attempts, bare.epoch)
    assert zeros == (0,) * 8
    assert (bare.wave, bare.receives, bare.checkpoint_version, bare.deferred, bare.continued) == (1, 1, 1, 0, 0)
    assert (bare.result, bare.slot, bare.payload_hash, bare.history, bare.cancelled) == (None, None, None, (), False)


@pytest.mark.parametrize(
    ("more", "due"),
    [
        ({}, True),
        ({"status": "QUEUED"}, True),
        ({"status": "INPROGRESS"}, False),
        ({"nb": NOW + 1}, False),
        ({"nb": NOW}, True),
        ({"cancel": 1}, False),
    ],
)
def test_a_record_is_due_when_it_waits_for_nothing_but_a_worker(more: dict[str, Any], due: bool) -> None:
    assert Record.of(claimed(status="WAITING") | more).is_due(NOW) is due


def test_an_id_is_readable_up_to_512_bytes_and_a_hash_beyond() -> None:
    assert record_id("a.b", "k" * 508) == "a.b#" + "k" * 508
    assert record_id("a.b", "k" * 509).startswith("a.b#sha256:")
    assert record_id("a.b", "é" * 254) == "a.b#" + "é" * 254
    assert record_id("a.b", "\ud800" * 300).startswith("a.b#sha256:")


# -- halted groups ----------------------------------------------------------------------------------
def test_a_halted_group_names_who_halted_it_until_it_is_lifted() -> None:
    mark = after(halt_write("q", "g", by="a.b#1", now=NOW, expires=TTL))
    assert mark == {"id": halt_id("q", "g"), "by": "a.b#1", "at": NOW, "lifted": 0, "expiration": TTL}
    assert after(halt_write("q", "g", by="a.b#1", now=NOW + 1, expires=TTL), mark)["at"] == NOW + 1
    assert refused(halt_write("q", "g", by="a.b#2", now=NOW, expires=TTL), mark)
    assert refused(lift_write("q", "g", by="a.b#2"), mark)
    for lift in (lift_write("q", "g", by="a.b#1"), lift_write("q", "g")):
        lifted = after(lift, mark)
        assert lifted == mark | {"lifted": 1}
        assert lift.wants_item is False
        assert after(halt_write("q", "g", by="a.b#2", now=NOW, expires=TTL), lifted)["by"] == "a.b#2"
    assert refused(lift_write("q", "g"), mark | {"lifted": 1})
    assert halt_write("q", "g", by="x", now=1, expires=1).wants_item is False


def test_a_group_is_halted_for_everybody_but_the_one_that_halted_it() -> None:
    mark = {"by": "a.b#1", "lifted": 0, "expiration": 100}
    assert is_halted(mark, record="a.b#2", now=99) is True
    assert is_halted(mark, record="a.b#1", now=99) is False
    assert is_halted(mark, record="a.b#2", now=100) is False
    assert is_halted(mark | {"lifted": 1}, record="a.b#2", now=99) is False
    assert is_halted({"by": "a.b#1"}, record="a.b#2", now=0) is False
    assert is_halted(None, record="a.b#2", now=0) is False
