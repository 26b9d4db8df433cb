"""When a call is due, for how long it is worth starting, and what a one-off schedule is told."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomjobs import call
from loomjobs.core import limits
from loomjobs.core.address import address
from loomjobs.core.call import Call
from loomjobs.core.envelope import Envelope
from loomjobs.core.errors import InvalidOption, PayloadTooLarge
from loomjobs.core.later import literal, moved, queue_prefix, schedule_name, whole_minute
from loomjobs.core.outgoing import Origin, Outgoing, is_far
from loomjobs.core.work import Work, understand
from tests.core.catalogue_fixture import LEDGER, Statement, catalogue, declare

WRITE, POST = declare("billing.write"), declare("ledger.post", LEDGER)
TIMED = declare("billing.timed", expires=timedelta(hours=6))
ONE = Statement("c1", date(2026, 1, 1))
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def sent(one: Call, origin: Origin = Origin()) -> Outgoing:  # noqa: B008 it is frozen
    return address(one, id="i", now=NOW, origin=origin)


def envelope(one: Call, origin: Origin = Origin()) -> Envelope:  # noqa: B008 it is frozen
    return Envelope.parse(sent(one, origin).body)


@pytest.mark.parametrize(
    ("options", "seconds", "far"),
    [
        ({}, 0, False),
        ({"delay": timedelta(minutes=15)}, 900, False),
        ({"delay": timedelta(minutes=15, seconds=1)}, 901, True),
        ({"delay": timedelta(days=3650)}, 315_360_000, True),
        ({"at": NOW + HOUR}, 3_600, True),
        ({"at": NOW + timedelta(seconds=10.2)}, 11, False),
        ({"at": (NOW + HOUR).astimezone(timezone(timedelta(hours=9)))}, 3_600, True),
        ({"at": NOW - DAY}, 0, False),
    ],
)
def test_one_delay_from_seconds_to_years(options: dict[str, Any], seconds: int, far: bool) -> None:
    message = sent(call(WRITE, ONE, **options))
    assert (message.delay, is_far(message)) == (seconds, far)
    due = Envelope.parse(message.body).due
    assert due == (NOW + timedelta(seconds=seconds) if seconds else None)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"delay": timedelta(days=3651)}, "whole number of seconds from 0 to 3650 days"),
        ({"delay": timedelta.max}, "whole number of seconds"),
        ({"delay": HOUR, "at": NOW}, "delay= and at= both say when"),
        ({"at": datetime(2026, 1, 1)}, "at=2026-01-01T00:00:00 has no time zone. Use a datetime with a zone"),  # noqa: DTZ001
        ({"at": NOW + timedelta(days=3651)}, "more than 3650 days ahead"),
    ],
)
def test_an_instant_that_cannot_be_kept_is_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(what)):
        sent(call(WRITE, ONE, **options))


@pytest.mark.parametrize("options", [{"at": NOW + timedelta(seconds=5)}, {"delay": timedelta(minutes=16)}])
def test_on_fifo_a_schedule_sends_whatever_is_due_later(options: dict[str, Any]) -> None:
    message = sent(call(POST, ONE, **options))
    assert is_far(message)
    assert Envelope.parse(message.body).group == message.group == "c1"


def test_a_short_delay_on_fifo_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidOption, match=re.escape("use at= or more than 15 minutes")):
        call(POST, ONE, delay=timedelta(minutes=15))
    assert call(POST, ONE, delay=timedelta(0)).delay == 0


def test_expires_counts_from_when_it_is_due() -> None:
    assert envelope(call(TIMED, ONE, delay=2 * DAY)).expires == NOW + 2 * DAY + 6 * HOUR
    assert envelope(call(TIMED, ONE, at=NOW + DAY)).expires == NOW + DAY + 6 * HOUR
    assert envelope(call(WRITE, ONE, at=NOW + DAY, expires=HOUR)).expires == NOW + DAY + HOUR
    with pytest.raises(InvalidOption, match="is over before it could run"):
        sent(call(WRITE, ONE, at=NOW + DAY, expires=NOW + DAY))


def test_a_worker_counts_the_jobs_own_expires_from_when_it_was_due() -> None:
    from tests.core.test_messages import delivery

    body = json.dumps(
        {
            "job": "billing.timed",
            "payload": {"customer_id": "c1", "period": "2026-01-01"},
            "enqueued_at": "2026-01-01T12:00:00Z",
            "due": "2026-01-03T12:00:00Z",
        }
    )
    work = understand(delivery(body), catalogue(TIMED))
    assert isinstance(work, Work)
    assert (work.due, work.expires) == (NOW + 2 * DAY, NOW + 2 * DAY + 6 * HOUR)


def test_work_that_is_due_after_its_senders_deadline_does_not_inherit_it() -> None:
    origin = Origin(expires=NOW + 6 * HOUR)
    assert envelope(call(WRITE, ONE, delay=HOUR), origin).expires == NOW + 6 * HOUR
    assert envelope(call(WRITE, ONE, delay=2 * DAY), origin).expires is None


def test_what_a_schedule_cannot_hold_is_refused_with_its_limit() -> None:
    big = Statement("c" * limits.SCHEDULE_INPUT_BYTES, date(2026, 1, 1))
    sent(call(WRITE, big, key="k"))
    with pytest.raises(PayloadTooLarge) as caught:
        sent(call(WRITE, big, key="k", delay=HOUR))
    assert caught.value.limit == limits.SCHEDULE_INPUT_BYTES


@pytest.mark.parametrize("attribute", ["scheduled-time", "execution-id", "schedule-arn", "attempt-number"])
def test_a_payload_that_looks_like_a_context_attribute_arrives_as_it_is(attribute: str) -> None:
    text = f"<aws.scheduler.{attribute}>"
    message = sent(call(WRITE, Statement(text, date(2026, 1, 1)), delay=HOUR))
    assert "<aws.scheduler" not in message.body
    assert Envelope.parse(message.body).payload == {"customer_id": text, "period": "2026-01-01"}
    assert "<aws.scheduler" not in moved(message.body, NOW)


@given(st.text())
def test_literal_changes_no_json(text: str) -> None:
    wrapped = json.dumps(text + "<aws.scheduler.x>" + text)
    assert json.loads(literal(wrapped)) == json.loads(wrapped)


@given(st.timedeltas(timedelta(0), timedelta(days=3650)))
def test_a_whole_minute_is_never_early_and_less_than_a_minute_late(ahead: timedelta) -> None:
    at = NOW + ahead
    assert timedelta(0) <= whole_minute(at) - at < timedelta(minutes=1)
    assert whole_minute(at).second == whole_minute(at).microsecond == 0


@given(st.from_regex(r"[a-z][a-z0-9-]{0,79}", fullmatch=True), st.from_regex(r"[0-9a-zA-Z-]{1,80}", fullmatch=True))
def test_names_of_schedules_are_legal_and_tell_the_queue(queue: str, id: str) -> None:
    name = schedule_name(queue, id)
    assert re.fullmatch(r"[0-9a-zA-Z_.-]{1,64}", name)
    assert name.startswith(queue_prefix(queue))
    assert name == schedule_name(queue, id) != schedule_name(queue, id + "x")


def test_a_moved_envelope_is_the_same_but_for_when() -> None:
    body = sent(call(WRITE, ONE, delay=HOUR)).body
    again = json.loads(moved(body, NOW + DAY))
    assert again.pop("due") == "2026-01-02T12:00:00.000Z"
    before = json.loads(body)
    before.pop("due")
    assert again == before
