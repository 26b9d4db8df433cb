"""The relay over memory: nothing committed is lost, and what is sent twice is recognised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomjobs.core.address import address
from loomjobs.core.call import call
from loomjobs.core.claim import Claim, claim_write
from loomjobs.core.commit import Commit, Committed, FenceLost, ItemRefused, make_commit
from loomjobs.core.context import JobContext
from loomjobs.core.errors import ConfigurationError, StoreUnavailable
from loomjobs.core.outbox import BadRow, Row
from loomjobs.core.outgoing import Origin, Sendable, Sent
from loomjobs.core.record import Record
from loomjobs.local.backend import Backend
from loomjobs.local.store import MemoryStore
from loomjobs.local.transactor import MemoryOutbox, MemoryTransactor, RelayLog
from loomjobs.runtime.relay import SWEPT, Relay
from tests.core.catalogue_fixture import LEDGER, MAIL, Statement, catalogue, declare

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OLD = NOW - timedelta(minutes=5)


def ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def row(id: str, queue: str = "mail", *, at: datetime = OLD, delay: int = 0, group: str | None = None) -> Row:
    return Row(id=id, queue=queue, body=f"body of {id}", group=group, dedup=None, delay=delay, at=ms(at))


@dataclass
class Outlet:
    """Takes everything, except what `behave` says of a message's body."""

    behave: dict[str, Sent] = field(default_factory=dict[str, Sent])
    calls: list[tuple[str, list[str]]] = field(default_factory=list[tuple[str, list[str]]])
    taken: list[Sendable] = field(default_factory=list[Sendable])
    gone: frozenset[str] = frozenset()

    def send(self, queue: str, messages: Sequence[Sendable], /) -> Sequence[Sent]:
        if queue in self.gone:
            raise ConfigurationError(f"no queue {queue}")
        self.calls.append((queue, [message.body for message in messages]))
        outcomes = [self.behave.get(message.body, Sent("accepted")) for message in messages]
        self.taken += [each for each, sent in zip(messages, outcomes, strict=True) if sent.outcome == "accepted"]
        return outcomes


class World:
    def __init__(self, *rows: Row) -> None:
        self.outbox = MemoryOutbox({row.id: row for row in rows})
        self.outlet = Outlet()
        self.journal = RelayLog()
        self.relay = Relay(outbox=self.outbox, outlet=self.outlet, journal=self.journal, clock=lambda: NOW)

    def fail(self, id: str, outcome: str = "again") -> None:
        self.outlet.behave[f"body of {id}"] = Sent(outcome, "as told")  # type: ignore[arg-type]

    def forward(self) -> list[str]:
        """Ids that have to be tried again."""
        return [each.id for each in self.relay.forward(list(self.outbox.rows.values())).left]


def test_rows_go_to_their_queues_ten_to_a_call_and_are_deleted() -> None:
    world = World(*[row(f"m{place}") for place in range(12)], row("l", "ledger"))
    assert world.forward() == []
    assert [(queue, len(bodies)) for queue, bodies in world.outlet.calls] == [("mail", 10), ("mail", 2), ("ledger", 1)]
    assert world.outbox.rows == {}
    assert len(world.journal.rows_sent) == 13


@pytest.mark.parametrize("outcome", ["again", "unknown"])
def test_a_row_that_sqs_did_not_take_stays_and_its_neighbours_are_sent(outcome: str) -> None:
    world = World(row("a"), row("b"), row("c"))
    world.fail("b", outcome)
    assert world.forward() == ["b"]
    assert set(world.outbox.rows) == {"b"}
    assert world.journal.reasons == {"b": "as told"}


def test_behind_a_failure_nothing_more_goes_to_its_queue_but_the_others_are_served() -> None:
    world = World(*[row(f"m{place}") for place in range(25)], row("l", "ledger"))
    world.fail("m3")
    left = world.forward()
    assert left == ["m3", *[f"m{place}" for place in range(10, 25)]]
    assert [queue for queue, _ in world.outlet.calls] == ["mail", "ledger"]


def test_a_refused_row_blocks_nobody_and_stays_for_the_sweep() -> None:
    world = World(*[row(f"m{place}") for place in range(12)])
    world.fail("m0", "refused")
    assert world.forward() == []
    assert set(world.outbox.rows) == {"m0"}
    assert world.journal.reasons == {"m0": "as told"}


