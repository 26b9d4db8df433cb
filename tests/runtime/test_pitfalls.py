"""Failures that production teams met, played in memory. The comment behind a test's name is its pitfall's number."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomjobs import Continue, Defer, JobContext, Permanent, Queue, Rate, Transient, Workload, call, job
from loomjobs.aws.processor import DecidingProcessor
from loomjobs.core import defaults, limits
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.decision import Acknowledge, DeferFor, HandBack, RetryIn
from loomjobs.core.defaults import HOPS, RECORD_TTL
from loomjobs.core.errors import ConfigurationError
from loomjobs.core.letter import Letter, read_report
from loomjobs.core.plan import receive_limit
from loomjobs.core.record import record_id
from loomjobs.core.registry import isolated
from loomjobs.core.retry import Retry
from loomjobs.core.write import Write, Written
from loomjobs.local.backend import Backend, Killed
from loomjobs.local.queue import Message
from loomjobs.local.store import Fault
from loomjobs.runtime.ledger import Ledger
from tests.runtime.world import FIFO, SIDE, STANDARD, Work, World, fail, killing

YEAR_3000 = int(datetime(3000, 1, 1, tzinfo=UTC).timestamp())


def only(world: World) -> Message:
    (message,) = world.backend.queues[world.queue].messages
    return message


def again(world: World) -> None:
    """SQS delivers its messages once more, whatever their visibility was."""
    for message in world.backend.queues[world.queue].messages:
        message.visible_at = world.backend.clock.now


def bodies(dead: Sequence[Message]) -> list[str]:
    return [message.body for message in dead]


def event(world: World, *texts: str, ids: Sequence[str] = ()) -> dict[str, Any]:
    """What Lambda hands over: made-up messages of the world's queue."""
    suffix = ".fifo" if world.queue == "ordered" else ""
    names = ids or [f"m{place}" for place in range(len(texts))]
    return {
        "Records": [
            {
                "messageId": name,
                "receiptHandle": f"r{place}",
                "body": text,
                "attributes": {"ApproximateReceiveCount": "1", "MessageGroupId": "g"},
                "eventSource": "aws:sqs",
                "eventSourceARN": f"arn:aws:sqs:eu-central-1:123456789012:{world.queue}{suffix}",
            }
            for place, (name, text) in enumerate(zip(names, texts, strict=True))
        ]
    }


def processor(world: World, *, longest: timedelta = timedelta(seconds=10)) -> DecidingProcessor:
    return DecidingProcessor(world.backend.workers[world.queue], queue=world.queue, longest=longest)


def answered(world: World, received: Any, *, seconds: float = 600, by: DecidingProcessor | None = None) -> list[str]:
    until = world.backend.clock.now + timedelta(seconds=seconds)
    answer = (by or processor(world)).answer(received, until=until)
    return [str(each["itemIdentifier"]) for each in answer["batchItemFailures"]]


def text(name: str, **members: Any) -> str:
    return json.dumps({"job": "test.work", "payload": {"name": name}} | members)


# -- the same message twice -----------------------------------------------------------------------


@pytest.mark.parametrize("queue", [STANDARD, SIDE])
def test_a_second_delivery_while_the_first_runs_waits_and_after_it_is_acknowledged_unrun(queue: Queue) -> None:  # B001
    world, meanwhile = World(queue), list[list[str]]()

    def behave(work: Work, ctx: JobContext) -> None:
        world.backend.clock.advance(timedelta(seconds=3))
        again(world)  # its visibility was too short
        meanwhile.append(world.deliver())

    world.behave = behave
    world.enqueue("a")
    world.deliver()
    assert meanwhile == [["DeferFor"]]
    assert world.backend.pending() == 1  # the second delivery's receipt is the one that counts
    world.backend.clock.advance(timedelta(minutes=10))
    (decided,) = world.backend.deliver(world.queue)
    assert isinstance(decided[1], Acknowledge)
    assert decided[1].why == "duplicate"
    assert (world.effects, world.state("a")) == (["a"], ("COMPLETED", 0))


