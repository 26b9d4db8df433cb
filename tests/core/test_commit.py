"""What a commit is made of, and what is refused before the call."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from loomjobs.core.address import address
from loomjobs.core.call import call
from loomjobs.core.claim import Claim, claim_write
from loomjobs.core.classify import classify
from loomjobs.core.commit import (
    Commit,
    Committed,
    FenceLost,
    ItemRefused,
    make_commit,
    settle,
)
from loomjobs.core.errors import (
    CommitError,
    CommitRefused,
    CommitTooLarge,
    InvalidCommit,
    LostClaim,
    PayloadTooLarge,
)
from loomjobs.core.outgoing import Origin, Outgoing
from loomjobs.core.record import Record
from loomjobs.core.retry import Retry
from loomjobs.core.write import apply
from tests.core.catalogue_fixture import MAIL, Statement, declare

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
SEND = declare("mail.send", MAIL)


def record(owner: str = "one") -> Record:
    claim = Claim(
        id="a.b#1",
        owner=owner,
        now=NOW_MS,
        lease=NOW_MS + 60_000,
        payload_hash="p",
        message="m",
        sent=NOW_MS - 1,
        expires=NOW_MS // 1000 + 60,
        version="v",
    )
    item = apply(claim_write(claim), None).item
    assert item is not None
    return Record.of(item)


def put(id: str = "x", **attributes: Any) -> dict[str, Any]:
    return {"Put": {"TableName": "statements", "Item": {"id": {"S": id}, **attributes}}}


def message(id: str = "job1", customer: str = "c1") -> Outgoing:
    return address(call(SEND, Statement(customer, date(2026, 1, 1))), id=id, now=NOW, origin=Origin())


def commit(*items: Any, messages: Any = (), result: str | None = None, owner: str = "one") -> Commit:
    return make_commit(record(owner), items=items, messages=messages, result=result, now=NOW, expires=99)


def test_a_commit_holds_items_rows_and_the_fenced_completion() -> None:
    made = commit(put(), messages=[message()], result='"r"')
    assert made.items == (put(),)
    assert [(row.id, row.queue, row.at) for row in made.rows] == [("job1", "mail", NOW_MS)]
    assert made.complete.sets["status"] == "COMPLETED"
    assert made.complete.sets["data"] == '"r"'
    assert not apply(made.complete, {"id": "a.b#1", "owner": "two", "status": "INPROGRESS"}).applied


def test_an_empty_commit_is_a_completion() -> None:
    assert (commit().items, commit().rows) == ((), ())


def test_a_hundred_actions_fit_and_one_more_is_refused_with_its_count() -> None:
    assert len(commit(*[put(str(place)) for place in range(99)]).items) == 99
    with pytest.raises(CommitTooLarge, match=r"98 items, 2 calls and the job's own record\): 101") as raised:
        commit(*[put(str(place)) for place in range(98)], messages=[message("a"), message("b")])
    assert (raised.value.given, raised.value.limit) == (101, 100)


def test_four_megabytes_fit_and_more_is_refused_with_its_size() -> None:
    some = [put(str(place), text={"S": "é" * 190_000}) for place in range(11)]
    assert len(commit(*some[:10]).items) == 10
    with pytest.raises(CommitTooLarge, match="bytes in the 13 actions") as raised:
        commit(*some, some[0])
    assert raised.value.given > raised.value.limit == 4 * 1024 * 1024


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ({"S": "é"}, 2),
        ({"N": "1234"}, 3),
        ({"B": b"123"}, 3),
        ({"BOOL": True}, 1),
        ({"NULL": True}, 1),
        ({"SS": ["a", "bc"]}, 3),
        ({"L": [{"S": "a"}, {"S": "b"}]}, 3 + 2 + 2),
        ({"M": {"k": {"S": "v"}}}, 3 + 2 + 1),
    ],
)
def test_attributes_have_dynamodbs_size(value: Any, size: int) -> None:
    from loomjobs.core.commit import _size

    assert _size({"ab": value}) == 2 + size


@pytest.mark.parametrize(
    ("action", "what"),
    [
        ("x", "one of Put, Update, Delete, ConditionCheck"),
        ({}, "one of Put"),
        ({"Get": {}}, "one of Put"),
        ({**put(), "Delete": {}}, "one of Put"),
        ({"Put": {"Item": {"id": {"S": "x"}}}}, "Put has no TableName"),
        ({"Put": {"TableName": "t"}}, "Put has no Item"),
        ({"Delete": {"TableName": "t"}}, "Delete has no Key"),
        ({"Update": {"TableName": "t", "Key": {"id": {"S": "x"}}}}, "Update has no UpdateExpression"),
        ({"ConditionCheck": {"TableName": "t", "Key": {"id": {"S": "x"}}}}, "has no ConditionExpression"),
        ({"Put": {"TableName": "t", "Item": {"id": "x"}}}, "attribute 'id' has no type"),
        ({"Put": {"TableName": "t", "Item": ["x"]}}, "no mapping"),
        ({"Put": {"TableName": "t", "Item": {"id": {"S": "x"}, "l": {"L": 5}}}}, "type's form"),
    ],
)
def test_a_malformed_action_is_named_by_its_place(action: Any, what: str) -> None:
    with pytest.raises(InvalidCommit, match=what) as raised:
        commit(put(), action)
    assert str(raised.value).startswith("items[1]: ")


def test_a_call_that_fits_a_message_but_no_item_is_refused() -> None:
    @dataclass(frozen=True)
    class Long:
        text: str

    def read(long: Long, ctx: Any) -> None: ...

    read.__annotations__["long"] = Long
    large = declare("mail.long", MAIL, read, key="text")
    made = address(call(large, Long("x" * 420_000), key="k"), id="i", now=NOW, origin=Origin())
    with pytest.raises(PayloadTooLarge, match=r"mail\.long"):
        commit(messages=[made])


def test_the_token_is_of_the_claim_and_the_content() -> None:
    assert commit(put()).token == commit(put()).token
    tokens = {
        commit(put()).token,
        commit(put("y")).token,
        commit(put(), owner="two").token,
        commit(put(), result="1").token,
        commit(put(), messages=[message()]).token,
    }
    assert len(tokens) == 5
    assert all(len(token) == 36 for token in tokens)


def test_an_outcome_is_settled_into_the_authors_error_or_a_lost_claim() -> None:
    settle(Committed(), job="a.b")
    with pytest.raises(LostClaim, match=r"a\.b"):
        settle(FenceLost(), job="a.b")
    with pytest.raises(CommitRefused, match=r"items\[2\].*ConditionalCheckFailed") as raised:
        settle(ItemRefused(2, "ConditionalCheckFailed", {"id": {"S": "x"}}), job="a.b")
    assert (raised.value.place, raised.value.item) == (2, {"id": {"S": "x"}})
    with pytest.raises(CommitRefused, match=r"^the commit was refused"):
        settle(ItemRefused(None, "why"), job="a.b")


def test_a_refusal_is_permanent_unless_the_job_says_otherwise() -> None:
    for error in (CommitRefused(0, "x"), CommitTooLarge("x", 2, 1), InvalidCommit("x")):
        assert isinstance(error, CommitError)
        assert classify(error, Retry(), now=NOW).kind == "permanent"
    own = replace(Retry(), transient=(CommitRefused,))
    assert classify(CommitRefused(0, "x"), own, now=NOW).kind == "transient"
