"""Building a call: checked where it is built, and options that cannot be kept are refused."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from loomjobs.core.address import address
from loomjobs.core.call import Call, call, fifo_id
from loomjobs.core.envelope import Envelope
from loomjobs.core.errors import BadKey, BadPayload, InvalidOption
from loomjobs.core.key import EACH_ENQUEUE
from loomjobs.core.outgoing import Origin
from tests.core.catalogue_fixture import LEDGER, Statement, declare

WRITE = declare("billing.write")
POST = declare("ledger.post", LEDGER)
ONE = Statement("c1", date(2026, 1, 1))


def test_the_key_comes_from_the_payload() -> None:
    assert call(WRITE, ONE).key == call(WRITE, Statement("c1", date(2026, 1, 1))).key
    assert call(WRITE, ONE).key != call(WRITE, Statement("c2", date(2026, 1, 1))).key


def test_each_enqueue_has_no_key_before_it_is_sent() -> None:
    assert call(declare("a.b", key=EACH_ENQUEUE), ONE).key is None


def test_a_wrong_payload_is_refused_where_it_is_built() -> None:
    with pytest.raises(BadPayload):
        call(WRITE, Statement(7, date(2026, 1, 1)))  # type: ignore[arg-type]
    with pytest.raises(BadPayload):
        call(WRITE, {"customer_id": "c1"})


def test_an_empty_key_part_is_refused() -> None:
    with pytest.raises(BadKey, match="customer_id"):
        call(WRITE, Statement("", date(2026, 1, 1)))


def test_a_group_comes_from_the_payload_on_fifo_only() -> None:
    assert call(POST, ONE).group == "c1"
    assert call(WRITE, ONE).group is None
    with pytest.raises(InvalidOption, match="not FIFO"):
        call(WRITE, ONE, group="x")


@pytest.mark.parametrize("group", ["with space", "ünï", "x" * 129, "tab\t"])
def test_a_group_that_sqs_does_not_take_is_hashed_and_stays_itself(group: str) -> None:
    hashed = fifo_id(group)
    assert hashed == fifo_id(group)
    assert len(hashed) <= 128
    assert hashed != fifo_id(group + "x")
    assert fifo_id("customer-1/a") == "customer-1/a"


def test_an_empty_group_is_refused_rather_than_shared() -> None:
    keyless = declare("ledger.any", LEDGER, key=EACH_ENQUEUE)
    with pytest.raises(InvalidOption, match="is empty"):
        call(keyless, Statement("", date(2026, 1, 1)))


@pytest.mark.parametrize("delay", [timedelta(seconds=-1), timedelta(milliseconds=500)], ids=["negative", "fraction"])
def test_a_delay_is_whole_seconds(delay: timedelta) -> None:
    with pytest.raises(InvalidOption, match="whole number of seconds"):
        call(WRITE, ONE, delay=delay)


def test_b044_a_delay_on_fifo_is_refused_since_sqs_would_drop_it() -> None:
    with pytest.raises(InvalidOption, match="no delay per message on FIFO"):
        call(POST, ONE, delay=timedelta(seconds=60))


def test_a_given_key_replaces_the_derived_one_and_is_not_empty() -> None:
    assert call(WRITE, ONE, key="mine").key == "mine"
    with pytest.raises(InvalidOption, match="empty"):
        call(WRITE, ONE, key="")


NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TIMED = declare("billing.timed", expires=timedelta(hours=6))


def sent(one: Call, *, origin: datetime | None = None) -> datetime | None:
    body = address(one, id="i", now=NOW, origin=Origin(expires=origin)).body
    return Envelope.parse(body).expires


@pytest.mark.parametrize(
    ("expires", "instant"),
    [
        (HOUR, NOW + HOUR),
        (NOW + HOUR, NOW + HOUR),
        (datetime(2026, 1, 1, 3, tzinfo=timezone(timedelta(hours=2))), NOW + HOUR),
        (None, None),
    ],
)
def test_a_deadline_is_on_the_wire_as_one_instant(
    expires: timedelta | datetime | None, instant: datetime | None
) -> None:
    assert sent(call(WRITE, ONE, expires=expires)) == instant


def test_the_jobs_own_expires_holds_where_the_call_says_nothing() -> None:
    assert sent(call(TIMED, ONE)) == NOW + timedelta(hours=6)
    assert sent(call(TIMED, ONE, expires=HOUR)) == NOW + HOUR
    assert sent(call(TIMED, ONE, expires=timedelta(days=1))) == NOW + timedelta(days=1)


@pytest.mark.parametrize(
    ("own", "parents", "childs"),
    [(HOUR, 2 * HOUR, HOUR), (2 * HOUR, HOUR, HOUR), (None, HOUR, HOUR), (HOUR, None, HOUR), (HOUR, -HOUR, -HOUR)],
)
def test_a_child_expires_no_later_than_its_parent(
    own: timedelta | None, parents: timedelta | None, childs: timedelta
) -> None:
    origin = None if parents is None else NOW + parents
    assert sent(call(WRITE, ONE, expires=own), origin=origin) == NOW + childs


@pytest.mark.parametrize(
    ("expires", "delay", "what"),
    [
        (datetime(2026, 1, 1), None, "has no time zone. Use a datetime with a zone"),  # noqa: DTZ001
        (timedelta(0), None, "is over before it could run"),
        (-HOUR, None, "is over before it could run"),
        (timedelta.max, None, "leave it out for no limit"),
        (60, None, "give a timedelta, or a datetime with a zone"),
    ],
)
def test_a_deadline_that_could_not_be_met_is_refused_where_the_call_is_built(
    expires: Any, delay: timedelta | None, what: str
) -> None:
    with pytest.raises(InvalidOption, match=re.escape(what)):
        call(WRITE, ONE, expires=expires, delay=delay)


@pytest.mark.parametrize(("expires", "delay"), [(NOW, None), (NOW - HOUR, None), (NOW + HOUR / 4, HOUR / 4)])
def test_an_instant_that_is_over_is_refused_when_it_is_sent(expires: datetime, delay: timedelta | None) -> None:
    with pytest.raises(InvalidOption, match="Give a later instant, or do not send it"):
        sent(call(WRITE, ONE, expires=expires, delay=delay))
