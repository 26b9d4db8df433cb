"""Deadlines and removed jobs on their way through a worker in memory."""

from __future__ import annotations

from datetime import date, datetime, timedelta

from loomjobs import JobContext, call, enqueue
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.decision import Acknowledge
from loomjobs.core.envelope import Envelope
from loomjobs.core.evolve import Tombstone
from loomjobs.local.backend import Backend
from loomjobs.runtime.sending import bound
from tests.core.catalogue_fixture import BILLING, MAIL, Statement, declare

ONE = Statement("c1", date(2026, 1, 1))
HOUR = timedelta(hours=1)


def test_what_a_job_sends_inherits_its_deadline_by_every_way_of_sending() -> None:
    seen: list[datetime | None] = []
    child = declare("mail.child", MAIL, expires=2 * HOUR)

    def send(statement: Statement, ctx: JobContext) -> None:
        seen.append(ctx.deadline)
        ctx.enqueue(child, statement)
        ctx.enqueue_many(child, [statement])
        enqueue(child, statement)
        enqueue(child, statement, expires=HOUR / 2)

    parent = declare("billing.parent", function=send, sends=[child])
    backend = Backend(Catalogue((parent, child)))
    start = backend.clock.now
    with bound(backend.producer):
        backend.producer.enqueue(call(parent, ONE, expires=HOUR))
        backend.deliver("billing")
    sent = [Envelope.parse(message.body).expires for message in backend.journal.sent[1:]]
    assert seen == [start + HOUR]
    assert sent == [start + HOUR] * 3 + [start + HOUR / 2]


def test_a_removed_jobs_messages_leave_the_queue_and_say_why() -> None:
    old = declare("billing.old")
    new = declare("billing.new")
    grave = Tombstone("billing.old", BILLING, "replaced by billing.new", "jobs.removed", "jobs/removed.py:1")
    backend = Backend(Catalogue((new,), tombstones=(grave,)))
    backend.producer.enqueue(call(old, ONE))
    (decided,) = backend.deliver("billing")
    assert decided[1] == Acknowledge("removed", note="replaced by billing.new")
    assert (backend.pending(), list(backend.store)) == (0, [])
    (run,) = backend.runs()
    assert (run.job, run.duration) == ("billing.old", None)


def test_a_queue_that_only_tombstones_keep_still_has_its_worker() -> None:
    old = declare("mail.old", MAIL)
    grave = Tombstone("mail.old", MAIL, "gone", "jobs.removed", "jobs/removed.py:1")
    backend = Backend(Catalogue((declare("billing.new"),), tombstones=(grave,)))
    backend.producer.enqueue(call(old, ONE))
    assert [decision for _, decision in backend.deliver("mail")] == [Acknowledge("removed", note="gone")]