def test_a_queue_that_is_not_known_blocks_nobody() -> None:
    world = World(row("x", "removed"), row("a"))
    world.outlet.gone = frozenset({"removed"})
    assert world.forward() == []
    assert set(world.outbox.rows) == {"x"}
    assert "no queue removed" in world.journal.reasons["x"]


def test_a_delay_counts_from_the_commit() -> None:
    world = World(row("a", at=NOW - timedelta(seconds=20), delay=60), row("b", delay=60))
    world.forward()
    assert [message.delay for message in world.outlet.taken] == [40, 0]


def test_a_crash_after_send_before_delete_sends_the_same_message_again() -> None:
    world = World(row("a", group="g"))
    world.outbox.stuck = True
    world.forward()
    world.outbox.stuck = False
    assert world.relay.sweep(enough_time=lambda: True) == 1
    first, second = world.outlet.taken
    assert first == second
    assert world.outbox.rows == {}


def test_the_sweep_sends_old_rows_only_and_says_how_old_the_oldest_was() -> None:
    world = World(row("old"), row("older", at=OLD - timedelta(minutes=1)), row("new", at=NOW - timedelta(seconds=59)))
    assert world.relay.sweep(enough_time=lambda: True) == 2
    assert set(world.outbox.rows) == {"new"}
    assert world.journal.lags == [360_000]
    assert world.relay.sweep(enough_time=lambda: True) == 0
    assert world.journal.lags == [360_000, 0]


def test_the_sweep_stops_when_its_time_is_up_and_goes_on_in_the_next() -> None:
    world = World(*[row(f"m{place}") for place in range(SWEPT + 5)])
    assert world.relay.sweep(enough_time=lambda: False) == SWEPT
    assert len(world.outbox.rows) == 5
    assert world.relay.sweep(enough_time=lambda: False) == 5


def test_the_sweep_leaves_a_failing_queue_alone_after_its_first_failure() -> None:
    world = World(*[row(f"m{place}") for place in range(SWEPT + 5)], row("l", "ledger"))
    for place in range(SWEPT + 5):
        world.fail(f"m{place}")
    assert world.relay.sweep(enough_time=lambda: True) == 1
    assert [queue for queue, _ in world.outlet.calls] == ["mail", "ledger"]
    assert len(world.outbox.rows) == SWEPT + 5


def test_what_is_no_row_is_reported_and_blocks_nobody() -> None:
    world = World(row("a"))
    world.outbox.written_before = lambda at, /: iter([BadRow("b", "body is no text"), row("a")])  # type: ignore[method-assign]
    assert world.relay.sweep(enough_time=lambda: True) == 1
    assert "body is no text" in world.journal.reasons["b"]


@given(st.lists(st.tuples(st.sampled_from(["mail", "ledger"]), st.sampled_from(["accepted", "again", "refused"]))))
def test_every_row_is_sent_or_still_there(behaviours: list[tuple[str, str]]) -> None:
    world = World(*[row(f"m{place}", queue) for place, (queue, _) in enumerate(behaviours)])
    for place, (_, outcome) in enumerate(behaviours):
        world.fail(f"m{place}", outcome)
    done = world.relay.forward(list(world.outbox.rows.values()))
    assert Counter(each.id for each in [*done.sent, *done.refused, *done.left]) == Counter(
        f"m{place}" for place in range(len(behaviours))
    )
    assert set(world.outbox.rows) == {each.id for each in [*done.refused, *done.left]}


