"""Payloads beside their messages: stored first, read only by a run, and nothing lost wherever somebody dies."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import product
from time import sleep
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomjobs import Encrypted, JobContext, Queue, Rate, Workload, call, job
from loomjobs.core.call import Call
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.commit import Commit, CommitOutcome
from loomjobs.core.errors import ConfigurationError, NotSent, PayloadForbidden, PayloadUnavailable
from loomjobs.core.letter import read_report
from loomjobs.core.offload import queue_prefix
from loomjobs.core.registry import isolated
from loomjobs.local.backend import Backend, Killed, MemorySender
from loomjobs.local.payloads import MemoryPayloads
from loomjobs.local.transactor import MemoryTransactor
from loomjobs.runtime.storing import Storing
from tests.runtime.test_unique import SteppedSender, Steps, producer
from tests.runtime.world import STANDARD, Work, World

SHORT = timedelta(seconds=10)
BIG = Queue("big", workload=Workload.BULK, batch_size=5, job_timeout=SHORT, body_limit=4_096, oversized="offload")
BIG_FIFO = Queue(
    "lined", workload=Workload.BULK, batch_size=5, fifo=True, job_timeout=SHORT, body_limit=4_096, oversized="offload"
)
BULK = "x" * 5_000
DAY = timedelta(days=1)


def big(world: World, name: str = "a", **options: Any) -> Call:
    return call(world.job, Work(name, BULK), **options)


def enqueue(world: World, *names: str, **options: Any) -> None:
    for name in names:
        world.backend.producer.enqueue(big(world, name, **options))


def bodies(world: World) -> list[Any]:
    return [json.loads(message.body) for message in world.backend.queues[world.queue].messages]


def reads(world: World) -> int:
    return len(world.backend.payloads.reads)


@dataclass
class Broken(MemoryPayloads):
    """A bucket that raises, for as long as it is told to."""

    error: Exception | None = None

    def get(self, key: str, /, *, most: int) -> bytes:
        if self.error is not None:
            self.reads.append(key)
            raise self.error
        return super().get(key, most=most)


def broken(world: World, error: Exception | None) -> Broken:
    bucket = Broken(world.backend.payloads.objects, error=error)
    world.backend.payloads = bucket
    workers = world.backend.workers
    workers[world.queue] = replace(workers[world.queue], payloads=bucket)
    return bucket


# -- the way of a payload -----------------------------------------------------------------------
@pytest.mark.parametrize("queue", [BIG, BIG_FIFO])
def test_a_large_payload_is_stored_and_its_job_gets_it_back(queue: Queue) -> None:
    world = World(queue)
    seen: list[Work] = []
    world.behave = lambda work, ctx: seen.append(work)
    enqueue(world, "a")
    (body,) = bodies(world)
    assert "payload" not in body
    assert set(body["payload_ref"]) == {"sha256", "size"}
    assert list(world.backend.payloads.objects) == [queue_prefix(queue.name) + body["payload_ref"]["sha256"]]
    world.drain()
    assert seen == [Work("a", BULK)]
    assert world.state("a") == ("COMPLETED", 0)


def test_a_payload_within_the_limit_stays_in_its_message() -> None:
    world = World(BIG)
    world.enqueue("a")
    (body,) = bodies(world)
    assert body["payload"] == {"name": "a", "group": "g"}
    assert world.backend.payloads.objects == {}


def test_equal_payloads_are_one_object() -> None:
    world = World(BIG)
    enqueue(world, "a", "a", "b")
    assert len(world.backend.payloads.objects) == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_jobs_of_both_kinds_read_it(is_async: bool) -> None:
    seen: list[str] = []
    with isolated():

        async def run_async(work: Work, ctx: JobContext) -> None:
            seen.append(work.group)

        def run(work: Work, ctx: JobContext) -> None:
            seen.append(work.group)

        one: Any = job("test.both", queue=BIG, key="name")(run_async if is_async else run)
    backend = Backend(Catalogue((one,)))
    backend.producer.enqueue(call(one, Work("a", BULK)))
    backend.deliver("big")
    backend._runner.close()
    assert seen == [BULK]


def test_a_message_with_its_payload_and_one_beside_it_are_the_same_work() -> None:
    world = World(BIG)
    enqueue(world, "a")
    (message,) = world.backend.queues["big"].messages
    body = json.loads(message.body)
    del body["payload_ref"]
    inline = json.dumps(body | {"payload": {"group": BULK, "name": "a"}})
    world.drain()
    world.backend.queues["big"].send(inline, now=world.backend.clock())
    world.drain()
    whys = [getattr(run.decision, "why", run.decision) for run in world.backend.runs()]
    assert whys == ["succeeded", "duplicate"]


def test_a_duplicate_of_a_finished_job_never_fetches() -> None:
    world = World(BIG)
    enqueue(world, "a", "a", "a")
    world.drain()
    enqueue(world, "a")
    world.backend.payloads.objects.clear()
    world.drain()
    assert (world.effects, reads(world)) == (["a"], 1)


def test_another_payload_under_the_key_is_a_conflict_and_is_not_fetched() -> None:
    world = World(BIG)
    enqueue(world, "a")
    world.backend.producer.enqueue(call(world.job, Work("a", BULK + "y")))
    world.drain()
    assert (world.dead(), reads(world), world.effects) == (["key-conflict"], 1, ["a"])


def test_a_far_call_beyond_what_a_schedule_takes_goes_beside_its_message() -> None:
    queue = Queue("far", workload=Workload.BULK, oversized="offload", job_timeout=SHORT)
    world = World(queue)
    large = call(world.job, Work("a", "x" * 300_000), delay=timedelta(days=2))
    world.backend.producer.enqueue(large)
    world.backend.producer.enqueue(call(world.job, Work("b", "x" * 300_000)))
    assert ["payload" in body for body in bodies(world)] == [False, True]
    world.drain()
    assert sorted(world.effects) == ["a", "b"]


# -- what a bucket can do to a job ----------------------------------------------------------------
def change(world: World, how: Callable[[bytes], bytes]) -> None:
    objects = world.backend.payloads.objects
    for key, data in objects.items():
        objects[key] = how(data)


@pytest.mark.parametrize(
    ("how", "reason", "text"),
    [
        (lambda data: data.replace(b"x", b"y"), "payload-tampered", "SHA-256"),
        (lambda data: data[:-1], "payload-tampered", "the object has 5,0"),
        (lambda data: data + b" " * 10_000_000, "payload-tampered", "the object has more"),
        (lambda data: b"", "payload-tampered", "the object has 0"),
        (None, "payload-missing", "no such object"),
    ],
)
def test_a_payload_that_is_not_what_was_sent_is_a_dead_letter_that_says_so(how: Any, reason: str, text: str) -> None:
    world = World(BIG)
    enqueue(world, "a")
    sent = world.backend.queues["big"].messages[0].body
    if how is None:
        world.backend.payloads.objects.clear()
    else:
        change(world, how)
    world.drain()
    (letter,) = world.backend.dead["big"].messages
    report = read_report(dict(letter.attributes))
    assert report is not None
    assert report["reason"] == reason
    assert text in report["error"]
    assert next(iter(json.loads(sent)["payload_ref"].values())) in report["error"]  # the object, to look for it
    assert (letter.body, report["attempts"], world.effects) == (sent, 0, [])


def test_a_payload_that_does_not_fit_its_type_is_a_bad_payload_as_in_a_message() -> None:
    world = World(BIG)
    with isolated():

        @job("test.work", queue=BIG, key="name")
        def other(work: Other, ctx: JobContext) -> None: ...

    world.backend.producer.enqueue(call(other, Other("a", [1] * 5_000)))
    world.drain()
    assert world.dead() == ["bad-payload"]


@dataclass(frozen=True)
class Other:
    name: str
    group: list[int]


def test_a_redrive_runs_once_the_object_is_back() -> None:
    world = World(BIG)
    enqueue(world, "a")
    kept = dict(world.backend.payloads.objects)
    world.backend.payloads.objects.clear()
    world.drain()
    assert world.dead() == ["payload-missing"]
    (letter,) = world.backend.dead["big"].messages
    world.backend.payloads.objects.update(kept)
    world.backend.clock.advance(timedelta(minutes=1))
    world.backend.queues["big"].send(letter.body, now=world.backend.clock())
    world.drain()
    assert world.effects == ["a"]


def test_storage_that_does_not_answer_charges_no_attempt() -> None:
    world = World(BIG, attempts=1)
    enqueue(world, "a")
    bucket = broken(world, PayloadUnavailable("SlowDown"))
    for _ in range(6):
        assert world.deliver() == ["DeferFor"]
        world.backend.advance_to_next()
    bucket.error = None
    world.drain()
    assert (world.effects, world.state("a"), world.dead()) == (["a"], ("COMPLETED", 0), [])


def test_a_missing_right_is_retried_and_ends_as_exhausted_with_the_right_named() -> None:
    world = World(BIG, attempts=3)
    enqueue(world, "a")
    broken(world, PayloadForbidden("AccessDenied on s3:GetObject"))
    world.drain()
    (letter,) = world.backend.dead["big"].messages
    report = read_report(dict(letter.attributes))
    assert report is not None
    assert (report["reason"], report["attempts"]) == ("exhausted", 3)
    assert "s3:GetObject" in report["error"]


def test_a_worker_that_was_not_given_the_bucket_tries_again() -> None:
    world = World(BIG)
    enqueue(world, "a")
    bucket = broken(world, ConfigurationError("not given"))
    assert world.deliver() == ["RetryIn"]
    bucket.error = None
    world.drain()
    assert world.effects == ["a"]


def test_a_job_that_hangs_on_its_payload_is_stopped_by_its_timeout() -> None:
    class Slow(MemoryPayloads):
        def get(self, key: str, /, *, most: int) -> bytes:
            sleep(30)
            return b""

    world = World(BIG, timeout=timedelta(seconds=1))
    enqueue(world, "a")
    world.backend.workers["big"] = replace(world.backend.workers["big"], payloads=Slow())
    assert world.deliver() == ["RetryIn"]
    (run,) = world.backend.runs()
    assert run.failure is not None
    assert "JobTimeout" in run.failure.kind


# -- hostile references ---------------------------------------------------------------------------
SHA = "a" * 64


@pytest.mark.parametrize(
    "ref",
    [
        None,
        "payloads/big/" + SHA,
        [],
        {},
        {"sha256": SHA},
        {"size": 1},
        {"sha256": SHA.upper(), "size": 1},
        {"sha256": SHA[:-1], "size": 1},
        {"sha256": SHA + "\n", "size": 1},
        {"sha256": "../" + "a" * 61, "size": 1},
        {"sha256": SHA, "size": 0},
        {"sha256": SHA, "size": -1},
        {"sha256": SHA, "size": True},
        {"sha256": SHA, "size": 1.0},
        {"sha256": SHA, "size": "1"},
        {"sha256": SHA, "size": 16 * 1024 * 1024 + 1},
    ],
)
def test_a_reference_that_is_none_is_a_bad_envelope_and_nothing_is_read(ref: Any) -> None:
    world = World(BIG)
    body = json.dumps({"job": "test.work", "key": "a", "payload_ref": ref})
    world.backend.queues["big"].send(body, now=world.backend.clock())
    world.drain()
    assert (world.dead(), reads(world)) == (["bad-envelope"], 0)


def test_a_message_reaches_only_objects_of_its_own_queue_whatever_it_names() -> None:
    world = World(BIG)
    ref = {"sha256": SHA, "size": 5, "bucket": "theirs", "key": "payloads/other/../../secret", "prefix": "/"}
    body = json.dumps({"job": "test.work", "key": "a", "payload_ref": ref})
    world.backend.payloads.objects["payloads/other/" + SHA] = b"12345"
    world.backend.queues["big"].send(body, now=world.backend.clock())
    world.drain()
    assert (world.dead(), world.backend.payloads.reads) == (["payload-missing"], [f"payloads/big/{SHA}"])


def test_both_or_no_payload_and_no_key_are_refused() -> None:
    world = World(BIG)
    ref = {"sha256": SHA, "size": 5}
    for members in ({"key": "a", "payload": {}, "payload_ref": ref}, {"key": "a"}, {"payload_ref": ref}):
        body = json.dumps({"job": "test.work"} | members)
        world.backend.queues["big"].send(body, now=world.backend.clock())
    world.drain()
    assert (world.dead(), reads(world)) == (["bad-envelope", "bad-envelope", "bad-key"], 0)


# -- brakes that go by a value of the payload ------------------------------------------------------
@pytest.mark.parametrize("options", [{"exclusive": "group"}, {"rate": Rate(10, per=SHORT, key="group")}])
def test_brakes_go_by_the_same_values_as_for_a_payload_in_its_message(options: Any) -> None:
    ids: list[set[str]] = []
    for queue in (BIG, replace(BIG, body_limit=100_000)):
        world = World(queue, **options)
        enqueue(world, "a", "b")
        world.drain()
        assert world.effects == ["a", "b"]
        ids.append(set(world.backend.store.items))
    assert ids[0] == ids[1]
    assert len(ids[0]) > 2


def test_a_duplicate_does_not_fetch_for_its_lock_either() -> None:
    world = World(BIG, exclusive="group")
    enqueue(world, "a", "a")
    world.drain()
    enqueue(world, "a")
    world.drain()
    assert (world.effects, reads(world)) == (["a"], 1)


def test_a_payload_that_cannot_be_read_for_its_lock_ends_as_any_other() -> None:
    world = World(BIG, exclusive="group")
    enqueue(world, "a")
    world.backend.payloads.objects.clear()
    world.drain()
    assert (world.dead(), world.effects) == (["payload-missing"], [])


def test_what_could_not_be_read_for_its_lock_does_not_run_without_it() -> None:
    world = World(BIG, exclusive="group")
    enqueue(world, "a")
    bucket = broken(world, None)

    class Once(Broken):
        def get(self, key: str, /, *, most: int) -> bytes:
            if not self.reads:
                self.reads.append(key)
                raise PayloadUnavailable("for a moment")
            return super().get(key, most=most)

    once = Once(bucket.objects)
    world.backend.workers["big"] = replace(world.backend.workers["big"], payloads=once)
    assert world.deliver() == ["DeferFor"]
    assert world.effects == []
    world.drain()
    assert world.effects == ["a"]


# -- workers that die ------------------------------------------------------------------------------
@pytest.mark.parametrize("queue", [BIG, BIG_FIFO])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("after", [False, True])
def test_a_worker_that_dies_while_it_reads_a_payload_leaves_the_job_to_the_next(
    queue: Queue, times: int, after: bool
) -> None:
    class Deadly(MemoryPayloads):
        left = times

        def get(self, key: str, /, *, most: int) -> bytes:
            if self.left and not after:
                self.left -= 1
                raise Killed
            data = super().get(key, most=most)
            if self.left:
                self.left -= 1
                raise Killed
            return data

    world = World(queue)
    enqueue(world, "a", "b")
    deadly = Deadly(world.backend.payloads.objects)
    world.backend.workers[queue.name] = replace(world.backend.workers[queue.name], payloads=deadly)
    world.drain()
    assert (sorted(world.effects), world.dead(), deadly.left) == (["a", "b"], [], 0)


# -- producers that die -----------------------------------------------------------------------------
@dataclass
class SteppedPayloads:
    inner: MemoryPayloads
    step: Steps

    def put(self, key: str, data: bytes, /) -> None:
        self.step(lambda: self.inner.put(key, data))

    def get(self, key: str, /, *, most: int) -> bytes:
        return self.inner.get(key, most=most)


def stepped(world: World, step: Steps) -> Any:
    return producer(world.backend, step, payloads=SteppedPayloads(world.backend.payloads, step))


def whole(world: World) -> bool:
    """No message is ahead of its payload."""
    objects = world.backend.payloads.objects
    refs = [body["payload_ref"]["sha256"] for body in bodies(world)]
    return all(queue_prefix(world.queue) + each in objects for each in refs)


PLAIN = list(product(range(2), [False, True]))  # put, send
UNIQUE = list(product(range(4), [False, True]))  # reserve, put, send, confirm


@pytest.mark.parametrize("queue", [BIG, BIG_FIFO])
@pytest.mark.parametrize("first", PLAIN)
@pytest.mark.parametrize("second", [None, *PLAIN])
def test_wherever_producers_die_no_message_is_ahead_of_its_payload_and_the_effect_is_one(
    queue: Queue, first: Any, second: Any
) -> None:
    world = World(queue)
    for at, after in [first] if second is None else [first, second]:
        with pytest.raises(Killed):
            stepped(world, Steps(at, after=after)).enqueue(big(world))
        assert whole(world)
    stepped(world, Steps()).enqueue(big(world))
    assert whole(world)
    world.drain()
    assert (world.effects, world.dead()) == (["a"], [])


@pytest.mark.parametrize("queue", [BIG, BIG_FIFO])
@pytest.mark.parametrize("first", UNIQUE)
@pytest.mark.parametrize("second", [None, *UNIQUE])
@pytest.mark.parametrize("between", [timedelta(0), timedelta(seconds=20)])
def test_wherever_producers_of_unique_work_die_nothing_is_lost(
    queue: Queue, first: Any, second: Any, between: timedelta
) -> None:
    world = World(queue)
    for at, after in [first] if second is None else [first, second]:
        with suppress(Killed):
            stepped(world, Steps(at, after=after)).enqueue(big(world, unique_for=DAY))
        assert whole(world)
        world.backend.clock.advance(between)
    outcome = stepped(world, Steps()).enqueue(big(world, unique_for=DAY)).outcome
    assert outcome == "duplicate" or bodies(world)
    assert whole(world)
    world.drain()
    assert (world.effects, world.dead()) == (["a"], [])


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.booleans(), st.booleans(), st.booleans()), max_size=6
    )
)
@settings(max_examples=100, deadline=None)
def test_any_mix_of_crashes_and_deliveries_ends_in_one_effect_each(moves: Any) -> None:
    world = World(BIG)
    for name, at, after, is_unique, delivers in moves:
        options = {"unique_for": DAY} if is_unique else {}
        with suppress(Killed):
            stepped(world, Steps(at, after=after)).enqueue(big(world, name, **options))
        assert whole(world)
        if delivers:
            world.deliver()
    enqueue(world, "a", "b")
    world.drain()
    assert (sorted(world.effects), world.dead()) == (["a", "b"], [])


COMMIT = list(product(range(3), [False, True]))  # put, commit, relay


@dataclass
class SteppedTransactor:
    inner: MemoryTransactor
    step: Steps

    def commit(self, commit: Commit, /) -> CommitOutcome:
        outcome: CommitOutcome = self.step(lambda: self.inner.commit(commit))
        return outcome


class Committing:
    """A job that commits a call whose payload is large."""

    def __init__(self) -> None:
        self.ran: list[str] = []

        def follow(work: Work, ctx: JobContext) -> None:
            self.ran.append(work.name)

        def first(work: Work, ctx: JobContext) -> None:
            ctx.commit(enqueue=[call(self.follow, Work(work.name, BULK))])

        with isolated():
            self.follow = job("test.follow", queue=BIG, key="name")(follow)
            self.first = job("test.first", queue=STANDARD, key="name", sends=[self.follow])(first)
        self.backend = Backend(Catalogue((self.first, self.follow)))

    def is_whole(self) -> bool:
        rows = [row.body for row in self.backend.transactor.outbox.rows.values()]
        sent = [message.body for message in self.backend.queues["big"].messages]
        refs = [json.loads(body)["payload_ref"]["sha256"] for body in rows + sent]
        return all(queue_prefix("big") + each in self.backend.payloads.objects for each in refs)

    def through(self, step: Steps) -> None:
        """Its worker with everything outside counted."""
        made = self.backend
        made.producer._storing = Storing(SteppedPayloads(made.payloads, step))
        stepped = SteppedTransactor(made.transactor, step)
        made.workers["standard"] = replace(made.workers["standard"], transactor=stepped)
        made.transactor.outlet = SteppedSender(MemorySender(made.queues, made.clock), step)


@pytest.mark.parametrize("first", COMMIT)
@pytest.mark.parametrize("second", [None, *COMMIT])
def test_wherever_a_committing_job_or_its_relay_dies_no_row_is_ahead_of_its_payload(first: Any, second: Any) -> None:
    world = Committing()
    world.backend.producer.enqueue(call(world.first, Work("a")))
    for at, after in [first] if second is None else [first, second]:
        world.through(Steps(at, after=after))
        with suppress(Killed):
            world.backend.deliver("standard")
            assert world.is_whole()
            world.backend.transactor.relay(world.backend.clock())
        assert world.is_whole()
        world.backend.advance_to_next()
    world.through(Steps())
    while world.backend.step() or world.backend.advance_to_next():
        pass
    assert world.ran == ["a"]
    assert world.backend.transactor.outbox.rows == {}


def test_a_call_that_a_row_cannot_hold_is_committed_beside_it() -> None:
    ran: list[int] = []
    queue = Queue("large", workload=Workload.BULK, oversized="offload", job_timeout=SHORT)
    with isolated():

        @job("test.follow", queue=queue, key="name")
        def follow(work: Work, ctx: JobContext) -> None:
            ran.append(len(work.group))

        @job("test.first", queue=STANDARD, key="name", sends=[follow])
        def first(work: Work, ctx: JobContext) -> None:
            ctx.commit(enqueue=[call(follow, Work(work.name, "x" * 500_000))])

    backend = Backend(Catalogue((first, follow)))
    backend.producer.enqueue(call(first, Work("a")))
    while backend.step():
        pass
    assert ran == [500_000]


# -- what a producer is told --------------------------------------------------------------------------
class Refusing(MemoryPayloads):
    def __init__(self, error: Exception, *, only: str = "") -> None:
        super().__init__()
        self.error, self.only = error, only

    def put(self, key: str, data: bytes, /) -> None:
        if self.only.encode() in data:
            raise self.error
        super().put(key, data)


@pytest.mark.parametrize(
    ("error", "kind"), [(PayloadForbidden("AccessDenied"), "rejected"), (PayloadUnavailable("SlowDown"), "unsent")]
)
def test_what_was_not_stored_is_not_sent_and_is_reported(error: Exception, kind: str) -> None:
    world = World(BIG)
    one = producer(world.backend, Steps(), payloads=Refusing(error, only='"b"'))
    with pytest.raises(NotSent, match="its payload was not stored") as caught:
        one.enqueue_many([big(world, "a"), big(world, "b"), big(world, "c")])
    assert (caught.value.report.accepted, len(getattr(caught.value.report, kind))) == (2, 1)
    assert [body["key"] for body in bodies(world)] == ["a", "c"]


def test_on_fifo_nothing_overtakes_what_was_not_stored() -> None:
    world = World(BIG_FIFO)
    one = producer(world.backend, Steps(), payloads=Refusing(PayloadUnavailable("SlowDown"), only='"b"'))
    with pytest.raises(NotSent) as caught:
        one.enqueue_many([big(world, "a"), big(world, "b"), big(world, "c")])
    assert len(caught.value.report.unsent) == 2
    assert [body["key"] for body in bodies(world)] == ["a"]


def test_a_unique_duplicate_stores_nothing() -> None:
    world = World(BIG)
    enqueue(world, "a", unique_for=DAY)
    world.backend.payloads.objects.clear()
    enqueue(world, "a", unique_for=DAY)
    assert world.backend.payloads.objects == {}


def test_a_payload_that_was_not_stored_leaves_no_reservation() -> None:
    world = World(BIG)
    one = producer(world.backend, Steps(), payloads=Refusing(PayloadUnavailable("SlowDown")))
    with pytest.raises(NotSent):
        one.enqueue(big(world, unique_for=DAY))
    before = world.backend.clock.now
    enqueue(world, "a", unique_for=DAY)
    assert world.backend.clock.now == before
    world.drain()
    assert world.effects == ["a"]


def test_a_producer_without_a_bucket_sends_small_messages_only() -> None:
    world = World(BIG)
    one = producer(world.backend, Steps())
    one.enqueue(call(world.job, Work("a")))
    with pytest.raises(ConfigurationError, match="where payloads are stored"):
        one.enqueue(big(world, "b"))


def test_a_large_body_is_warned_about_once_a_job() -> None:
    world = World()
    for name in "abc":
        world.backend.producer.enqueue(call(world.job, Work(name, "x" * 11_000)))
    (told,) = world.backend.journal.troubles
    assert told.startswith("test.work: a message has 11,")
    assert "body_limit=" in told


def test_what_goes_beside_its_message_is_not_warned_about() -> None:
    world = World(BIG)
    world.backend.producer.enqueue(call(world.job, Work("a", "x" * 11_000)))
    assert world.backend.journal.troubles == []


def test_an_error_does_not_show_values_of_a_payload_that_was_fetched() -> None:
    world = World(BIG, attempts=1)

    def leak(work: Work, ctx: JobContext) -> None:
        raise ValueError(f"cannot use {work.group[:20]} of {work.group}")

    world.behave = leak
    world.backend.producer.enqueue(call(world.job, Work("a", "secret-customer " * 400)))
    world.drain()
    (letter,) = world.backend.dead["big"].messages
    report = read_report(dict(letter.attributes))
    assert report is not None
    assert "secret-customer secret" not in report["error"]


# -- with encrypted fields ------------------------------------------------------------------------
@dataclass(frozen=True)
class Payment:
    name: str
    note: str
    iban: Annotated[str, Encrypted()]


def test_encrypted_fields_of_a_payload_beside_its_message_are_in_neither() -> None:
    ran: list[str] = []
    with isolated():

        @job("test.pay", queue=BIG, key="name")
        def pay(payment: Payment, ctx: JobContext) -> None:
            ran.append(payment.iban)

    backend = Backend(Catalogue((pay,)))
    one = call(pay, Payment("a", BULK, "DE89370400440532013000"), unique_for=DAY)
    assert [backend.producer.enqueue(one).outcome for _ in range(2)] == ["accepted", "duplicate"]
    (message,) = backend.queues["big"].messages
    assert "DE89" not in message.body
    assert all(b"DE89" not in data for data in backend.payloads.objects.values())
    backend.cipher.is_down = True
    backend.step()
    assert ran == []
    backend.cipher.is_down = False
    while backend.step() or backend.advance_to_next():
        pass
    assert ran == ["DE89370400440532013000"]
    (record,) = [item for item in backend.store if item["status"] == "COMPLETED"]
    assert record["n"] == 0  # the wait for the key charged no attempt
