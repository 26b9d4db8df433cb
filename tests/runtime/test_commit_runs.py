"""`ctx.commit` in a run: effects, follow-up jobs and completion happen together, at every crash point."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from loomjobs import JobContext, Queue, Retry, Workload, call, job
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.commit import Commit, ItemRefused
from loomjobs.core.errors import CommitRefused, InvalidCommit, StoreUnavailable, UndeclaredSend
from loomjobs.core.registry import isolated
from loomjobs.local.backend import Backend, Killed

FIRST = Queue("first", workload=Workload.BULK, job_timeout=timedelta(seconds=10))
NEXT = Queue("next", workload=Workload.BULK, job_timeout=timedelta(seconds=10))
ITEM = {"Put": {"TableName": "t", "Item": {"pk": {"S": "x"}}}}


@dataclass(frozen=True)
class Work:
    name: str


class World:
    """A job that commits an item and a follow-up, and whatever else a test gives it to do."""

    def __init__(self, **options: Any) -> None:
        self.followed: list[str] = []
        self.before: Any = lambda ctx: None
        self.after: Any = lambda ctx: None

        def follow(work: Work, ctx: JobContext) -> None:
            self.followed.append(work.name)

        def first(work: Work, ctx: JobContext) -> str:
            self.before(ctx)
            ctx.commit(items=[ITEM], enqueue=[call(self.follow, work)], result="done")
            self.after(ctx)
            return "ignored"

        with isolated():
            self.follow = job("test.follow", queue=NEXT, key="name")(follow)
            self.first = job(
                "test.first", queue=FIRST, key="name", retry=Retry(attempts=3), sends=[self.follow], **options
            )(first)
        self.backend = Backend(Catalogue((self.first, self.follow)))
        self.transactor = self.backend.transactor

    def go(self) -> None:
        self.backend.producer.enqueue(call(self.first, Work("a")))
        self.drain()

    def drain(self) -> None:
        for _ in range(200):
            if not self.backend.step() and not self.backend.advance_to_next():
                return

    @property
    def record(self) -> Any:
        return self.backend.store.items["test.first#a"]

    def check(self, *, effects: int = 1) -> None:
        """The one thing that everything here is about."""
        assert len(self.transactor.committed) == effects
        assert self.followed == ["a"] * effects
        assert self.record["status"] == "COMPLETED"
        assert self.transactor.outbox.rows == {}


def test_the_item_the_follow_up_and_the_completion_happen_together() -> None:
    world = World()
    world.go()
    world.check()
    assert world.record["data"] == '"done"'


def test_a_raise_after_the_commit_changes_nothing_and_is_told() -> None:
    world = World()

    def later(ctx: JobContext) -> None:
        raise ValueError("too late")

    world.after = later
    world.go()
    world.check()
    assert any("too late" in run.detail for run in world.backend.runs())


def test_a_crash_before_the_commit_leaves_nothing_and_the_next_run_does_it() -> None:
    world = World()
    kills = [True]
    world.before = lambda ctx: _kill(kills)
    world.go()
    world.check()


def test_a_crash_after_the_commit_repeats_nothing() -> None:
    world = World()
    kills = [True]
    world.after = lambda ctx: _kill(kills)
    world.go()
    world.check()


@pytest.mark.parametrize("fault", ["refused", "reply-lost"])
def test_a_commit_without_an_answer_is_settled_by_the_next_delivery(fault: Any) -> None:
    world = World()
    world.transactor.faults = [fault]
    world.go()
    world.check()


def test_after_a_lost_answer_the_same_commit_may_be_tried_again_and_no_other() -> None:
    world = World()
    world.transactor.faults = ["reply-lost"]
    told: list[str] = []

    def commit_twice(ctx: JobContext) -> None:
        with pytest.raises(StoreUnavailable):
            ctx.commit(items=[ITEM])
        try:
            ctx.commit(items=[ITEM, ITEM])
        except InvalidCommit as error:
            told.append(str(error))
            raise

    world.before = commit_twice
    world.go()
    assert len(told) == 1
    assert "let the run fail" in told[0]
    assert len(world.transactor.committed) == 1
    assert world.record["status"] == "COMPLETED"


def test_a_second_commit_of_a_run_is_the_authors_error_and_changes_nothing() -> None:
    world = World()
    raised: list[BaseException] = []

    def again(ctx: JobContext) -> None:
        try:
            ctx.commit(items=[ITEM])
        except InvalidCommit as error:
            raised.append(error)

    world.after = again
    world.go()
    world.check()
    assert len(raised) == 1


def test_a_condition_of_the_authors_item_is_the_authors_error() -> None:
    world = World()
    world.transactor.refusals = [ItemRefused(0, "ConditionalCheckFailed", {"pk": {"S": "x"}})]
    caught: list[CommitRefused] = []

    def first(ctx: JobContext) -> None:
        try:
            ctx.commit(items=[ITEM])
        except CommitRefused as error:
            caught.append(error)

    world.before = first
    world.go()
    assert [(error.place, error.item) for error in caught] == [(0, {"pk": {"S": "x"}})]
    world.check()


def test_an_uncaught_refusal_is_a_dead_letter_and_nothing_is_written() -> None:
    world = World()
    world.transactor.refusals = [ItemRefused(0, "ConditionalCheckFailed")]
    world.go()
    assert world.record["status"] == "DEAD"
    assert world.transactor.committed == []
    assert world.followed == []


def test_a_worker_that_lost_its_claim_commits_nothing() -> None:
    world = World()
    slow = [True]

    def before(ctx: JobContext) -> None:
        if slow:
            slow.clear()
            world.backend.clock.advance(timedelta(hours=2))
            world.drain()  # another worker takes over and commits

    world.before = before
    world.go()
    world.check()
    assert "lost the claim" in [getattr(run.decision, "why", "") for run in world.backend.runs()]


def test_a_relay_that_dies_between_the_send_and_the_delete_sends_twice_and_the_job_runs_once() -> None:
    world = World()
    world.transactor.outbox.stuck = True
    world.go()
    assert list(world.transactor.outbox.rows) != []
    world.transactor.outbox.stuck = False
    world.backend.clock.advance(timedelta(minutes=2))
    world.transactor.sweep(world.backend.clock.now)
    world.drain()
    world.check()
    assert [getattr(run.decision, "why", "") for run in world.backend.runs()].count("duplicate") >= 1


def test_what_the_stream_lost_the_sweep_sends() -> None:
    world = World()
    world.transactor.relay = lambda now: None  # type: ignore[method-assign, assignment, return-value]
    world.go()
    assert world.followed == []
    world.backend.clock.advance(timedelta(minutes=2))
    world.transactor.sweep(world.backend.clock.now)
    world.drain()
    world.check()


def test_a_call_that_is_not_declared_is_refused_before_anything_is_written() -> None:
    world = World()

    def undeclared(ctx: JobContext) -> None:
        ctx.commit(enqueue=[call(world.first, Work("b"))])

    world.before = undeclared
    world.go()
    assert world.record["status"] == "DEAD"
    assert UndeclaredSend.__name__ in world.record["hist"][0]["kind"]


def test_commits_of_one_claim_with_one_content_have_one_token() -> None:
    world = World()
    seen: list[Commit] = []
    commit = world.transactor.commit
    world.transactor.faults = ["refused"]

    def spying(made: Commit, /) -> Any:
        seen.append(made)
        return commit(made)

    world.transactor.commit = spying  # type: ignore[method-assign]

    def twice(ctx: JobContext) -> None:
        for _ in range(2):
            try:
                ctx.commit(items=[ITEM])
            except StoreUnavailable:
                continue

    world.before = twice
    world.go()
    assert len({made.token for made in seen}) == 1


def _kill(armed: list[bool]) -> None:
    if armed:
        armed.clear()
        raise Killed