def test_a_delete_that_was_lost_is_made_good_ten_minutes_later_without_a_second_run() -> None:  # B001
    world = World()
    world.enqueue("a")
    source = world.backend.queues[world.queue]
    source.delete = lambda receipt: None  # type: ignore[method-assign]
    assert world.deliver() == ["Acknowledge"]
    del source.delete
    world.backend.clock.advance(timedelta(minutes=10))
    assert world.deliver() == ["Acknowledge"]
    assert (world.effects, world.backend.pending()) == (["a"], 0)


# -- the answer -----------------------------------------------------------------------------------

BODIES = st.sampled_from([text("ok"), text("ok2"), text("bad"), text("no"), text("later"), "", "{", "null", text("")])


@settings(max_examples=150, deadline=None)
@given(
    queue=st.sampled_from([STANDARD, SIDE, FIFO]),
    batch=st.lists(st.tuples(st.sampled_from(["m1", "m2", "m3", "é", "x" * 100]), BODIES), max_size=8),
    seconds=st.integers(0, 100),
    faults=st.lists(st.sampled_from(["none", "refused", "reply-lost"]), max_size=8),
)
def test_an_answer_has_only_ids_of_its_batch_each_once_in_the_exact_keys(
    queue: Queue, batch: list[tuple[str, str]], seconds: int, faults: list[Any]
) -> None:  # B004
    world = World(queue)
    fates = {"bad": ValueError("x"), "no": Permanent("no"), "later": Defer(timedelta(seconds=9))}
    world.behave = lambda work, ctx: fail(fates[work.name]) if work.name in fates else None
    world.backend.store.faults = faults
    received = event(world, *(body for _, body in batch), ids=[id for id, _ in batch])
    answer = processor(world).answer(received, until=world.backend.clock.now + timedelta(seconds=seconds))
    assert list(answer) == ["batchItemFailures"]
    assert all(list(each) == ["itemIdentifier"] for each in answer["batchItemFailures"])
    ids = [each["itemIdentifier"] for each in answer["batchItemFailures"]]
    assert len(ids) == len(set(ids))
    assert set(ids) <= {id for id, _ in batch}
    assert all(ids)
    json.dumps(answer)


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), MemoryError(), RecursionError(), GeneratorExit()])
def test_a_batch_that_failed_as_a_whole_is_an_answer_whatever_was_raised(error: BaseException) -> None:  # B025
    world = World()
    world.behave = lambda work, ctx: fail(error)
    kept = processor(world)
    for batch in (("a",), ("b", "c", "d")):  # cold, then warm
        received = event(world, *(text(name) for name in batch))
        assert answered(world, received, by=kept) == [f"m{place}" for place in range(len(batch))]


# -- attempts are not receives --------------------------------------------------------------------


@pytest.mark.parametrize("queue", [STANDARD, SIDE, FIFO])
def test_deliveries_that_lambda_throttled_cost_no_attempt_and_the_report_has_both_numbers(queue: Queue) -> None:  # B006
    world = World(queue, attempts=2)
    world.behave = lambda work, ctx: fail(ValueError("bad luck"))
    world.enqueue("a")
    only(world).receives = 5  # none of which the handler saw
    (first,) = world.backend.deliver(world.queue)
    assert isinstance(first[1], RetryIn)
    assert (first[1].attempt, world.state("a")) == (1, ("WAITING", 1))
    world.drain()
    (letter,) = world.backend.dead[world.queue].messages
    report = read_report(dict(letter.attributes))
    assert report is not None
    assert (report["receives"], report["attempts"], report["reason"]) == (7, 2, "exhausted")


@pytest.mark.parametrize("seconds", [1, 30, 600, 895])
def test_no_queue_takes_messages_away_after_fewer_than_five_receives(seconds: int) -> None:  # B006
    slow = Queue("slow", workload=Workload.BULK, batch_size=1, job_timeout=timedelta(seconds=seconds))
    assert receive_limit(slow) >= 5


# -- locks, deadlines, context --------------------------------------------------------------------


