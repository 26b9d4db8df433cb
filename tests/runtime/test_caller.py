"""What a call inherits from whoever makes it: the trace and the correlation id, and never a failure."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aws_lambda_powertools import Logger
from hypothesis import given
from hypothesis import strategies as st

import loomjobs
from loomjobs import InvalidOption, JobContext, PayloadTooLarge, aenqueue, aenqueue_many, call, correlation, job
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.envelope import Envelope
from loomjobs.core.errors import BadEnvelope
from loomjobs.core.outgoing import Origin
from loomjobs.core.registry import isolated
from loomjobs.local.backend import Backend
from loomjobs.runtime import caller as module
from loomjobs.runtime.caller import XRAY, caller, correlated
from loomjobs.runtime.sending import bound
from tests.runtime.world import STANDARD, Work, World

HEADER = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
TRACE = "00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01"
OTHER = "00-11111111111111111111111111111111-2222222222222222-01"


@pytest.fixture(autouse=True)
def _unwarned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_warned", set())
    monkeypatch.delenv(XRAY, raising=False)


@pytest.fixture
def logger() -> Iterator[Logger]:
    made = Logger(service="caller-test")
    yield made
    made.set_correlation_id(None)
    made.thread_safe_clear_keys()


def span(monkeypatch: pytest.MonkeyPatch, trace: Any, parent: int = 0x2222222222222222, flags: int = 1) -> None:
    """OpenTelemetry's API as far as it is used; the program has it loaded."""
    context = SimpleNamespace(trace_id=trace, span_id=parent, trace_flags=flags, is_valid=trace != 0)
    current = SimpleNamespace(get_span_context=lambda: context)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", SimpleNamespace(get_current_span=lambda: current))


def envelopes(world: World) -> list[Envelope]:
    return [Envelope.parse(message.body) for message in world.backend.queues[world.queue].messages]


# -- the trace ----------------------------------------------------------------------------------------


def test_the_span_that_is_on_goes_before_the_invocation_s_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    assert caller() == Origin()
    monkeypatch.setenv(XRAY, HEADER)
    assert caller().trace == TRACE
    span(monkeypatch, 0)
    assert caller().trace == TRACE
    span(monkeypatch, int("1" * 32, 16))
    assert caller().trace == OTHER


def test_a_program_that_does_not_trace_has_nothing_imported_for_it() -> None:
    import subprocess

    code = (
        "import sys; from loomjobs.runtime.caller import caller; assert caller().trace is None;"
        "assert not [name for name in sys.modules if name.startswith(('opentelemetry', 'aws_lambda_powertools'))]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("header", ["no", "Root=1-1-2", "\ud800", HEADER.replace("53995c3f42cd8ad8", "xyz")])
def test_b042_a_malformed_trace_is_dropped_with_one_warning_and_the_job_is_sent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, header: str
) -> None:
    monkeypatch.setattr("os.environ", {XRAY: header})
    world = World(STANDARD)
    world.enqueue("a", "b")
    assert [envelope.trace for envelope in envelopes(world)] == [None, None]
    (record,) = caplog.records
    assert f"the variable {XRAY} is not sent along" in record.getMessage()


@pytest.mark.parametrize("trace", ["text", 2**128, None])
def test_b042_a_tracer_that_answers_nonsense_or_raises_loses_its_trace_and_no_job(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, trace: Any
) -> None:
    span(monkeypatch, trace)
    monkeypatch.setenv(XRAY, HEADER)
    world = World(STANDARD)
    world.enqueue("a")
    assert [envelope.trace for envelope in envelopes(world)] == [TRACE]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_it_is_read_once_for_a_stream_and_once_for_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(STANDARD)
    reads: list[str] = []
    producer = world.backend.producer

    def look() -> Origin:
        reads.append(threading.current_thread().name)
        return Origin(trace=TRACE, correlation="c")

    monkeypatch.setattr(producer, "caller", look)
    producer.enqueue_many(call(world.job, Work(f"{number}")) for number in range(1_000))
    assert len(reads) == 1
    with bound(producer):
        asyncio.run(aenqueue_many(world.job, [Work(f"{number}") for number in range(1_001)]))
        asyncio.run(aenqueue(world.job, Work("one")))
    assert reads == [threading.current_thread().name] * 3
    assert {(envelope.trace, envelope.correlation) for envelope in envelopes(world)} == {(TRACE, "c")}


