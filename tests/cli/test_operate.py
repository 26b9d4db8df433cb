"""`loomjobs unblock` and `loomjobs brakes`, on records in memory."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from loomjobs import Service
from loomjobs.cli import operate
from loomjobs.cli.main import main
from loomjobs.core.breaker import breaker_id
from loomjobs.core.halt import halt_id, halt_write
from loomjobs.local.store import MemoryStore
from loomjobs.runtime.status import reading
from tests.core.catalogue_fixture import LEDGER, catalogue, declare

LATER = int(time.time()) + 86_400


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryStore]:
    known = catalogue(
        declare("billing.write", uses=[Service("api", breaker=True), Service("plain")]),
        declare("ledger.post", LEDGER, on_dead="halt"),
    )
    monkeypatch.setattr(operate, "catalogue", lambda: known)
    made = MemoryStore()
    with reading(made):
        yield made


def test_a_halted_group_goes_on_after_unblock(store: MemoryStore, capsys: pytest.CaptureFixture[str]) -> None:
    store.write(halt_write("ledger", "c1", by="ledger.post#c1", now=1, expires=LATER))
    assert main(["unblock", "ledger", "c1"]) == 0
    assert "halted by ledger.post#c1, which stays a dead letter" in capsys.readouterr().out
    assert store.items[halt_id("ledger", "c1")]["lifted"] == 1
    assert main(["unblock", "ledger", "c1"]) == 1


def test_a_group_that_is_not_halted_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["unblock", "ledger", "c2"]) == 1
    assert "group c2 of ledger is not halted" in capsys.readouterr().out


@pytest.mark.parametrize("queue", ["billing", "lodger"])
def test_only_fifo_queues_have_groups_to_unblock(queue: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["unblock", queue, "c1"]) == 2
    assert "there are: ledger" in capsys.readouterr().err


def test_the_circuits_are_listed_with_what_they_let_through(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["brakes"]) == 0
    assert capsys.readouterr().out.split() == ["service", "state", "since", "admits", "api", "CLOSED", "100%"]
    now = int(time.time())
    opened = {"id": breaker_id("api"), "state": "OPEN", "opened_at": now, "recovery_timeout": 60, "expiration": LATER}
    store.items[breaker_id("api")] = opened
    main(["brakes"])
    out = capsys.readouterr().out
    assert "OPEN" in out
    assert "a probe in" in out
    store.items[breaker_id("api")] = opened | {"opened_at": now - 100}
    main(["brakes"])
    assert "one probe at a time" in capsys.readouterr().out


def test_without_breakers_there_is_nothing_to_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(operate, "catalogue", lambda: catalogue(declare("billing.write")))
    assert main(["brakes"]) == 0
    assert "no job uses a Service" in capsys.readouterr().out
