"""One suite for every store of execution records: in memory, and DynamoDB by its adapter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from loomjobs.aws.store import DynamoStore
from loomjobs.core.claim import Claim, Ended, Lapsed, Replace, claim_write, judge, replace_write, takeover_write
from loomjobs.core.decision import Failure
from loomjobs.core.ending import bury_write, complete_write, defer_write, die_write, fail_write
from loomjobs.core.fan import Member, Page, bad_write, done_write, open_write
from loomjobs.core.record import Record
from loomjobs.core.write import Absent, AllOf, AnyOf, Is, OneOf, Write, Written
from loomjobs.local.store import MemoryStore
from loomjobs.runtime.ports import Store

NOW = 1_800_000_000_000
TTL = NOW // 1000 + 86_400
FAILURE = Failure("ValueError", "é\x00 odd", "abc")


@pytest.fixture(params=["memory", "dynamodb"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    request.getfixturevalue("account")
    client = boto3.client("dynamodb")
    client.create_table(
        TableName="executions",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    yield DynamoStore("executions", client=client)


def claim(owner: str = "one", **changes: Any) -> Claim:
    made = Claim(
        id="a.b#1",
        owner=owner,
        now=NOW,
        lease=NOW + 60_000,
        payload_hash="p",
        message="m",
        sent=NOW - 1,
        expires=TTL,
        version="v",
    )
    return replace(made, **changes)


def held(store: Store, one: Claim) -> Record:
    written = store.write(claim_write(one))
    assert written.applied
    assert written.item is not None
    return Record.of(written.item)


def test_a_first_claim_is_applied_and_a_second_is_shown_who_holds_it(store: Store) -> None:
    record = held(store, claim())
    assert (record.status, record.owner, record.epoch, record.attempts) == ("INPROGRESS", "one", 1, 0)
    refused = store.write(claim_write(claim("two")))
    assert not refused.applied
    assert refused.item is not None
    assert Record.of(refused.item) == record


def test_an_ended_record_is_read_as_it_was_written(store: Store) -> None:
    record = held(store, claim())
    assert store.write(complete_write(record, now=NOW, expires=TTL, result='"é"')).applied
    item = store.read(record.id)
    assert item is not None
    read = Record.of(item)
    assert (read.status, read.result, read.ended, read.expires) == ("COMPLETED", '"é"', NOW, TTL)
    assert judge(read, claim("two")) == Ended()


def test_a_record_that_is_not_there_is_none(store: Store) -> None:
    assert store.read("nothing") is None


def test_a_failure_waits_with_its_history_and_is_claimed_when_it_is_due(store: Store) -> None:
    record = held(store, claim())
    assert store.write(fail_write(record, FAILURE, now=NOW, not_before=NOW + 5_000, expires=TTL)).applied
    assert not store.write(claim_write(claim("two", now=NOW + 4_999))).applied
    again = held(store, claim("two", now=NOW + 5_000))
    assert (again.attempts, again.epoch, again.not_before) == (1, 2, 0)
    assert again.history[0]["message"] == FAILURE.message


def test_sets_take_and_lose_numbers_and_are_gone_when_they_are_empty(store: Store) -> None:
    first = store.write(done_write("b", 0, [3, 1], expires=TTL)).item
    assert first is not None
    assert (first["done"], "bad" in first) == (frozenset({1, 3}), False)
    failed = store.write(bad_write(Member("b", 0, 2), "why", expires=TTL)).item
    assert failed is not None
    assert (failed["bad"], failed["f2"]) == (frozenset({2}), "why")
    assert not store.write(bad_write(Member("b", 0, 3), "a double", expires=TTL)).applied
    mended = store.write(done_write("b", 0, [2, 3], expires=TTL)).item
    assert mended is not None
    assert (mended["done"], "bad" in mended, "f2" in mended) == (frozenset({1, 2, 3}), False, False)
    assert Page.of(mended) == Page.of(store.read("batch-page:0:b") or {})


def test_of_many_writes_those_that_one_call_cannot_carry_are_carried_out_too(store: Store) -> None:
    writes = [done_write("b", page, [page], expires=TTL) for page in range(3)] + [open_write("b", expires=TTL)]
    assert all(isinstance(answer, Written) and answer.applied for answer in store.write_many(writes))
    assert Page.of(store.read("batch-page:2:b") or {}).done == frozenset({2})


@pytest.mark.parametrize("ending", ["complete", "fail", "defer", "die"])
def test_only_the_owner_ends_a_run(store: Store, ending: str) -> None:
    lost = held(store, claim())
    lapsed = claim("two", now=NOW + 120_000)
    old = store.write(claim_write(lapsed)).item
    assert old is not None
    assert judge(Record.of(old), lapsed) == Lapsed()
    assert store.write(takeover_write(lapsed, Record.of(old), attempts=5)).applied
    writes = {
        "complete": complete_write(lost, now=NOW, expires=TTL, result=None),
        "fail": fail_write(lost, FAILURE, now=NOW, not_before=NOW, expires=TTL),
        "defer": defer_write(lost, not_before=NOW, expires=TTL),
        "die": die_write(lost, "permanent", FAILURE, now=NOW, expires=TTL),
    }
    refused = store.write(writes[ending])
    assert not refused.applied
    assert refused.item is not None
    assert (refused.item["owner"], refused.item["n"]) == ("two", 1)


def test_a_dead_record_is_buried_and_reopened_by_a_redrive(store: Store) -> None:
    record = held(store, claim())
    assert store.write(die_write(record, "permanent", FAILURE, now=NOW, expires=TTL)).applied
    assert store.write(bury_write(record, now=NOW + 1, expires=TTL)).applied
    redriven = claim("two", message="m2", sent=NOW + 10, now=NOW + 20)
    old = store.write(claim_write(redriven)).item
    assert old is not None
    assert judge(Record.of(old), redriven) == Replace()
    written = store.write(replace_write(redriven, Record.of(old)))
    assert written.item is not None
    fresh = Record.of(written.item)
    assert (fresh.status, fresh.attempts, fresh.why, fresh.history) == ("INPROGRESS", 0, "", ())


def test_two_workers_cannot_both_take_over(store: Store) -> None:
    held(store, claim())
    old = Record.of(store.read("a.b#1") or {})
    late = NOW + 120_000
    outcomes = [
        store.write(takeover_write(claim(owner, now=late, lease=late + 60_000), old, attempts=5)).applied
        for owner in ("two", "three")
    ]
    assert outcomes == [True, False]


def test_every_kind_of_condition_means_the_same(store: Store) -> None:
    def write(condition: Any, value: int) -> bool:
        return store.write(Write(id="x", condition=condition, sets={"n": value, "s": "b"})).applied

    assert write(Absent("id"), 1)
    assert not write(Absent("id"), 2)
    assert write(Is("n", "=", 1), 2)
    assert not write(Is("missing", "=", 1), 3)
    assert write(AllOf(Is("n", ">=", 2), Is("s", "=", "b")), 3)
    assert not write(AllOf(Is("n", ">", 3), Is("s", "=", "b")), 4)
    assert write(AnyOf(Is("n", ">", 3), OneOf("s", ("a", "b"))), 5)
    assert not write(OneOf("s", ("a", "c")), 6)
    read = store.read("x")
    assert read is not None
    assert read["n"] == 5


class Owners(RuleBasedStateMachine):
    """Several workers and one record, in any order, over a clock that only goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.now = NOW
        self.holding: dict[str, Record] = {}
        self.completed = False
        self.charged = 0

    @rule(owner=st.sampled_from("abc"), fresh=st.booleans())
    def claims(self, owner: str, fresh: bool) -> None:
        one = claim(f"{owner}{self.now}" if fresh else owner, now=self.now, lease=self.now + 60_000)
        written = self.store.write(claim_write(one))
        if not written.applied and written.item is not None:
            old = Record.of(written.item)
            if isinstance(judge(old, one), Lapsed):
                written = self.store.write(takeover_write(one, old, attempts=1_000))
            elif isinstance(judge(old, one), Ended):
                assert self.completed
        if written.applied and written.item is not None:
            assert not self.completed
            self.holding[owner] = Record.of(written.item)

    @rule(by=st.integers(1_000, 90_000))
    def time_passes(self, by: int) -> None:
        self.now += by

    @precondition(lambda self: self.holding)
    @rule(data=st.data(), ending=st.sampled_from(["complete", "fail", "defer"]))
    def ends(self, data: st.DataObject, ending: str) -> None:
        record = self.holding[data.draw(st.sampled_from(sorted(self.holding)))]
        before = self.store.read("a.b#1") or {}
        writes = {
            "complete": complete_write(record, now=self.now, expires=TTL, result=None),
            "fail": fail_write(record, FAILURE, now=self.now, not_before=self.now + 1, expires=TTL),
            "defer": defer_write(record, not_before=self.now + 1, expires=TTL),
        }
        applied = self.store.write(writes[ending]).applied
        assert applied == (before["owner"] == record.owner and before["status"] == "INPROGRESS")
        self.completed = self.completed or (applied and ending == "complete")

    @invariant()
    def attempts_never_decrease(self) -> None:
        item = self.store.read("a.b#1") or {"n": 0}
        assert item["n"] >= self.charged
        self.charged = item["n"]


Owners.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestOwners = Owners.TestCase
