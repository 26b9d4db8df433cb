"""What can be seen of a job from outside: progress, errors, and waiting for its end."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from loomjobs import EACH_ENQUEUE, JobContext, call, job, status, wait
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.errors import InvalidOption
from loomjobs.core.registry import isolated
from loomjobs.local.backend import Backend
from loomjobs.runtime.status import reading
from tests.runtime.world import STANDARD, Work, World

TICK = timedelta(milliseconds=5)


def test_progress_is_written_at_first_every_two_seconds_and_at_the_end() -> None:
    world, seen = World(), list[tuple[int, int] | None]()

    def run(work: Work, ctx: JobContext) -> None:
        for done in range(1, 11):
            ctx.progress(done, 10)
            seen.append(status(world.job, work).progress)
            world.backend.clock.advance(timedelta(seconds=0.75))

    world.behave = run
    world.enqueue("a")
    with reading(world.backend.store):
        world.drain()
        assert status(world.job, Work("a")).progress == (10, 10)
    assert [each and each[0] for each in seen] == [1, 1, 1, 4, 4, 4, 7, 7, 7, 10]


def test_progress_that_cannot_be_written_fails_no_job_and_one_that_makes_no_sense_does() -> None:
    world = World()
    wrong: list[str] = []

    def run(work: Work, ctx: JobContext) -> None:
        world.backend.store.faults = ["refused"]
        ctx.progress(1, 2)
        for done, total in ((3, 2), (-1, 2)):
            with pytest.raises(InvalidOption):
                ctx.progress(done, total)
            wrong.append("refused")

    world.behave = run
    world.enqueue("a")
    world.drain()
    assert (world.effects, wrong) == (["a"], ["refused"] * 2)


def test_a_rerun_begins_without_progress_and_errors() -> None:
    from loomjobs.runtime.sending import bound, rerun

    world = World()
    world.behave = lambda work, ctx: ctx.progress(2, 2)
    world.enqueue("a")
    world.drain()
    with reading(world.backend.store), bound(world.backend.producer):
        rerun(world.job, Work("a"))
        now = status(world.job, Work("a"))
    assert (now.state, now.progress, now.error, now.attempts) == ("queued", None, "", 0)


def test_wait_returns_when_it_is_over() -> None:
    world = World()
    world.enqueue("a")
    later = threading.Timer(0.05, world.drain)
    later.start()
    with reading(world.backend.store):
        done = wait(world.job, Work("a"), timeout=timedelta(seconds=20), every=TICK)
    later.join()
    assert (done.state, done.result()) == ("succeeded", "a")


def test_an_enqueue_without_a_business_key_is_looked_up_by_its_id() -> None:
    ran: list[str] = []
    with isolated():

        @job("test.each", queue=STANDARD, key=EACH_ENQUEUE)
        def each(work: Work, ctx: JobContext) -> int:
            ran.append(work.name)
            return 7

    backend = Backend(Catalogue((each,)))
    sent = backend.producer.enqueue(call(each, Work("a"), track=True))
    with reading(backend.store):
        assert status(each, key=sent.id).state == "queued"
        while backend.step() or backend.advance_to_next():
            pass
        assert wait(each, key=sent.id, timeout=timedelta(seconds=5), every=TICK).result() == 7
        with pytest.raises(InvalidOption, match="Pass key= with the id that enqueue returned"):
            status(each, Work("a"))
        with pytest.raises(InvalidOption, match="a payload or key=, not both"):
            status(each, Work("a"), key="x")  # type: ignore[call-overload]


def test_wait_gives_up_with_the_last_state() -> None:
    world = World()
    with reading(world.backend.store), pytest.raises(TimeoutError, match=r"test\.work a is unknown after 0:00:00\.02"):
        wait(world.job, Work("a"), timeout=timedelta(milliseconds=20), every=TICK)
