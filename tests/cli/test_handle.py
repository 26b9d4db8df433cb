"""`loomjobs status` and `loomjobs rerun`, on a job in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loomjobs import Batch, JobContext
from loomjobs.cli import cancel
from loomjobs.cli.main import main
from loomjobs.core.catalogue import Catalogue
from loomjobs.runtime.sending import bound
from loomjobs.runtime.status import reading
from tests.runtime.world import Work, World

PAYLOAD = '{"name": "a", "group": "g"}'


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(attempts=2)
    monkeypatch.setattr(cancel, "catalogue", lambda: Catalogue((made.job,)))
    with bound(made.backend.producer), reading(made.backend.store):
        yield made


def test_status_tells_what_is_known(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "test.work", PAYLOAD]) == 1
    assert capsys.readouterr().out == "test.work a: unknown\n"

    def half(work: Work, ctx: JobContext) -> None:
        ctx.progress(5, 10)
        raise RuntimeError("half way")

    world.behave = half
    world.enqueue("a")
    world.deliver()
    assert main(["status", "test.work", "--key", "a"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "test.work a: waiting",
        "  attempts   1",
        "  progress   5 of 10",
        "  last error RuntimeError: half way",
    ]
    world.drain()
    assert main(["status", "test.work", PAYLOAD]) == 0
    assert "test.work a: dead\n  attempts   2" in capsys.readouterr().out


def test_rerun_runs_what_has_ended_and_nothing_else(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.enqueue("a")
    world.drain()
    assert main(["rerun", "test.work", PAYLOAD]) == 0
    assert main(["rerun", "test.work", PAYLOAD]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "test.work a: it runs anew",
        "test.work a: it is queued or runs already",
    ]
    world.drain()
    assert world.effects == ["a", "a"]
    assert main(["status", "test.work", PAYLOAD]) == 0
    assert '  result     "a"' in capsys.readouterr().out


def test_a_batch_is_shown_with_its_first_failures(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(work: Work, ctx: JobContext) -> None:
        if int(work.name) % 2:
            raise RuntimeError

    world.behave = fail
    batch = Batch("monthly")
    batch.add(world.job, (Work(str(number)) for number in range(110)), cap=1_000)
    assert main(["batch", "show", "monthly"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "monthly: open: more may come",
        "  sent          110",
        "  done            0",
        "  pending       110",
        "  failed          0",
    ]
    batch.close()
    world.drain()
    assert main(["batch", "show", "monthly"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:6] == [
        "monthly: closed",
        "  sent          110",
        "  done           55",
        "  pending         0",
        "  failed         55",
        "    test.work 1 exhausted",
    ]
    assert lines[-1] == "    and 35 more: --all"
    assert main(["batch", "show", "monthly", "--all"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 5 + 55
    assert main(["batch", "show", "nope"]) == 2


def test_which_one_has_to_be_said(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "test.work"]) == 2
    assert main(["status", "test.work", PAYLOAD, "--key", "a"]) == 2
    assert main(["rerun", "test.work"]) == 2
    assert "the record keeps only a hash of it" in capsys.readouterr().err
