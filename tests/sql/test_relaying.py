"""`loomjobs relay-sql`, against a real server and an outlet of the test's own."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import date
from typing import Any

import pytest

from loomjobs.aws import connect
from loomjobs.cli.main import main
from loomjobs.core.call import call
from loomjobs.core.outgoing import Sent
from loomjobs.sql import SqlOutbox
from tests.core.catalogue_fixture import Statement, declare
from tests.sql.test_outbox import Queues


@pytest.fixture
def queues(server: str, connection: Any, monkeypatch: pytest.MonkeyPatch) -> Queues:
    made = Queues()
    monkeypatch.setenv("DATABASE_URL", server)
    monkeypatch.setattr(connect, "process_sender", lambda: made)
    SqlOutbox().add(connection, call(declare("billing.write"), Statement("c1", date(2026, 1, 1))))
    connection.commit()
    return made


def test_once_sends_what_there_is(queues: Queues, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["relay-sql", "--once"]) == 0
    assert [key for _, key in queues.sent] == ["c1/2026-01-01"]
    assert " relayed id=" in capsys.readouterr().out


def test_once_says_by_its_exit_code_that_something_had_to_wait(
    queues: Queues, capsys: pytest.CaptureFixture[str]
) -> None:
    queues.answer = lambda message: Sent("again", "throttled")
    assert main(["relay-sql", "--once"]) == 1
    assert "relay postponed rows=1 reason=throttled" in capsys.readouterr().out


def test_it_runs_until_it_is_told_to_stop(queues: Queues) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def stop() -> None:
        while not queues.sent:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        assert main(["relay-sql"]) == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        thread.join()
    assert len(queues.sent) == 1
