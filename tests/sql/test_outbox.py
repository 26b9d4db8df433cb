"""The outbox in PostgreSQL: a job is enqueued exactly when the caller's transaction commits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from typing import Any

import psycopg
import pytest

from loomjobs import Queue, Workload
from loomjobs.core.call import Call, call
from loomjobs.core.envelope import Envelope
from loomjobs.core.errors import ConfigurationError
from loomjobs.core.outbox import Row
from loomjobs.core.outgoing import Sendable, Sent
from loomjobs.local.cipher import MemoryCipher
from loomjobs.runtime.caller import XRAY, correlation
from loomjobs.sql import SqlOutbox, SqlRelay
from tests.core.catalogue_fixture import LEDGER, Statement, declare
from tests.core.test_sealed import PAY, PAYMENT

WRITE = declare("billing.write")
POST = declare("ledger.post", LEDGER)
RENDER = declare(
    "reports.render",
    Queue("reports", workload=Workload.BULK, body_limit=4_096, oversized="offload"),
    key="period",
)
OUTBOX = SqlOutbox()


def one(customer: str = "c1", **options: Any) -> Call:
    return call(WRITE, Statement(customer, date(2026, 1, 1)), **options)


class Queues:
    """Implements the relay's outlet: keeps what was sent, and answers as it is told to."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.calls = 0
        self.answer: Callable[[Sendable], Sent] = lambda message: Sent("accepted")
        self.before: Callable[[], None] = lambda: None

    def send(self, queue: str, messages: Sequence[Sendable], /) -> Sequence[Sent]:
        self.before()
        self.calls += 1
        answers = [self.answer(message) for message in messages]
        taken = [message for message, sent in zip(messages, answers, strict=True) if sent.outcome == "accepted"]
        self.sent += [(queue, str(Envelope.parse(message.body).key)) for message in taken]
        return answers


class Log:
    def __init__(self) -> None:
        self.refusals: dict[str, str] = {}
        self.waits: list[str] = []
        self.lags: list[int] = []

    def sent(self, rows: Sequence[Row], /, *, now: datetime) -> None: ...

    def refused(self, id: str, queue: str, reason: str, /) -> None:
        self.refusals[id] = reason

    def postponed(self, rows: Sequence[Row], reason: str, /) -> None:
        self.waits.append(reason)

    def lag(self, milliseconds: int, /) -> None:
        self.lags.append(milliseconds)


def relay_of(server: str, queues: Queues, log: Log | None = None) -> SqlRelay:
    return SqlRelay(OUTBOX, connect=lambda: psycopg.connect(server), outlet=queues, journal=log or Log())


def pass_(server: str, queues: Queues, log: Log | None = None) -> Any:
    with psycopg.connect(server, autocommit=True) as connection:
        return relay_of(server, queues, log).once(connection)


def rows(connection: Any) -> int:
    connection.commit()
    return int(connection.execute("SELECT count(*) FROM loomjobs_outbox").fetchone()[0])


def test_a_committed_call_is_sent_once_and_its_row_is_gone(server: str, connection: Any) -> None:
    queues = Queues()
    connection.execute("INSERT INTO orders VALUES ('o1')")
    (enqueued,) = OUTBOX.add(connection, one())
    assert pass_(server, queues).sent == []
    connection.commit()
    pass_(server, queues)
    pass_(server, queues)
    assert queues.sent == [("billing", "c1/2026-01-01")]
    assert (enqueued.key, enqueued.outcome) == ("c1/2026-01-01", "accepted")
    assert rows(connection) == 0