@pytest.mark.parametrize("queue", [STANDARD, SIDE, FIFO])
def test_after_a_timeout_kill_the_wait_reaches_past_the_deadline_and_then_it_runs(queue: Queue) -> None:  # B008
    world = World(queue, attempts=2)
    killing(world, 1)
    world.enqueue("a")
    world.deliver()
    lease = world.backend.store.items["test.work#a"]["in_progress_expiration"]
    again(world)
    (early,) = world.backend.deliver(world.queue)
    assert isinstance(early[1], DeferFor)
    back = world.backend.clock.now + timedelta(seconds=early[1].delay)
    assert back.timestamp() * 1000 >= lease + defaults.CLOCK_SKEW * 1000
    assert (world.effects, world.state("a")) == ([], ("INPROGRESS", 0))
    world.drain()
    assert (world.effects, world.state("a")[0]) == (["a"], "COMPLETED")
    assert max(run.delivery.receives for run in world.backend.runs()) <= 3  # not used up by waiting


@settings(max_examples=60, deadline=None)
@given(
    queue=st.sampled_from([STANDARD, SIDE, FIFO]),
    fates=st.lists(st.sampled_from(["ok", "bad", "no", "later", "kill"]), min_size=1, max_size=12),
    seconds=st.integers(0, 70),
)
def test_whatever_happens_no_claim_is_stored_without_a_deadline_and_every_ttl_is_in_seconds(
    queue: Queue, fates: list[str], seconds: int
) -> None:  # B008 B009 B033
    world, left = World(queue, attempts=3), list(fates)
    stored: list[dict[str, Any]] = []
    store = world.backend.store

    def write(write: Write, /) -> Written:
        written = type(store).write(store, write)
        stored.append(dict(store.items.get(write.id, {})))
        return written

    def behave(work: Work, ctx: JobContext) -> None:
        match left.pop() if left else "ok":
            case "bad":
                raise ValueError("x")
            case "no":
                raise Permanent("no")
            case "later":
                raise Defer(timedelta(seconds=seconds))
            case "kill":
                raise Killed

    store.write = write  # type: ignore[method-assign]
    world.behave = behave
    world.enqueue("a", "b", "c")
    world.drain()
    assert stored
    for item in stored:
        assert isinstance(item["expiration"], int)
        assert world.backend.clock.now.timestamp() - 86_400 * 30 < item["expiration"] < YEAR_3000
        if item["status"] == "INPROGRESS":
            assert isinstance(item["in_progress_expiration"], int)
            assert item["in_progress_expiration"] > item["sent"]


def test_every_item_beside_the_records_has_a_ttl_in_seconds_too() -> None:  # B033
    world = World(exclusive="group", rate=Rate(60, per=timedelta(minutes=1)))
    world.enqueue("a", "b")
    world.drain()
    kinds = {id.partition("#")[0] for id in world.backend.store.items}
    assert len(kinds) == 3  # records, a lock, a limiter
    now = world.backend.clock.now.timestamp()
    for item in world.backend.store:
        assert isinstance(item["expiration"], int)
        assert now <= item["expiration"] < YEAR_3000


# -- keys -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Order:
    tenant: str
    number: int
    paid: bool = False


def keyed(key: Any) -> tuple[Backend, list[Order]]:
    ran: list[Order] = []

    def run(order: Order, ctx: JobContext) -> None:
        ran.append(order)

    with isolated():
        declared = job("test.order", queue=STANDARD, key=key)(run)
    return Backend(Catalogue((declared,))), ran


def sent(backend: Backend, *payloads: dict[str, Any]) -> None:
    for payload in payloads:
        backend.queues["standard"].send(json.dumps({"job": "test.order", "payload": payload}), now=backend.clock.now)
    backend.deliver("standard")


@pytest.mark.parametrize(
    "payload",
    [
        {"tenant": "a"},
        {"number": 1},
        {},
        {"tenant": None, "number": 1},
        {"tenant": "", "number": 1},
        {"tenant": {}, "number": 1},
        {"tenant": "a", "number": None},
    ],
)
def test_a_job_without_a_part_of_its_key_is_dead_at_once_and_never_run_or_merged(
    payload: dict[str, Any],
) -> None:  # B012
    backend, ran = keyed(("tenant", "number"))
    sent(backend, payload, payload | {"paid": True})
    assert ran == []
    assert backend.store.items == {}
    reports = [read_report(dict(each.attributes)) or {} for each in backend.dead["standard"].messages]
    assert len(reports) == 2
    assert {report["reason"] for report in reports} <= {"bad-key", "bad-payload"}