def test_concurrent_tasks_and_threads_each_send_their_own() -> None:
    world = World(STANDARD)

    async def one(name: str) -> None:
        with correlation(name):
            await asyncio.sleep(0)
            await aenqueue(world.job, Work(name))

    async def all_of_them() -> None:
        await asyncio.gather(*(one(f"task-{number}") for number in range(20)))

    def threaded(name: str) -> None:
        with correlation(name), bound(world.backend.producer):
            loomjobs.enqueue(world.job, Work(name))

    with bound(world.backend.producer):
        asyncio.run(all_of_them())
    for name in ("thread-1", "thread-2"):
        thread = threading.Thread(target=threaded, args=(name,))
        thread.start()
        thread.join()
    assert [(envelope.key, envelope.correlation) for envelope in envelopes(world)] == [
        (name, name) for name in [*(f"task-{number}" for number in range(20)), "thread-1", "thread-2"]
    ]


# -- the correlation id -------------------------------------------------------------------------------


def test_a_block_s_correlation_id_goes_before_the_logger_s(logger: Logger) -> None:
    assert caller().correlation is None
    logger.set_correlation_id("shared")
    assert caller().correlation == "shared"
    logger.thread_safe_append_keys(correlation_id="of-this-thread")
    assert caller().correlation == "of-this-thread"
    with correlation("given"):
        assert caller().correlation == "given"
        with correlation("inner"):
            assert caller().correlation == "inner"
        assert caller().correlation == "given"
    assert caller().correlation == "of-this-thread"


def test_a_block_s_correlation_id_is_in_powertools_lines(logger: Logger, capsys: pytest.CaptureFixture[str]) -> None:
    logger.registered_handler.setStream(sys.stdout)  # type: ignore[attr-defined]
    with correlation("req-1"):
        logger.info("in")
    logger.info("out")
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first["correlation_id"] == "req-1"
    assert "correlation_id" not in second


@pytest.mark.parametrize("id", ["", 7, "x" * 257, "a\ud800"])
def test_what_is_no_correlation_id_is_refused_where_it_is_given(id: Any) -> None:
    with pytest.raises(InvalidOption, match="correlation: id="), correlation(id):
        pass


@pytest.mark.parametrize("id", ["x" * 257, "a\ud800"])
def test_b042_a_logger_s_id_that_cannot_travel_is_dropped_with_a_warning(
    logger: Logger, caplog: pytest.LogCaptureFixture, id: str
) -> None:
    logger.set_correlation_id(id)
    world = World(STANDARD)
    world.enqueue("a", "b")
    assert [envelope.correlation for envelope in envelopes(world)] == [None, None]
    (record,) = caplog.records
    assert "Logger is not sent along" in record.getMessage()


def test_an_id_that_is_a_number_travels_as_text(logger: Logger) -> None:
    logger.append_keys(correlation_id=7)
    assert caller().correlation == "7"


@given(st.text(min_size=1, max_size=256))
def test_b040_any_correlation_id_and_tenant_of_unicode_travel_unchanged(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    world = World(STANDARD)
    with correlated(text):
        world.backend.producer.enqueue(call(world.job, Work("a"), tenant=text))
    (envelope,) = envelopes(world)
    assert (envelope.correlation, envelope.tenant) == (text, text)


# -- what does not fit --------------------------------------------------------------------------------


def test_b042_trace_and_correlation_id_are_left_out_where_a_message_would_be_too_large(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(STANDARD)
    bare = world.backend.producer.address(call(world.job, Work("x", group="")), origin=Origin())
    fitting = call(world.job, Work("x", group="x" * (1_048_576 - bare.size - 3)))  # an id may be longer
    origin = Origin(trace=TRACE, correlation="c", tenant="t")
    with correlation("c"):
        world.backend.producer.enqueue(fitting)
    (envelope,) = envelopes(world)
    assert (envelope.trace, envelope.correlation) == (None, None)
    assert "too large with them" in caplog.text
    with pytest.raises(PayloadTooLarge):
        world.backend.producer.address(fitting, origin=origin)  # a tenant is no decoration


# -- in a run -----------------------------------------------------------------------------------------


def family(seen: list[tuple[Any, ...]]) -> World:
    """A job that sends itself once."""
    world = World(STANDARD, sends=("test.work",))

    def behave(work: Work, ctx: JobContext) -> None:
        seen.append((work.name, ctx.correlation_id, ctx.trace))
        if work.name == "parent":
            ctx.enqueue(world.job, Work("child"))

    world.behave = behave
    return world


def test_children_inherit_what_the_caller_had_whatever_the_invocation_has(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, ...]] = []
    world = family(seen)
    monkeypatch.setenv(XRAY, HEADER)
    with correlation("req-1"):
        world.enqueue("parent")
    monkeypatch.setenv(XRAY, HEADER.replace("5759e988", "11111111"))
    world.drain()
    assert seen == [("parent", "req-1", TRACE), ("child", "req-1", TRACE)]
    assert [(run.correlation, run.trace) for run in world.backend.runs()] == [("req-1", TRACE)] * 2


def test_a_job_s_own_span_is_the_parent_where_it_goes_on_with_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, ...]] = []
    world = family(seen)
    monkeypatch.setenv(XRAY, HEADER)
    world.enqueue("parent")
    span(monkeypatch, int("5759e988bd862e3fe1be46a994272793", 16), 0xABC)
    world.drain()
    assert [trace for _, _, trace in seen] == [TRACE, "00-5759e988bd862e3fe1be46a994272793-0000000000000abc-01"]