def test_a_row_keeps_its_tenant_s_group_and_what_the_caller_had(
    server: str, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
    monkeypatch.setenv(XRAY, header)
    with correlation("req-1"):
        OUTBOX.add(connection, one(tenant="acme"))
    connection.commit()
    sent: list[Sendable] = []
    queues = Queues()
    queues.answer = lambda message: sent.append(message) or Sent("accepted")  # type: ignore[func-returns-value]
    pass_(server, queues)
    (row,) = sent
    assert (row.group, row.trace) == ("acme", "00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01")
    assert (Envelope.parse(row.body).tenant, Envelope.parse(row.body).correlation) == ("acme", "req-1")


def test_a_rollback_takes_the_job_with_it(server: str, connection: Any) -> None:
    queues = Queues()
    connection.execute("INSERT INTO orders VALUES ('o1')")
    OUTBOX.add(connection, one())
    connection.rollback()
    pass_(server, queues)
    assert queues.sent == []


def test_a_transaction_that_fails_at_its_commit_sends_nothing(server: str, connection: Any) -> None:
    connection.execute("ALTER TABLE orders ADD CONSTRAINT later UNIQUE (id) DEFERRABLE INITIALLY DEFERRED")
    connection.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey")
    connection.commit()
    queues = Queues()
    connection.execute("INSERT INTO orders VALUES ('o1'), ('o1')")
    OUTBOX.add(connection, one())
    with pytest.raises(psycopg.errors.UniqueViolation):
        connection.commit()
    pass_(server, queues)
    assert queues.sent == []


def test_rows_go_in_order_ten_to_a_call(server: str, connection: Any) -> None:
    queues = Queues()
    OUTBOX.add(connection, *(one(f"c{n:02d}") for n in range(25)))
    connection.commit()
    pass_(server, queues)
    assert [key for _, key in queues.sent] == [f"c{n:02d}/2026-01-01" for n in range(25)]
    assert queues.calls == 3


def test_a_relay_that_dies_before_its_commit_sends_again_with_the_same_ids(server: str, connection: Any) -> None:
    queues, seen = Queues(), []

    def die(message: Sendable) -> Sent:
        seen.append(Envelope.parse(message.body).id)
        return Sent("accepted")

    queues.answer = die
    OUTBOX.add(connection, one())
    connection.commit()
    with psycopg.connect(server) as dying:
        relay = relay_of(server, queues)
        dying.execute("BEGIN")
        relay.once(dying)
        dying.rollback()
    pass_(server, queues)
    assert len(seen) == 2
    assert len(set(seen)) == 1
    assert rows(connection) == 0


def test_what_sqs_refuses_for_good_is_kept_with_its_reason_and_holds_up_nothing(server: str, connection: Any) -> None:
    queues, log = Queues(), Log()
    queues.answer = lambda message: Sent("refused", "no such queue") if "bad" in message.body else Sent("accepted")
    OUTBOX.add(connection, one("bad"), one("c1"))
    connection.commit()
    pass_(server, queues, log)
    pass_(server, queues, log)
    assert [key for _, key in queues.sent] == ["c1/2026-01-01"]
    assert list(log.refusals.values()) == ["no such queue"]
    connection.commit()
    assert connection.execute("SELECT refused FROM loomjobs_outbox").fetchall() == [("no such queue",)]


@pytest.mark.parametrize("outcome", ["again", "unknown"])
def test_what_had_no_clear_answer_is_sent_again(server: str, connection: Any, outcome: Any) -> None:
    queues, log = Queues(), Log()
    queues.answer = lambda message: Sent(outcome, "busy")
    OUTBOX.add(connection, one("c1"), one("c2"))
    connection.commit()
    assert len(pass_(server, queues, log).left) == 2
    assert log.waits == ["busy"]
    queues.answer = lambda message: Sent("accepted")
    pass_(server, queues)
    assert [key for _, key in queues.sent] == ["c1/2026-01-01", "c2/2026-01-01"]


def test_a_fifo_group_stays_in_order_with_several_relays(server: str, connection: Any) -> None:
    queues = Queues()
    queues.before = lambda: time.sleep(0.01)
    for n in range(30):
        OUTBOX.add(connection, call(POST, Statement(f"c{n:02d}", date(2026, 1, 1)), group="g"))
        connection.commit()
    threads = [threading.Thread(target=lambda: [pass_(server, queues) for _ in range(5)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pass_(server, queues)
    assert [key for _, key in queues.sent] == [f"c{n:02d}/2026-01-01" for n in range(30)]


def test_a_waiting_relay_sends_at_the_commit_and_survives_the_databases_restart_of_its_connection(
    server: str, connection: Any
) -> None:
    queues, stop = Queues(), threading.Event()
    thread = threading.Thread(target=relay_of(server, queues).run, args=(stop,))
    thread.start()
    try:
        time.sleep(0.3)
        OUTBOX.add(connection, one("c1"))
        began = time.monotonic()
        connection.commit()
        wait_for(lambda: len(queues.sent) == 1)
        assert time.monotonic() - began < 3  # notified, not polled
        others = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE '%'"
        )
        connection.execute(others)
        connection.commit()
        OUTBOX.add(connection, one("c2"))
        connection.commit()
        wait_for(lambda: len(queues.sent) == 2)
    finally:
        stop.set()
        thread.join(20)
    assert not thread.is_alive()


def test_the_lag_is_that_of_the_oldest_row_and_zero_without_one(server: str, connection: Any) -> None:
    assert connection.execute(OUTBOX.lag()).fetchone() == (None,)
    OUTBOX.add(connection, one())
    connection.commit()
    (seconds,) = connection.execute(OUTBOX.lag()).fetchone()
    assert 0 <= float(seconds) < 10


def test_asyncio_callers_have_their_own(server: str, connection: Any) -> None:
    async def order() -> None:
        async with await psycopg.AsyncConnection.connect(server) as made:
            await OUTBOX.aadd(made, one("c9"))

    asyncio.run(order())
    queues = Queues()
    pass_(server, queues)
    assert [key for _, key in queues.sent] == ["c9/2026-01-01"]


def test_a_delay_counts_from_the_commit_time_of_the_row(server: str, connection: Any) -> None:
    queues, delays = Queues(), []

    def note(message: Sendable) -> Sent:
        delays.append(message.delay)
        return Sent("accepted")

    queues.answer = note
    OUTBOX.add(connection, one(delay=timedelta(seconds=600)))
    connection.commit()
    pass_(server, queues)
    assert 595 <= delays[0] <= 600


@pytest.mark.parametrize("name", ["", "a b", "x; drop table orders", "a.b.c", "A"])
def test_a_table_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="not a table's name"):
        SqlOutbox(name)


def test_a_table_may_be_in_a_schema(server: str, connection: Any) -> None:
    connection.execute("CREATE SCHEMA IF NOT EXISTS app")
    mine = SqlOutbox("app.outbox")
    mine.create(connection)
    mine.add(connection, one())
    assert connection.execute("SELECT count(*) FROM app.outbox").fetchone() == (1,)
    assert mine.ddl(connection).startswith('CREATE TABLE IF NOT EXISTS "app"."outbox"')


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_encrypted_fields_are_encrypted_in_the_row(connection: Any) -> None:
    with pytest.raises(ConfigurationError, match="no cipher="):
        OUTBOX.add(connection, call(PAY, PAYMENT))
    connection.rollback()
    OUTBOX.create(connection)
    SqlOutbox(cipher=MemoryCipher()).add(connection, call(PAY, PAYMENT))
    ((body,),) = connection.execute("SELECT body FROM loomjobs_outbox").fetchall()
    assert "DE0212" not in body
    assert Envelope.parse(body).sealed


def test_a_payload_beside_its_message_is_stored_before_its_row_is_there(connection: psycopg.Connection[Any]) -> None:
    stored: dict[str, bytes] = {}

    class Bucket:
        def put(self, key: str, data: bytes, /) -> None:
            assert written(connection) == 0
            stored[key] = data

        def get(self, key: str, /, *, most: int) -> bytes:
            return stored[key][:most]

    SqlOutbox(payloads=Bucket()).add(connection, call(RENDER, Statement("c" * 5_000, date(2026, 1, 1))))
    ((body,),) = connection.execute("SELECT body FROM loomjobs_outbox").fetchall()
    ref = Envelope.parse(body).payload_ref
    assert ref is not None
    assert ref.key("reports") in stored


def test_without_a_bucket_nothing_large_is_written(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(ConfigurationError, match="which environment"):
        OUTBOX.add(connection, call(RENDER, Statement("c" * 5_000, date(2026, 1, 1))))
    assert written(connection) == 0


def written(connection: psycopg.Connection[Any]) -> int:
    ((count,),) = connection.execute("SELECT count(*) FROM loomjobs_outbox").fetchall()
    return int(count)