@pytest.mark.parametrize("part", [None, "", {}, [], ("a", None), ("a", ""), ()])
def test_a_keys_function_that_yields_nothing_ends_in_a_dead_letter(part: Any) -> None:  # B012
    backend, ran = keyed(lambda order: part)
    sent(backend, {"tenant": "a", "number": 1})
    report = read_report(dict(backend.dead["standard"].messages[0].attributes))
    assert (ran, report and report["reason"]) == ([], "bad-key")


def test_nought_and_false_tell_jobs_apart_like_any_other_part() -> None:  # B012
    backend, ran = keyed(("tenant", "number", "paid"))
    orders = [{"tenant": "a", "number": n, "paid": paid} for n in (0, 1) for paid in (False, True)]
    sent(backend, *orders)
    assert len(ran) == len(backend.store.items) == 4


def test_two_jobs_on_one_store_keep_their_own_keys_and_records() -> None:  # B022
    ran: list[tuple[str, Order]] = []

    def note(name: str) -> Any:
        def run(order: Order, ctx: JobContext) -> str:
            ran.append((name, order))
            return name

        return run

    with isolated():
        by_tenant = job("test.by-tenant", queue=STANDARD, key="tenant")(note("tenant"))
        by_number = job("test.by-number", queue=STANDARD, key="number")(note("number"))
    backend = Backend(Catalogue((by_tenant, by_number)))
    for one in (by_tenant, by_number):
        for order in (Order("1", 1), Order("1", 2), Order("2", 1)):
            backend.producer.enqueue(call(one, order))
    while backend.step() or backend.advance_to_next():
        pass
    # each judges by its own key, under which another payload is other work
    assert [order for name, order in ran if name == "tenant"] == [Order("1", 1), Order("2", 1)]
    assert [order for name, order in ran if name == "number"] == [Order("1", 1), Order("1", 2)]
    stored = {id: item["data"] for id, item in backend.store.items.items() if item["status"] == "COMPLETED"}
    assert stored == {
        "test.by-tenant#1": '"tenant"',
        "test.by-tenant#2": '"tenant"',
        "test.by-number#1": '"number"',
        "test.by-number#2": '"number"',
    }


# -- time left ------------------------------------------------------------------------------------


def test_what_the_time_does_not_hold_is_reported_untouched_and_the_finished_are_not() -> None:  # B014
    world = World()
    world.behave = lambda work, ctx: world.backend.clock.advance(timedelta(seconds=8))
    received = event(world, *(text(name) for name in "abcde"))
    assert answered(world, received, seconds=30) == ["m2", "m3", "m4"]
    assert world.effects == ["a", "b"]
    assert set(world.backend.store.items) == {"test.work#a", "test.work#b"}  # no claim, so no attempt
    deferred = [run.decision for run in world.backend.runs() if isinstance(run.decision, DeferFor)]
    assert [(each.why, each.delay) for each in deferred] == [("no time left", 0.0)] * 3


# -- loops ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [ValueError("x"), Transient("x", after=timedelta(minutes=5)), Defer(timedelta(hours=2)), Continue()]
)
@pytest.mark.parametrize("queue", [STANDARD, FIFO])
def test_a_retry_is_the_same_message_again_and_nothing_is_sent(queue: Queue, error: BaseException) -> None:  # B015
    world = World(queue, attempts=9)
    world.behave = lambda work, ctx: fail(error)
    world.enqueue("a")
    first = only(world).id
    for receives in range(1, 6):
        world.deliver()
        assert (only(world).id, only(world).receives) == (first, receives)
        world.backend.advance_to_next()
    assert len(world.backend.journal.sent) == 1
    assert world.backend.renewed == []


def test_a_job_that_sends_itself_for_ever_is_dead_before_lambdas_loop_guard_takes_it() -> None:  # B015
    hops: list[int] = []

    def poll(work: Work, ctx: JobContext) -> None:
        hops.append(len(hops))
        ctx.enqueue(declared, Work(f"{len(hops)}"))

    with isolated():
        declared: Any = job("test.poll", queue=STANDARD, key="name", sends=["test.poll"])(poll)
    backend = Backend(Catalogue((declared,)))
    backend.producer.enqueue(call(declared, Work("0")))
    for _ in range(40):
        backend.step()
    assert HOPS < 16
    assert len(hops) == HOPS + 1
    (letter,) = backend.dead["standard"].messages
    report = read_report(dict(letter.attributes))
    assert report is not None
    assert report["reason"] == "permanent"
    assert "loop guard" in report["error"]


