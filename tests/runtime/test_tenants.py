"""Tenants: a message group on a standard queue is for fairness, and orders, blocks and halts nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from loomjobs import InvalidOption, JobContext, Permanent, Queue, Workload, call, enqueue, enqueue_many, job
from loomjobs.core.address import address
from loomjobs.core.call import fifo_id
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.job import Job
from loomjobs.core.outbox import of_item, row_of, to_item
from loomjobs.core.outgoing import Origin, is_far, lane
from loomjobs.core.registry import isolated
from loomjobs.local.backend import Backend
from loomjobs.runtime.sending import bound
from tests.runtime.world import FIFO, SIDE, STANDARD, Work, World, fail

MAIL = Queue("mail", workload=Workload.BULK, job_timeout=timedelta(seconds=10))


def send(world: World, *names: str, tenant: str = "t1", **options: Any) -> None:
    for name in names:
        world.backend.producer.enqueue(call(world.job, Work(name), tenant=tenant, **options))


def sent(world: World) -> list[tuple[str | None, Any]]:
    messages = world.backend.queues[world.queue].messages
    return [(message.group, json.loads(message.body).get("tenant")) for message in messages]


@pytest.mark.parametrize("tenant", ["t1", "ünï çode \U0001f600", "x" * 200, "a\r\nb\x00"])
def test_a_tenant_is_the_message_group_of_a_standard_queue_and_in_the_envelope(tenant: str) -> None:
    world = World(STANDARD)
    send(world, "a", tenant=tenant)
    assert sent(world) == [(fifo_id(tenant), tenant)]
    seen: list[str | None] = []
    world.behave = lambda work, ctx: seen.append(ctx.tenant)
    world.drain()
    assert seen == [tenant]
    assert [run.tenant for run in world.backend.runs()] == [tenant]


def test_on_fifo_the_tenant_is_in_the_envelope_and_the_group_stays_the_order() -> None:
    world = World(FIFO)
    send(world, "a")
    assert sent(world) == [("g", "t1")]


def test_without_a_tenant_nothing_is_grouped() -> None:
    world = World(STANDARD)
    world.enqueue("a")
    assert sent(world) == [(None, None)]


@pytest.mark.parametrize(
    ("tenant", "what"), [("", "tenant= is empty"), (7, "is a int; give a text"), ("a\ud800", "tenant= has half of")]
)
def test_what_is_no_tenant_is_refused_where_the_call_is_built(tenant: Any, what: str) -> None:
    with pytest.raises(InvalidOption, match=what):
        call(World().job, Work("a"), tenant=tenant)


def test_every_way_of_sending_takes_it() -> None:
    world = World(STANDARD)
    with bound(world.backend.producer):
        enqueue(world.job, Work("a"), tenant="t1")
        enqueue_many(world.job, [Work("b"), Work("c")], tenant="t2")
        enqueue_many([call(world.job, Work("d"), tenant="t3")])
    assert sent(world) == [("t1", "t1"), ("t2", "t2"), ("t2", "t2"), ("t3", "t3")]


# -- a fair queue's group is not a FIFO order ----------------------------------------------------------


def test_jobs_of_one_tenant_run_side_by_side() -> None:
    world = World(SIDE)
    started: list[str] = []
    world.backend.journal.started = lambda run: started.append(str(run.key))  # type: ignore[method-assign]
    behind: list[int] = []
    world.behave = lambda work, ctx: behind.append(len(started))
    send(world, "a", "b", "c")
    world.deliver()
    assert behind == [3, 3, 3]  # all three were claimed and started before the first one ran


def test_a_failed_job_holds_up_no_other_of_its_tenant() -> None:
    world = World(STANDARD)
    world.behave = lambda work, ctx: fail(ValueError("no")) if work.name == "a" else None
    send(world, "a", "b", "c")
    assert world.deliver() == ["RetryIn", "Acknowledge", "Acknowledge"]
    assert world.effects == ["b", "c"]


def test_no_work_of_a_tenant_holds_up_no_other_of_it() -> None:
    world = World(STANDARD)
    queue = world.backend.queues["standard"]
    queue.send("{", now=world.backend.clock(), group="t1")
    send(world, "a")
    queue.send('{"job": "test.gone", "payload": {}}', now=world.backend.clock(), group="t1")
    send(world, "b")
    assert world.deliver() == ["DeadLetter", "Acknowledge", "DeadLetter", "Acknowledge"]


def test_a_dead_letter_keeps_its_tenants_group_and_halts_nothing() -> None:
    world = World(STANDARD)
    world.behave = lambda work, ctx: fail(Permanent("no")) if work.name == "a" else None
    send(world, "a", "b")
    world.drain()
    (dead,) = world.backend.dead["standard"].messages
    assert (dead.group, json.loads(dead.body)["tenant"]) == ("t1", "t1")
    assert world.effects == ["b"]
    assert not [id for id in world.backend.store.items if not id.startswith("test.work#")]


def test_order_in_memory_is_as_sent_and_nothing_is_lost() -> None:
    world = World(STANDARD)
    names = [f"{number}" for number in range(30)]
    for number, name in enumerate(names):
        send(world, name, tenant=f"t{number % 3}")
    world.drain()
    assert world.effects == names


def test_all_tenants_of_a_standard_queue_share_a_lane_of_the_producer_and_a_request() -> None:
    world = World(STANDARD)
    messages = [
        address(call(world.job, Work(n), tenant=n), id=n, now=world.backend.clock(), origin=Origin()) for n in "abc"
    ]
    assert {lane(message, 8) for message in messages} == {("standard", 0)}


# -- later, again, through the outbox -----------------------------------------------------------------


def test_a_short_delay_keeps_the_group_and_is_no_reason_for_a_schedule() -> None:
    world = World(STANDARD)
    one = call(world.job, Work("a"), tenant="t1", delay=timedelta(minutes=15))
    message = address(one, id="i", now=world.backend.clock(), origin=Origin())
    assert (message.group, message.dedup, is_far(message)) == ("t1", None, False)
    assert "group" not in json.loads(message.body)


def test_a_row_of_the_outbox_keeps_the_group() -> None:
    world = World(STANDARD)
    now = world.backend.clock()
    row = row_of(address(call(world.job, Work("a"), tenant="t1"), id="i", now=now, origin=Origin()), now=now)
    assert of_item(to_item(row)) == row
    assert row.group == "t1"


@dataclass(frozen=True)
class Order:
    id: str


@pytest.mark.parametrize("way", ["ctx.enqueue", "enqueue", "ctx.commit"])
def test_what_a_job_sends_inherits_its_tenant_unless_it_names_another(way: str) -> None:
    def mail(order: Order, ctx: JobContext) -> None:
        tenants.append((order.id, ctx.tenant))

    def take(order: Order, ctx: JobContext) -> None:
        if way == "ctx.enqueue":
            ctx.enqueue(mailing, order)
            ctx.enqueue_many(mailing, [Order("many")])
        elif way == "enqueue":
            enqueue(mailing, order)
            enqueue_many([call(mailing, Order("other"), tenant="t2")])
        else:
            ctx.commit(enqueue=[call(mailing, order)])

    tenants: list[tuple[str, str | None]] = []
    with isolated():
        mailing: Job[Order, None] = job("test.mail", queue=MAIL, key="id")(mail)
        taking = job("test.take", queue=STANDARD, key="id", sends=[mailing])(take)
    backend = Backend(Catalogue((mailing, taking)))
    backend.producer.enqueue(call(taking, Order("1"), tenant="t1"))
    while backend.step():
        pass
    more = {"ctx.enqueue": [("many", "t1")], "enqueue": [("other", "t2")], "ctx.commit": []}[way]
    assert tenants == [("1", "t1"), *more]