# -- commits in memory, up to the worker of the committed call -----------------------------------------
class Committing:
    """A record that is claimed, and a committed call of a job that counts its runs."""

    def __init__(self, *, fifo: bool = False) -> None:
        self.runs: list[str] = []

        def run(statement: Statement, ctx: JobContext) -> None:
            self.runs.append(ctx.id)

        queue = LEDGER if fifo else MAIL
        self.job = declare(f"{queue.name}.send", queue, run)
        self.backend = Backend(catalogue(self.job))
        self.transactor = MemoryTransactor(MemoryStore(), self)
        claim = Claim(
            id="a.b#1",
            owner="one",
            now=ms(NOW),
            lease=ms(NOW) + 60_000,
            payload_hash="p",
            message="m",
            sent=ms(NOW) - 1,
            expires=ms(NOW) // 1000 + 60,
            version="v",
        )
        item = self.transactor.store.write(claim_write(claim)).item
        assert item is not None
        self.record = Record.of(item)

    def send(self, queue: str, messages: Sequence[Sendable], /) -> Sequence[Sent]:
        for each in messages:
            self.backend.queues[queue].send(
                each.body, now=self.backend.clock(), group=each.group, dedup=each.dedup, delay=each.delay
            )
        return [Sent("accepted")] * len(messages)

    def commit(self) -> Commit:
        now = self.backend.clock()
        message = address(call(self.job, Statement("c1", date(2026, 1, 1))), id="job1", now=now, origin=Origin())
        put = {"Put": {"TableName": "t", "Item": {"id": {"S": "x"}}}}
        return make_commit(self.record, items=[put], messages=[message], now=now, expires=99)

    def status(self) -> str:
        return str(self.transactor.store.items["a.b#1"]["status"])

    def drain(self) -> None:
        while self.backend.step() or self.backend.advance_to_next():
            pass

    def relay(self) -> None:
        self.transactor.relay(self.backend.clock())


@pytest.fixture(params=[False, True], ids=["standard", "fifo"])
def committing(request: pytest.FixtureRequest) -> Committing:
    return Committing(fifo=request.param)


def test_a_committed_call_runs_once_under_the_id_it_was_committed_with(committing: Committing) -> None:
    assert committing.transactor.commit(committing.commit()) == Committed()
    assert committing.status() == "COMPLETED"
    assert len(committing.transactor.committed) == 1
    assert committing.runs == []  # until the relay comes
    committing.relay()
    committing.drain()
    assert committing.runs == ["job1"]
    assert committing.transactor.oldest(committing.backend.clock()) == timedelta(0)


@pytest.mark.parametrize("apart", [0, 20], ids=["within SQS's deduplication", "long after it"])
def test_a_call_that_a_crashed_relay_sends_again_runs_once(committing: Committing, apart: int) -> None:
    committing.transactor.commit(committing.commit())
    committing.transactor.outbox.stuck = True
    committing.relay()
    committing.drain()
    committing.backend.clock.advance(timedelta(minutes=apart))
    committing.transactor.outbox.stuck = False
    committing.relay()
    committing.drain()
    assert committing.runs == ["job1"]
    assert committing.transactor.outbox.rows == {}


def test_a_commit_that_the_store_refused_has_written_nothing_and_may_be_tried_again(committing: Committing) -> None:
    committing.transactor.faults = ["refused"]
    with pytest.raises(StoreUnavailable):
        committing.transactor.commit(committing.commit())
    assert (committing.status(), committing.transactor.committed) == ("INPROGRESS", [])
    assert committing.transactor.outbox.rows == {}
    assert committing.transactor.commit(committing.commit()) == Committed()


def test_a_commit_whose_answer_was_lost_is_recognised_and_written_once(committing: Committing) -> None:
    committing.transactor.faults = ["reply-lost"]
    made = committing.commit()
    with pytest.raises(StoreUnavailable):
        committing.transactor.commit(made)
    assert committing.transactor.commit(made) == Committed()
    assert len(committing.transactor.committed) == len(committing.transactor.outbox.rows) == 1


def test_a_commit_under_a_lost_claim_writes_nothing(committing: Committing) -> None:
    stolen = {**committing.transactor.store.items["a.b#1"], "owner": "two"}
    committing.transactor.store.items["a.b#1"] = stolen
    assert committing.transactor.commit(committing.commit()) == FenceLost()
    assert (committing.transactor.committed, committing.transactor.outbox.rows) == ([], {})


def test_a_refused_item_writes_nothing_and_leaves_the_claim(committing: Committing) -> None:
    refusal = ItemRefused(0, "ConditionalCheckFailed")
    committing.transactor.refusals = [refusal]
    assert committing.transactor.commit(committing.commit()) == refusal
    assert committing.status() == "INPROGRESS"
    assert committing.transactor.commit(committing.commit()) == Committed()


def test_what_the_stream_missed_the_sweep_sends(committing: Committing) -> None:
    committing.transactor.commit(committing.commit())
    assert committing.transactor.sweep(committing.backend.clock()) == 0  # too young
    committing.backend.clock.advance(timedelta(seconds=61))
    assert committing.transactor.sweep(committing.backend.clock()) == 1
    committing.drain()
    assert committing.runs == ["job1"]
