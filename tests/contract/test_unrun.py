"""Cancel and expiry on every store: the writes that end a record which nobody runs, and those that lose."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from loomjobs.core.cancel import abandon_write, asked, cancelled_write, unless_cancelled
from loomjobs.core.claim import Lapsed, claim_write, insert_write, judge
from loomjobs.core.ending import complete_write, defer_write, fail_write
from loomjobs.core.expiry import Bury, Expire, expire_write, expired_write, judge_late
from loomjobs.core.record import Record
from loomjobs.runtime.cancelling import Cancelled, cancel_of
from loomjobs.runtime.ports import Store
from tests.contract.test_store import FAILURE, NOW, TTL, claim, held, store
from tests.core.catalogue_fixture import declare

__all__ = ["store"]  # the fixture

JOB = declare("a.b")


def cancelled(store: Store, *, at: int = NOW) -> Cancelled:
    return cancel_of(JOB, "1", store=store, clock=lambda: datetime.fromtimestamp(at / 1000, UTC))


def read(store: Store) -> Record:
    item = store.read("a.b#1")
    assert item is not None
    return Record.of(item)


def test_a_cancel_comes_before_the_first_claim(store: Store) -> None:
    assert cancelled(store).outcome == "cancelled"
    refused = store.write(claim_write(claim()))
    assert not refused.applied
    assert refused.item is not None
    assert Record.of(refused.item).cancelled
    assert not store.write(insert_write(claim())).applied
    assert cancelled(store).outcome == "cancelled"


def test_a_waiting_record_is_cancelled(store: Store) -> None:
    record = held(store, claim())
    assert store.write(fail_write(record, FAILURE, now=NOW, not_before=NOW + 9_000, expires=TTL)).applied
    assert cancelled(store).outcome == "cancelled"
    assert (read(store).status, read(store).not_before, len(read(store).history)) == ("CANCELLED", 0, 1)


@pytest.mark.parametrize("fails", [True, False])
def test_a_run_is_told_and_ends_as_cancelled_unless_it_completes(store: Store, fails: bool) -> None:
    record = held(store, claim())
    assert cancelled(store).outcome == "requested"
    assert cancelled(store).outcome == "requested"
    back = fail_write(record, FAILURE, now=NOW, not_before=NOW, expires=TTL)
    refused = store.write(unless_cancelled(back if fails else defer_write(record, not_before=NOW, expires=TTL)))
    assert not refused.applied
    assert asked(record, refused.item)
    write = cancelled_write(record, FAILURE if fails else None, now=NOW, expires=TTL)
    assert store.write(write).applied
    assert (read(store).status, read(store).attempts) == ("CANCELLED", int(fails))
    assert not store.write(complete_write(record, now=NOW, expires=TTL, result=None)).applied


def test_completion_wins_over_a_cancel(store: Store) -> None:
    record = held(store, claim())
    assert cancelled(store).outcome == "requested"
    assert store.write(complete_write(record, now=NOW, expires=TTL, result=None)).applied
    assert cancelled(store).outcome == "too-late"


def test_a_crashed_run_that_was_told_is_abandoned(store: Store) -> None:
    held(store, claim())
    assert cancelled(store).outcome == "requested"
    assert not store.write(abandon_write(read(store), now=NOW + 30_000, expires=TTL)).applied
    after = claim("two", now=NOW + 90_000)
    assert judge(read(store), after) == Lapsed()
    assert store.write(abandon_write(read(store), now=after.now, expires=TTL)).applied
    assert read(store).status == "CANCELLED"


def test_a_stale_record_is_cancelled_anew(store: Store) -> None:
    record = held(store, claim())
    assert store.write(complete_write(record, now=NOW, expires=TTL, result='"kept"')).applied
    assert cancelled(store, at=(TTL + 1) * 1000).outcome == "cancelled"
    assert (read(store).status, read(store).result, read(store).payload_hash) == ("CANCELLED", None, None)


def test_late_work_expires_without_a_record_and_the_second_write_finds_the_first(store: Store) -> None:
    assert store.write(expire_write(claim())).applied
    again = store.write(expire_write(claim()))
    assert not again.applied
    assert read(store).status == "EXPIRED"
    assert not store.write(claim_write(claim("two"))).applied


@pytest.mark.parametrize("failed", [True, False])
def test_late_work_that_waits_expires_or_dies_by_its_deadline(store: Store, failed: bool) -> None:
    record = held(store, claim())
    back = fail_write(record, FAILURE, now=NOW, not_before=NOW + 9_000, expires=TTL)
    assert store.write(back if failed else defer_write(record, not_before=NOW + 9_000, expires=TTL)).applied
    late = claim("two", now=NOW + 1_000)
    refused = store.write(expire_write(late))
    assert refused.item is not None
    verdict = judge_late(Record.of(refused.item), late)
    assert isinstance(verdict, Bury if failed else Expire)
    assert isinstance(verdict, (Bury, Expire))
    assert store.write(verdict.write).applied
    assert (read(store).status, read(store).why) == (("DYING", "deadline") if failed else ("EXPIRED", ""))
    assert not store.write(verdict.write).applied


def test_late_work_whose_worker_crashed_dies_by_its_deadline(store: Store) -> None:
    held(store, claim())
    late = claim("two", now=NOW + 90_000)
    verdict = judge_late(read(store), late)
    assert isinstance(verdict, Bury)
    assert store.write(verdict.write).applied
    assert (read(store).status, read(store).attempts, read(store).history[-1]["kind"]) == ("DYING", 1, "Crashed")


def test_a_claim_that_came_too_late_to_start_ends_as_expired(store: Store) -> None:
    record = held(store, claim())
    assert not store.write(expired_write(replace(record, owner="other"), now=NOW, expires=TTL)).applied
    assert store.write(expired_write(record, now=NOW, expires=TTL)).applied
    assert read(store).status == "EXPIRED"
