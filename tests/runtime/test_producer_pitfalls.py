"""Failures that production teams met when sending, played in memory. A test's name begins with its pitfall's number."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomjobs import BadPayload, DeclarationError, InvalidOption, JobContext, call, enqueue_many, job
from loomjobs.core.address import address
from loomjobs.core.call import fifo_id
from loomjobs.core.envelope import Envelope
from loomjobs.core.key import EACH_ENQUEUE
from loomjobs.core.outgoing import Origin
from loomjobs.core.registry import isolated
from loomjobs.local.queue import _ALLOWED
from loomjobs.runtime.sending import bound
from tests.runtime.world import FIFO, STANDARD, Work, World

ODD = ["\x00", "\x0b", "\x1f", "\x7f", "\ufffe", "\uffff", "\ufeff", "\u2028", "\r\n", "\U0001f600", "ünï", " ", "<&>"]
LEGAL_ID = re.compile("[!-~]{1,128}")
"""https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html"""


def addressed(world: World, **options: Any) -> Any:
    one = call(world.job, options.pop("work", Work("a")), **options)
    return address(one, id="i", now=world.backend.clock(), origin=Origin(correlation=options.get("tenant")))


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("queue", [STANDARD, FIFO], ids=["standard", "fifo"])
def test_b040_illegal_characters_are_escaped_in_bodies_hashed_in_ids_and_arrive_unchanged(odd: str, queue: Any) -> None:
    world = World(queue)
    text = f"a{odd}b"
    seen: list[Any] = []
    world.behave = lambda work, ctx: seen.append((work, ctx.key, ctx.tenant))
    group: Any = {"group": text} if queue.fifo else {}
    world.backend.producer.enqueue(call(world.job, Work(text, text), key=text, tenant=text, **group))
    (message,) = world.backend.queues[world.queue].messages
    assert _ALLOWED.fullmatch(message.body)
    assert all(each is None or LEGAL_ID.fullmatch(each) for each in (message.group, message.dedup))
    world.drain()
    assert seen == [(Work(text, text), text, text)]


@given(st.text(min_size=1))
def test_b040_no_text_of_unicode_makes_a_message_that_sqs_does_not_take(text: str) -> None:
    world = World(FIFO)
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    message = addressed(world, work=Work(text, text), key=text, tenant=text)
    assert _ALLOWED.fullmatch(message.body)
    assert LEGAL_ID.fullmatch(message.group)
    assert LEGAL_ID.fullmatch(message.dedup)
    envelope = Envelope.parse(message.body)
    assert (envelope.key, envelope.tenant, envelope.correlation) == (text, text, text)


@pytest.mark.parametrize("option", ["key", "tenant", "group"])
@pytest.mark.parametrize("half", ["\ud800", "a\udfff"])
def test_b040_half_a_surrogate_pair_is_refused_with_the_option_s_name(option: str, half: str) -> None:
    with pytest.raises(InvalidOption, match=f"{option}= has half of a surrogate pair"):
        call(World(FIFO).job, Work("a"), **{option: half})  # type: ignore[arg-type]


def test_b040_half_a_surrogate_pair_in_a_payload_is_refused_with_the_field_s_name() -> None:
    with pytest.raises(BadPayload, match=r"\$\.group: .*surrogate"):
        call(World().job, Work("a", "\ud800"))


def test_b040_a_bad_one_in_the_middle_of_many_keeps_none_before_it_from_being_sent() -> None:
    world = World(STANDARD)
    works = [Work(f"{number}" if number != 15 else "\ud800") for number in range(30)]
    with bound(world.backend.producer), pytest.raises(BadPayload) as caught:
        enqueue_many(world.job, works)
    assert len(world.backend.queues["standard"].messages) == 15
    assert caught.value.__notes__ == ["Of the calls before this, 15 accepted."]


def test_b044_a_fifo_job_without_a_group_is_refused_when_it_is_declared_and_none_is_made_up() -> None:
    def run(work: Work, ctx: JobContext) -> None:
        """Do it."""

    with isolated(), pytest.raises(DeclarationError, match="group="):
        job("test.ungrouped", queue=FIFO, key="name")(run)


def test_b044_an_empty_group_is_refused_before_anything_is_sent() -> None:
    world = World(FIFO)
    for one in ({"work": Work("a", "")}, {"group": ""}):
        with pytest.raises(InvalidOption, match="empty"):
            addressed(world, **one)


@pytest.mark.parametrize("group", ["with space", "x" * 129, "\x7f"])
def test_b044_a_group_that_sqs_does_not_take_is_hashed_and_equal_ones_stay_equal(group: str) -> None:
    world = World(FIFO)
    one, same = addressed(world, work=Work("a", group)), addressed(world, work=Work("b", group))
    assert one.group == same.group == fifo_id(group)
    assert LEGAL_ID.fullmatch(one.group)
    assert one.dedup != same.dedup


@pytest.mark.parametrize("key", ["k" * 129, "k" * 5_000, "with space"])
def test_b044_a_deduplication_id_is_legal_whatever_the_key(key: str) -> None:
    world = World(FIFO)
    assert LEGAL_ID.fullmatch(addressed(world, key=key).dedup)
    world.backend.producer.enqueue(call(world.job, Work("a"), key=key))
    world.drain()
    assert world.effects == ["a"]


def test_b044_each_enqueue_of_a_keyless_fifo_job_has_a_deduplication_id_of_its_own() -> None:
    world = World(FIFO)
    world.job.options = world.job.options.__class__(queue=FIFO, key=EACH_ENQUEUE, group="group")
    producer = world.backend.producer
    assert producer.enqueue(call(world.job, Work("a"))).id != producer.enqueue(call(world.job, Work("a"))).id
    assert len(world.backend.queues["ordered"].messages) == 2