def test_a_job_that_polls_by_deferring_itself_twenty_times_is_not_stopped() -> None:  # B015
    world, left = World(), [20]

    def behave(work: Work, ctx: JobContext) -> None:
        if left[0]:
            left[0] -= 1
            raise Defer(timedelta(minutes=1))

    world.behave = behave
    world.enqueue("a")
    world.drain()
    assert (world.effects, world.state("a")) == (["a"], ("COMPLETED", 0))


# -- FIFO -----------------------------------------------------------------------------------------

GROUPS = ("A1", "B1", "A2", "A3", "B2")


@pytest.mark.parametrize("error", [ValueError("x"), Defer(timedelta(seconds=9)), SystemExit(1)])
def test_of_several_groups_in_a_batch_only_the_rest_of_the_failed_one_is_kept_back(
    error: BaseException,
) -> None:  # B016
    world, tries = World(FIFO), list[str]()

    def behave(work: Work, ctx: JobContext) -> None:
        tries.append(work.name)
        if work.name == "A2" and tries.count("A2") == 1:
            raise error

    world.behave = behave
    received = event(world, *(text(name, payload={"name": name, "group": name[0]}) for name in GROUPS))
    for record, name in zip(received["Records"], GROUPS, strict=True):
        record["attributes"]["MessageGroupId"] = name[0]
    assert answered(world, received) == ["m2", "m3"]
    assert (world.effects, tries) == (["A1", "B1", "B2"], ["A1", "B1", "A2", "B2"])


def test_a_crash_in_the_middle_of_a_batch_of_groups_changes_no_order_and_repeats_no_effect() -> None:  # B016
    world, tries = World(FIFO), list[str]()

    def behave(work: Work, ctx: JobContext) -> None:
        tries.append(work.name)
        if work.name == "A2" and tries.count("A2") == 1:
            raise Killed

    world.behave = behave
    for name in GROUPS:
        world.enqueue(name, group=name[0])
    world.drain()
    assert [name for name in world.effects if name[0] == "A"] == ["A1", "A2", "A3"]
    assert [name for name in world.effects if name[0] == "B"] == ["B1", "B2"]


def test_a_group_that_failed_is_tried_again_by_the_same_warm_worker() -> None:  # B035
    world, attempts = World(FIFO), list[int]()

    def behave(work: Work, ctx: JobContext) -> None:
        attempts.append(ctx.attempt)
        if len(attempts) == 1:
            raise ValueError("once")

    world.behave = behave
    kept = processor(world)
    body = text("A1")
    assert answered(world, event(world, body), by=kept) == ["m0"]
    world.backend.clock.advance(timedelta(hours=1))
    retried = event(world, body)
    retried["Records"][0]["attributes"]["ApproximateReceiveCount"] = "2"
    assert answered(world, retried, by=kept) == []
    assert (attempts, world.effects) == ([1, 2], ["A1"])


@pytest.mark.parametrize("queue", [STANDARD, SIDE, FIFO])
def test_an_answer_has_nothing_of_an_invocation_before_it_however_that_ended(queue: Queue) -> None:  # B035
    world = World(queue)
    kept = processor(world)
    world.behave = lambda work, ctx: fail(ValueError("x"))
    assert answered(world, event(world, text("a"), text("b"), ids=["old1", "old2"]), by=kept) == ["old1", "old2"]
    assert answered(world, {"Records": []}, by=kept) == []
    world.behave = lambda work, ctx: fail(Killed())
    with pytest.raises(Killed):
        answered(world, event(world, text("c"), ids=["old3"]), by=kept)
    world.behave = lambda work, ctx: None
    assert answered(world, event(world, text("d"), ids=["new"]), by=kept) == []
    assert world.effects == ["d"]


def test_siblings_behind_a_poisoned_head_spend_few_receives_and_die_of_nothing_but_their_own() -> None:  # B036
    world = World(FIFO, attempts=3)
    world.behave = lambda work, ctx: fail(ValueError("poison")) if work.name != "A4" else None
    world.backend.queues[world.queue].max_receives = 12  # SQS's own redrive would take a sibling untried
    for name in ("A1", "A2", "A3", "A4"):
        world.enqueue(name, group="A")
    world.drain()
    assert world.effects == ["A4"]
    assert [world.state(name) for name in ("A1", "A2", "A3")] == [("DEAD", 3)] * 3
    assert world.dead() == ["exhausted"] * 3
    assert ("GroupsBlocked", None) in world.backend.journal.counts