def test_a_run_without_a_correlation_id_does_not_take_the_last_one_s(logger: Logger) -> None:
    seen: list[tuple[Any, ...]] = []
    world = family(seen)
    run, outside = world.behave, []

    def behave(work: Work, ctx: JobContext) -> None:
        run(work, ctx)
        outside.append(caller().correlation)  # what a producer beside `ctx` would take

    world.behave = behave
    with correlation("req-1"):
        world.enqueue("first")
    world.enqueue("parent")
    logger.set_correlation_id("left over by another job")
    world.drain()
    assert [(name, id) for name, id, _ in seen] == [("first", "req-1"), ("parent", None), ("child", None)]
    assert outside == ["req-1", None, None]
    assert caller().correlation == "left over by another job"


def test_async_jobs_on_the_main_thread_have_their_own_id_and_leave_none_behind(logger: Logger) -> None:
    seen: list[str | None] = []

    async def look(work: Work, ctx: JobContext) -> None:
        await asyncio.sleep(0)
        seen.append(logger.thread_safe_get_current_keys().get("correlation_id"))

    with isolated():
        looking = job("test.look", queue=STANDARD, key="name")(look)
    backend = Backend(Catalogue((looking,)))
    try:
        for name in ("a", "b", ""):
            with correlated(name or None):
                backend.producer.enqueue(call(looking, Work(f"job-{name}")))
        backend.deliver("standard")
    finally:
        backend._runner.close()
    assert seen == ["a", "b", None]
    assert logger.thread_safe_get_current_keys() == {}


def test_a_job_names_another_one_in_a_block() -> None:
    world = World(STANDARD, sends=("test.work",))
    seen: list[str | None] = []

    def behave(work: Work, ctx: JobContext) -> None:
        seen.append(ctx.correlation_id)
        if work.name == "parent":
            with correlation("order-7"):
                ctx.enqueue(world.job, Work("child"))

    world.behave = behave
    with correlation("req-1"):
        world.enqueue("parent")
    world.drain()
    assert seen == ["req-1", "order-7"]


@pytest.mark.parametrize("member", ['"correlation": ""', '"correlation": 7', '"trace": 7', '"correlation": "\\ud800"'])
def test_a_foreign_message_with_a_wrong_member_is_told_which(member: str) -> None:
    with pytest.raises(BadEnvelope, match=r"correlation|trace"):
        Envelope.parse(f'{{"job": "a.b", "payload": 1, {member}}}')


def test_a_foreign_trace_that_is_none_is_dropped_and_the_job_runs() -> None:
    seen: list[tuple[Any, ...]] = []
    world = family(seen)
    body = '{"job": "test.work", "payload": {"name": "parent"}, "trace": "nonsense"}'
    world.backend.queues["standard"].send(body, now=world.backend.clock())
    world.drain()
    assert seen == [("parent", None, None), ("child", None, None)]


def test_loggers_of_others_are_no_trouble(logger: Logger) -> None:
    other = logging.getLogger("not-powertools")
    other.powertools_handler = object()  # type: ignore[attr-defined]
    try:
        assert caller().correlation is None
    finally:
        del other.powertools_handler  # type: ignore[attr-defined]
