"""Payloads beside their messages: when, under which address, and that they are the same work as before."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomjobs import JobContext, Queue, Workload, job
from loomjobs.core import defaults, limits
from loomjobs.core.address import address
from loomjobs.core.call import call
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.decision import DeadLetter, Failure
from loomjobs.core.delivery import Delivery
from loomjobs.core.envelope import Envelope
from loomjobs.core.errors import BadEnvelope, DeclarationError, InvalidOption, PayloadTampered, PayloadTooLarge
from loomjobs.core.key import EACH_ENQUEUE
from loomjobs.core.later import moved
from loomjobs.core.letter import make_letter
from loomjobs.core.offload import PayloadRef, pack, read_ref, unpack
from loomjobs.core.outgoing import Origin, Outgoing, packs
from loomjobs.core.payload import canonical, digest, parse
from loomjobs.core.registry import isolated
from loomjobs.core.renewal import renewed_body
from loomjobs.core.work import Unworkable, Work, opened, understand

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BIG = Queue("big", workload=Workload.BULK, body_limit=4_096, oversized="offload")
STRICT = Queue("strict", workload=Workload.BULK, body_limit=4_096)
WIDE = Queue("wide", workload=Workload.BULK, oversized="offload")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
).filter(lambda value: _is_utf8(value))


def _is_utf8(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class Thing:
    id: str
    text: str = ""


def declared(queue: Queue, **options: Any) -> Any:
    with isolated():

        @job("test.thing", queue=queue, **({"key": "id"} | options))
        def thing(thing: Thing, ctx: JobContext) -> None: ...

    return thing


def send(queue: Queue, size: int, *, room: int = limits.SQS_MESSAGE_BYTES, **options: Any) -> Outgoing:
    one = call(declared(queue), Thing("a", "x" * size), **options)
    return address(one, id="i", now=NOW, origin=Origin(trace=None, hops=2), room=room)


def understood(job_: Any, body: str) -> Work | Unworkable:
    delivery = Delivery(message_id="m", body=body, receipt="r", queue=job_.queue.name, sent_at=NOW, received_at=NOW)
    return understand(delivery, Catalogue((job_,)))


# -- when ---------------------------------------------------------------------------------------------
def test_a_body_beyond_its_queues_limit_is_refused_or_goes_beside_its_message() -> None:
    with pytest.raises(PayloadTooLarge, match=r'over the limit of 4,096.*or give queue strict oversized="offload"'):
        send(STRICT, 4_096)
    message = send(BIG, 4_096)
    assert message.parcel is not None
    assert message.size < 400
    assert send(BIG, 1_000).parcel is None


def test_a_schedule_takes_less_than_sqs() -> None:
    assert send(WIDE, 300_000).parcel is None
    assert send(WIDE, 300_000, delay=timedelta(days=3)).parcel is not None
    assert send(WIDE, 1_048_576).parcel is not None


def test_a_row_takes_less_than_sqs() -> None:
    assert send(WIDE, 500_000, room=400_000).parcel is not None
    assert send(Queue("n", workload=Workload.BULK), 500_000, room=400_000).parcel is None


def test_a_payload_is_not_kept_for_a_call_that_is_due_after_its_time() -> None:
    assert send(BIG, 5_000, delay=timedelta(days=30)).parcel is not None
    with pytest.raises(InvalidOption, match="kept for 30 days until the call is due"):
        send(BIG, 5_000, delay=timedelta(days=30, seconds=1))
    assert send(BIG, 1_000, delay=timedelta(days=300)).parcel is None


def test_there_is_a_limit_beside_a_message_too() -> None:
    with pytest.raises(PayloadTooLarge, match=r"over the limit of 16,777,216. Store the data .* its address.$"):
        send(BIG, defaults.PAYLOAD_BYTES)


def test_a_body_that_is_too_large_without_its_payload_is_refused() -> None:
    one = call(declared(BIG), Thing("a", "x" * 5_000), key="k" * 5_000)
    with pytest.raises(PayloadTooLarge, match=r"its address.$"):
        address(one, id="i", now=NOW, origin=Origin())


def test_a_request_counts_bodies_as_they_are_sent() -> None:
    messages = [send(WIDE, 1_048_576) for _ in range(12)]
    assert [len(each) for each in packs(messages)] == [10, 2]


@pytest.mark.parametrize(
    "options", [{"body_limit": 4_095}, {"body_limit": 1_048_577}, {"body_limit": 1e4}, {"oversized": "drop"}]
)
def test_the_options_have_bounds(options: Any) -> None:
    with pytest.raises(DeclarationError, match=next(iter(options))):
        Queue("x", workload=Workload.BULK, **options)


# -- the same work ------------------------------------------------------------------------------------
@given(JSON)
def test_a_payload_has_one_hash_whether_it_is_in_its_message_or_beside_it(payload: Any) -> None:
    text = json.dumps(payload).encode()
    ref, parcel = pack("q", text)
    assert ref.digest == digest(parse(text))
    assert parcel.key == f"payloads/q/{hashlib.sha256(parcel.data).hexdigest()}"
    assert unpack(ref, parcel.data) == parse(text)
    shuffled = json.dumps(payload, indent=3, ensure_ascii=False).encode()
    assert pack("q", shuffled) == (ref, parcel)


@given(st.text(max_size=200))
def test_work_is_the_same_after_its_payload_is_read(text: str) -> None:
    thing = declared(BIG)
    large = Thing("a", "x" * 5_000 + text.encode("utf-8", "ignore").decode())
    message = address(call(thing, large), id="i", now=NOW, origin=Origin())
    closed = understood(thing, message.body)
    assert isinstance(closed, Work)
    assert closed.is_closed
    assert closed.payload is None
    assert message.parcel is not None
    work = opened(closed, message.parcel.data)
    assert not work.is_closed
    assert work.payload == large
    inline = understood(thing, json.dumps({"job": "test.thing", "payload": {"id": "a", "text": large.text}}))
    assert isinstance(inline, Work)
    assert (work.payload_hash, work.key) == (inline.payload_hash, inline.key)


@given(st.binary(max_size=200), st.binary(min_size=1, max_size=200))
def test_any_other_bytes_are_noticed(stored: bytes, meant: bytes) -> None:
    ref = PayloadRef(hashlib.sha256(meant).hexdigest(), len(meant))
    if stored != meant:
        with pytest.raises(PayloadTampered):
            unpack(ref, stored)


def test_old_payloads_beside_messages_are_upcast() -> None:
    def up(old: Any) -> Any:
        return {"id": old["name"], "text": "new"}

    thing = declared(BIG, version=2, upcasters={1: up})
    ref, parcel = pack("big", b'{"name":"a"}')
    body = json.dumps({"job": "test.thing", "key": "a", "payload_ref": {"sha256": ref.sha256, "size": ref.size}})
    closed = understood(thing, body)
    assert isinstance(closed, Work)
    work = opened(closed, parcel.data)
    assert work.payload == Thing("a", "new")
    assert work.payload_hash == ref.digest


def test_each_enqueue_needs_no_key_of_a_foreign_producer() -> None:
    thing = declared(BIG, key=EACH_ENQUEUE)
    work = understood(thing, json.dumps({"job": "test.thing", "payload_ref": {"sha256": "a" * 64, "size": 1}}))
    assert isinstance(work, Work)
    assert work.key == "m"


# -- what carries it ----------------------------------------------------------------------------------
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner), max_leaves=5))
def test_a_reference_is_read_or_refused_and_nothing_else(value: Any) -> None:
    for given_ in (value, {"sha256": value, "size": 1}, {"sha256": "a" * 64, "size": value}):
        try:
            ref = read_ref(given_)
        except BadEnvelope:
            continue
        assert ref.key("q") == "payloads/q/" + "a" * 64
        assert 1 <= ref.size <= defaults.PAYLOAD_BYTES


def test_moving_renewing_and_burying_a_message_keep_its_reference() -> None:
    message = send(BIG, 5_000, delay=timedelta(days=2))
    ref = Envelope.parse(message.body).payload_ref
    assert ref is not None
    assert Envelope.parse(moved(message.body, NOW)).payload_ref == ref
    delivery = Delivery(message_id="m", body=message.body, receipt="r", queue="big", sent_at=NOW, received_at=NOW)
    assert renewed_body(delivery) == message.body
    dead = DeadLetter("payload-missing", Failure("PayloadMissing", f"{ref.key('big')} is gone", "f"))
    letter = make_letter(delivery, dead, identity="i", job="test.thing", at="t")
    assert letter.body == message.body
    assert ref.sha256 in str(letter.attributes["loom"].text)  # the address is no value of the payload


def test_canonical_json_has_one_spelling() -> None:
    assert canonical({"b": "é", "a": [1.0, 1]}) == b'{"a":[1.0,1],"b":"\\u00e9"}'