# -- late finishers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [None, ValueError("late"), Permanent("late"), Defer(timedelta(seconds=5)), Continue(), SystemExit(1)]
)
@pytest.mark.parametrize("queue", [STANDARD, FIFO])
def test_a_late_finisher_changes_nothing_and_a_third_delivery_does_not_run(
    queue: Queue, error: BaseException | None
) -> None:  # B021
    world, runs = World(queue, attempts=9), list[str]()

    def behave(work: Work, ctx: JobContext) -> None:
        runs.append(work.name)
        if len(runs) == 1:
            world.backend.clock.advance(timedelta(hours=2))  # past its deadline
            again(world)
            assert world.deliver() == ["Acknowledge"]  # the new owner completes
            if error is not None:
                raise error

    world.behave = behave
    world.enqueue("a")
    body = only(world).body
    world.deliver()
    done = dict(world.backend.store.items["test.work#a"])
    world.backend.queues[world.queue].send(body, now=world.backend.clock.now, group="g", dedup="third")
    assert world.deliver() == ["Acknowledge"]
    assert runs == ["a", "a"]
    assert world.backend.store.items["test.work#a"] == done
    assert done["status"] == "COMPLETED"
    assert world.dead() == []
    late = [run.decision for run in world.backend.runs() if isinstance(run.decision, HandBack)]
    assert [decision.why for decision in late] == ["lost the claim"]


# -- backoff --------------------------------------------------------------------------------------


@given(attempt=st.integers(-3, 2_000), roll=st.floats(0, 1, exclude_max=True), base=st.integers(1, 40_000))
def test_a_backoff_of_any_attempt_is_within_its_cap(attempt: int, roll: float, base: int) -> None:  # B026
    retry = Retry(attempts=50, base=timedelta(seconds=base), cap=timedelta(hours=12))
    assert 0 <= retry.delay(attempt, roll) <= limits.SQS_VISIBILITY_SECONDS


def test_at_the_fortieth_attempt_full_jitter_spans_from_nought_to_the_cap_and_a_seed_repeats_it() -> None:  # B026
    def waits(seed: int) -> list[float]:
        retry, roll = Retry(attempts=50, base=timedelta(seconds=30), cap=timedelta(hours=1)), random.Random(seed).random
        return [retry.delay(40, roll()) for _ in range(500)]

    drawn = waits(7)
    assert drawn == waits(7) != waits(8)
    assert min(drawn) < 180 < 3_420 < max(drawn) <= 3_600


def test_twelve_hours_asked_after_twenty_seconds_of_work_is_what_is_left_of_them() -> None:  # B026
    world = World(FIFO)

    def behave(work: Work, ctx: JobContext) -> None:
        world.backend.clock.advance(timedelta(seconds=9))
        raise Defer(timedelta(hours=12))

    world.behave = behave
    world.enqueue("a")
    received = world.backend.clock.now
    assert world.deliver() == ["DeferFor"]
    hidden = (only(world).visible_at - received).total_seconds()
    assert limits.SQS_VISIBILITY_SECONDS - 120 < hidden <= limits.SQS_VISIBILITY_SECONDS


# -- visibility that cannot be changed --------------------------------------------------------------


def test_a_wait_that_sqs_refuses_changes_no_decision_and_no_record() -> None:  # B027
    world = World()
    world.behave = lambda work, ctx: fail(ValueError("its own error")) if work.name == "b" else None
    received = event(world, *(text(name) for name in "abc"))  # receipts that the queue does not know
    assert answered(world, received) == ["m1"]
    failed = [run for run in world.backend.runs() if isinstance(run.decision, RetryIn)]
    assert [run.decision.failure.message for run in failed] == ["its own error"]  # type: ignore[union-attr]
    assert sorted(world.effects) == ["a", "c"]


# -- unknown jobs and hand-offs -------------------------------------------------------------------


