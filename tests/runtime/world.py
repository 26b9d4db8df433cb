"""One job on an in-memory AWS, whose behaviour a test sets and whose effects it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from loomjobs import JobContext, Queue, Retry, Workload, call, job
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.job import Job
from loomjobs.core.letter import read_report
from loomjobs.core.registry import isolated
from loomjobs.local.backend import Backend, Killed

STANDARD = Queue("standard", workload=Workload.BULK, batch_size=5, job_timeout=timedelta(seconds=10))
SIDE = Queue("side", workload=Workload.BULK, batch_size=5, parallel=5, job_timeout=timedelta(seconds=10))
FIFO = Queue("ordered", workload=Workload.BULK, batch_size=5, fifo=True, job_timeout=timedelta(seconds=10))


@dataclass(frozen=True)
class Work:
    name: str
    group: str = "g"


class World:
    """One job whose behaviour a test sets, and the effects that it had."""

    def __init__(self, queue: Queue = STANDARD, *, attempts: int = 5, seed: int = 0, **options: Any) -> None:
        self.effects: list[str] = []
        self.behave: Callable[[Work, JobContext], None] = lambda work, ctx: None

        def run(work: Work, ctx: JobContext) -> str:
            self.behave(work, ctx)
            self.effects.append(work.name)
            return work.name

        group = {"group": "group"} if queue.fifo else {}
        with isolated():
            self.job: Job[Any, Any] = job(
                "test.work", queue=queue, key="name", retry=Retry(attempts=attempts), **group, **options
            )(run)
        self.backend = Backend(Catalogue((self.job,)), seed=seed)
        self.queue = queue.name

    def enqueue(self, *names: str, group: str = "g") -> None:
        for name in names:
            self.backend.producer.enqueue(call(self.job, Work(name, group)))

    def deliver(self) -> list[str]:
        """One invocation; the kinds of its decisions, in order."""
        return [type(decision).__name__ for _, decision in self.backend.deliver(self.queue)]

    def drain(self, *, rounds: int = 500) -> None:
        for _ in range(rounds):
            if not self.backend.step() and not self.backend.advance_to_next():
                return
        raise AssertionError(f"{self.backend.pending()} messages are left")

    def state(self, name: str) -> tuple[str, int]:
        item = self.backend.store.items[f"test.work#{name}"]
        return item["status"], item["n"]

    def dead(self) -> list[str]:
        reports = [read_report(dict(each.attributes)) for each in self.backend.dead[self.queue].messages]
        return [report["reason"] if report else "native" for report in reports]


def killing(world: World, times: int, *, after_effect: bool = False) -> None:
    """Kill the worker in the first `times` runs, before or after the effect."""
    left = [times]

    def behave(work: Work, ctx: JobContext) -> None:
        if left[0]:
            left[0] -= 1
            if after_effect:
                world.effects.append(work.name)
            raise Killed

    world.behave = behave


def fail(error: BaseException) -> None:
    raise error
