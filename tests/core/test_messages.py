"""Messages on their way: out, understood, and to the dead-letter queue."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomjobs.core.address import address
from loomjobs.core.call import call
from loomjobs.core.decision import DeadLetter, DeferFor, Failure
from loomjobs.core.delivery import Attribute, Delivery
from loomjobs.core.errors import PayloadTooLarge
from loomjobs.core.key import EACH_ENQUEUE
from loomjobs.core.letter import ATTRIBUTE, legal, make_letter, read_report
from loomjobs.core.outgoing import Origin, packs
from loomjobs.core.work import Unworkable, Work, understand
from tests.core.catalogue_fixture import LEDGER, Statement, catalogue, declare

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WRITE = declare("billing.write", aliases=["billing.written"])
POST = declare("ledger.post", LEDGER)
ANY = declare("billing.any", key=EACH_ENQUEUE)
STRICT = declare("billing.strict", strict=True)
ALL = catalogue(ANY, WRITE, POST, STRICT)


def one(customer: str = "c1") -> Any:
    return call(WRITE, Statement(customer, date(2026, 1, 1)))


def delivery(body: str, **changes: Any) -> Delivery:
    given: dict[str, Any] = {"message_id": "m1", "receipt": "r", "queue": "billing", "sent_at": NOW, "received_at": NOW}
    return Delivery(body=body, **(given | changes))


def body(**members: Any) -> str:
    return json.dumps({"job": "billing.write", "payload": {"customer_id": "c1", "period": "2026-01-01"}} | members)


@given(st.lists(st.integers(1, 400_000), max_size=40))
def test_packs_keep_order_and_stay_within_ten_messages_and_a_mebibyte(sizes: list[int]) -> None:
    messages = [address(one("x" * size), id="i", now=NOW, origin=Origin()) for size in sizes]
    packed = list(packs(messages))
    assert [message for pack in packed for message in pack] == messages
    for pack in packed:
        assert 1 <= len(pack) <= 10
        assert sum(message.size for message in pack) <= 1_048_576


def test_a_message_that_sqs_would_refuse_is_refused_by_how_much() -> None:
    with pytest.raises(PayloadTooLarge, match="over the limit of 1,048,576") as caught:
        address(one("x" * 1_048_576), id="i", now=NOW, origin=Origin())
    assert caught.value.size - caught.value.limit > 0


def test_size_is_counted_in_bytes_and_not_in_characters() -> None:
    assert address(one("€" * 100), id="i", now=NOW, origin=Origin()).size > 300


def test_what_is_sent_is_understood() -> None:
    message = address(one(), id="id1", now=NOW, origin=Origin(trace=None, hops=2))
    work = understand(delivery(message.body), ALL)
    assert isinstance(work, Work)
    assert (work.job, work.payload, work.id, work.key) == (WRITE, Statement("c1", date(2026, 1, 1)), "id1", one().key)
    assert work.envelope.hops == 2


def test_a_foreign_message_gets_its_identity_from_the_first_message_and_its_key_from_the_payload() -> None:
    work = understand(delivery(body()), ALL)
    assert isinstance(work, Work)
    assert (work.id, work.key) == ("m1", one().key)
    each = understand(delivery(body(job="billing.any")), ALL)
    assert isinstance(each, Work)
    assert each.key == "m1"


def test_a_redriven_foreign_message_keeps_the_identity_of_its_first_one() -> None:
    dead = make_letter(delivery(body()), DeadLetter("permanent"), identity="m1", job="billing.any", at="now")
    again = understand(delivery(body(job="billing.any"), message_id="m2", attributes=dead.attributes), ALL)
    assert isinstance(again, Work)
    assert (again.id, again.key) == ("m1", "m1")


def test_a_former_name_finds_the_job() -> None:
    work = understand(delivery(body(job="billing.written")), ALL)
    assert isinstance(work, Work)
    assert work.job is WRITE


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no", "bad-envelope"),
        (body(job="billing.gone"), "unroutable"),
        (body(job="ledger.post"), "unroutable"),
        (body(payload={}), "bad-payload"),
        (body(payload={"customer_id": "", "period": "2026-01-01"}), "bad-key"),
        (body(job="billing.strict", payload={"customer_id": "c", "period": "2026-01-01", "new": 1}), "bad-payload"),
    ],
)
def test_what_is_no_work_is_a_dead_letter_with_its_reason(text: str, reason: str) -> None:
    refused = understand(delivery(text), ALL)
    assert isinstance(refused, Unworkable)
    assert isinstance(refused.decision, DeadLetter)
    assert refused.decision.reason == reason


@pytest.mark.parametrize("members", [{"v": 3}, {"payload_version": 2}, {"v": 9, "job": "billing.gone"}])
def test_a_newer_version_waits_for_a_rolling_deploy_and_is_dead_after_it(members: dict[str, Any]) -> None:
    early = understand(delivery(body(**members)), ALL)
    late = understand(delivery(body(**members), received_at=NOW + timedelta(hours=2)), ALL)
    assert isinstance(early, Unworkable)
    assert isinstance(late, Unworkable)
    assert isinstance(early.decision, DeferFor)
    assert isinstance(late.decision, DeadLetter)
    assert late.decision.reason == "newer-version"


@given(st.text())
def test_no_body_whatever_raises(text: str) -> None:
    assert isinstance(understand(delivery(text), ALL), Unworkable)


FAILURE = Failure("ValueError", "x" * 5_000, "abc", "stack")


def letter(**changes: Any) -> Any:
    dead = DeadLetter("exhausted", FAILURE, attempts=5)
    made = delivery(changes.pop("body", "{}"), receives=7, **changes)
    return make_letter(made, dead, identity="i", job="a.b", at="2026-01-01T00:00:00+00:00")


def test_a_letter_is_the_message_as_it_was_with_a_report_beside_it() -> None:
    kept = {"who": Attribute("String", "é")}
    made = letter(body="as it \u2028 was", attributes=kept, group="g", kind="fifo")
    assert (made.body, made.group, made.dedup) == ("as it \u2028 was", "g", "m1")
    assert made.attributes["who"] is kept["who"]
    report = read_report(made.attributes)
    assert report is not None
    assert (report["reason"], report["attempts"], report["receives"], report["message"]) == ("exhausted", 5, 7, "m1")
    assert len(report["error"]) <= 1_024


def test_a_report_is_cut_or_left_out_before_anything_of_the_message_is() -> None:
    ten = {f"a{n}": Attribute("String", "x") for n in range(10)}
    assert ATTRIBUTE not in letter(attributes=ten).attributes
    nearly_full = letter(body="x" * (1_048_576 - 400))
    assert len(nearly_full.body) == 1_048_576 - 400
    report = read_report(nearly_full.attributes)
    assert report is not None
    assert len(report["error"]) <= 80
    assert ATTRIBUTE not in letter(body="x" * 1_048_576).attributes


def test_a_report_has_only_characters_that_sqs_takes() -> None:
    dead = DeadLetter("permanent", Failure("E", "\x00\ufffe\ud800 é", "f"))
    made = make_letter(delivery("{}"), dead, identity="i", job=None, at="")
    text = made.attributes[ATTRIBUTE].text
    assert text is not None
    assert text.isascii()
    assert text.isprintable()


def told(message: str, text: str, **options: Any) -> str:
    dead = DeadLetter("permanent", Failure("ValueError", message, "f"))
    report = read_report(make_letter(delivery(text), dead, identity="i", job=None, at="", **options).attributes)
    assert report is not None
    return str(report["error"])


def test_an_error_is_told_without_the_payloads_values_and_with_the_key() -> None:
    text = body(payload={"customer_id": "customer-1", "name": "Alice Cooper"})
    message = "customer-1, Alice Cooper: password=hunter2"
    assert told(message, text) == "ValueError: <customer_id>, <name>: password=<redacted>"
    assert told(message, text, key="customer-1/2026") == "ValueError: customer-1, <name>: password=<redacted>"
    keyed = body(payload={"customer_id": "customer-1", "name": "Alice Cooper"}, key="customer-1/2026")
    assert told(message, keyed) == "ValueError: customer-1, <name>: password=<redacted>"


def test_a_body_that_is_no_envelope_is_not_told_either() -> None:
    assert told("no: hunter22", "hunter22") == "ValueError: no: <payload>"
    assert told("no: hunter22", '["hunter22"]') == "ValueError: no: <payload>"
    assert told("no: hunter22", '{"who": "hunter22"}') == "ValueError: no: <who>"


def test_characters_that_sqs_does_not_take_are_replaced() -> None:
    assert told("a\x00b\ufffe\ud800", "{}") == "ValueError: a\ufffdb\ufffd\ufffd"
    assert legal("tab\t \U0001f600") == "tab\t \U0001f600"


def test_an_older_report_is_replaced_and_anothers_attribute_of_that_name_is_no_report() -> None:
    again = letter(attributes={ATTRIBUTE: Attribute("String", '{"id": "old"}')})
    report = read_report(again.attributes)
    assert report is not None
    assert report["id"] == "i"
    assert read_report({ATTRIBUTE: Attribute("String", "[1]")}) is None
    assert read_report({ATTRIBUTE: Attribute("Binary", binary=b"x")}) is None
    assert read_report({ATTRIBUTE: Attribute("String", "{")}) is None