@pytest.mark.parametrize("queue", [STANDARD, SIDE, FIFO])
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('{"job": "test.removed", "payload": {}}', "unroutable"),
        ('{"type": "removed_job"}', "bad-envelope"),
        ('{"payload": {}}', "bad-envelope"),
        ('{"job": null, "payload": {}}', "bad-envelope"),
        ("", "bad-envelope"),
    ],
)
def test_what_no_worker_knows_is_dead_on_first_sight_and_never_seen_again(
    queue: Queue, body: str, reason: str
) -> None:  # B028
    world = World(queue)
    assert answered(world, event(world, body or " ")) == []
    (letter,) = world.backend.dead[world.queue].messages
    report = read_report(dict(letter.attributes))
    assert report is not None
    assert (letter.body, report["reason"], report["message"], report["receives"]) == (body or " ", reason, "m0", 1)


def test_a_version_of_tomorrow_waits_an_hour_for_the_deploy_and_is_then_dead() -> None:  # B028
    world = World()
    world.backend.queues["standard"].send(text("a", v=3), now=world.backend.clock.now)
    begun = world.backend.clock.now
    assert world.deliver() == ["DeferFor"]
    world.drain()
    assert world.dead() == ["newer-version"]
    grace = world.backend.clock.now - begun
    assert timedelta(seconds=defaults.NEWER_VERSION_GRACE) <= grace <= timedelta(hours=2)


class Broken:
    """A dead-letter queue that refuses so many letters."""

    def __init__(self, world: World, times: int) -> None:
        worker = world.backend.workers[world.queue]
        self.letters, self.left = worker.letters, times
        object.__setattr__(worker, "letters", self)

    def park(self, letter: Letter, /) -> None:
        if self.left:
            self.left -= 1
            raise OSError("no dead-letter queue")
        self.letters.park(letter)


@pytest.mark.parametrize("queue", [STANDARD, SIDE, FIFO])
def test_a_letter_that_is_not_taken_keeps_its_message_and_the_job_does_not_run_again(queue: Queue) -> None:  # B029
    world, runs = World(queue), list[str]()

    def behave(work: Work, ctx: JobContext) -> None:
        runs.append(work.name)
        raise Permanent("no")

    world.behave = behave
    Broken(world, 2)
    world.enqueue("a")
    for _ in range(2):
        assert world.deliver() == ["HandBack"]
        assert (world.state("a"), world.backend.pending(), world.dead()) == (("DYING", 1), 1, [])
        again(world)
    assert world.deliver() == ["DeadLetter"]
    assert (runs, world.state("a"), world.backend.pending(), world.dead()) == (["a"], ("DEAD", 1), 0, ["permanent"])


@pytest.mark.parametrize("body", ["{not json", text(""), '{"job": "test.removed", "payload": {}}'])
def test_what_is_no_job_stays_too_while_its_letter_is_not_taken(body: str) -> None:  # B029
    world = World()
    Broken(world, 1)
    assert answered(world, event(world, body)) == ["m0"]
    assert answered(world, event(world, body)) == []
    assert bodies(world.backend.dead["standard"].messages) == [body]


@pytest.mark.parametrize("queue", [STANDARD, FIFO])
def test_a_letter_sent_twice_is_the_same_letter(queue: Queue) -> None:  # B029
    world, letters = World(queue), list[Letter]()
    parked = world.backend.workers[world.queue].letters

    class Dying:
        def park(self, letter: Letter, /) -> None:
            letters.append(letter)
            parked.park(letter)
            if len(letters) == 1:
                raise Killed

    worker = world.backend.workers[world.queue]
    object.__setattr__(worker, "letters", Dying())
    world.behave = lambda work, ctx: fail(Permanent("no"))
    world.enqueue("a")
    message = only(world)
    world.drain()
    one, two = letters
    assert one.body == two.body == message.body
    assert (one.group, one.dedup) == (two.group, two.dedup)
    assert (one.group, one.dedup) == (("g", message.id) if queue.fifo else (None, None))
    reports = [read_report(letter.attributes) or {} for letter in letters]
    assert {(each["message"], each["id"], each["reason"]) for each in reports} == {
        (message.id, reports[0]["id"], "permanent")
    }


# -- the store ------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", [STANDARD, SIDE, FIFO])
def test_without_the_store_nothing_runs_nothing_is_charged_and_it_is_counted_once(queue: Queue) -> None:  # B032
    world = World(queue)
    world.backend.store.faults = ["refused"] * 40
    world.enqueue("a", "b", "c")
    assert set(world.deliver()) == {"DeferFor"}
    assert (world.effects, world.backend.store.items) == ([], {})
    assert world.backend.journal.counts.count(("StoreUnavailable", None)) == 1
    world.backend.store.faults = []
    world.drain()
    assert sorted(world.effects) == ["a", "b", "c"]
    assert {world.state(name) for name in "abc"} == {("COMPLETED", 0)}


@pytest.mark.parametrize("refusals", [1, 3, 4, 8])
def test_an_effect_whose_end_cannot_be_stored_is_never_acknowledged(refusals: int) -> None:  # B032
    world = World()
    faults: list[Fault] = ["refused"] * refusals
    world.backend.store.faults = ["none", *faults]
    world.enqueue("a")
    (kind,) = world.deliver()
    stored = world.state("a")[0] == "COMPLETED"
    assert (kind, world.backend.pending()) == (("Acknowledge", 0) if stored else ("HandBack", 1))
    assert stored == (refusals < 4)
    assert world.state("a")[1] == 0


# -- what is expired is still there ---------------------------------------------------------------


@pytest.mark.parametrize("fate", [None, ValueError("x"), Permanent("no"), Defer(timedelta(hours=1)), Killed()])
@pytest.mark.parametrize("redelivered", [True, False])
def test_a_record_past_its_ttl_that_is_still_stored_neither_blocks_nor_answers(
    fate: BaseException | None, redelivered: bool
) -> None:  # B033
    world = World(STANDARD)
    if fate is not None:
        world.behave = lambda work, ctx: fail(fate)
    world.enqueue("a")
    world.deliver()
    world.backend.clock.advance(timedelta(seconds=RECORD_TTL + 1))
    assert record_id("test.work", "a") in world.backend.store.items
    world.backend.queues["standard"].messages.clear()
    world.effects.clear()
    world.behave = lambda work, ctx: world.effects.append(f"attempt {ctx.attempt}")
    world.enqueue("a")
    only(world).receives = int(redelivered)
    assert world.deliver() == ["Acknowledge"]
    assert world.effects == ["attempt 1", "a"]
    assert world.state("a") == ("COMPLETED", 0)


def test_a_mark_of_a_halted_group_past_its_ttl_halts_nothing() -> None:  # B033
    world = World(FIFO, on_dead="halt")
    world.behave = lambda work, ctx: fail(Permanent("no")) if work.name == "A1" else None
    world.enqueue("A1", group="A")
    world.deliver()
    world.enqueue("A2", group="A")
    assert world.deliver() == ["DeferFor"]
    world.backend.clock.advance(timedelta(seconds=RECORD_TTL + 1))
    world.backend.queues[world.queue].messages.clear()
    world.enqueue("A3", group="A")
    assert world.deliver() == ["Acknowledge"]
    assert world.effects == ["A3"]


def test_a_failure_is_told_whatever_was_decided_then() -> None:  # B031
    """A wait of a day is a renewal, and a told run that fails is cancelled: the error is not lost with either."""
    world = World()
    world.behave = lambda work, ctx: fail(Transient("down", after=timedelta(hours=20)))
    world.enqueue("a")
    assert world.deliver() == ["Renewed"]
    (run,) = world.backend.runs()
    assert run.failure is not None
    assert ("down" in run.failure.message, run.sorting) == (True, "transient")


def test_an_outage_that_begins_at_an_ending_is_counted_and_brakes_the_rest() -> None:  # B032
    world = World()
    world.backend.store.faults = ["none", *["refused"] * 4]
    world.enqueue("a")
    assert world.deliver() == ["HandBack"]
    assert ("StoreUnavailable", None) in world.backend.journal.counts
    assert world.backend.workers["standard"].outage.is_on(world.backend.clock.now)


@pytest.mark.parametrize("ttl", [0, -1, 2_592_000_000])
def test_a_ttl_that_dynamodb_would_never_act_on_is_refused(ttl: int) -> None:  # B033
    world = World()
    with pytest.raises(ConfigurationError, match="is none"):
        Ledger(world.backend.store, clock=world.backend.clock, ttl=ttl)
