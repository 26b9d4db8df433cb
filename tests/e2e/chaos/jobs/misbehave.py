"""What each payload orders, noted in a diary: one line at the start of a run, one for its effect."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass
from datetime import timedelta

from jobs.queues import batch, long, side
from loomjobs import JobContext, Retry, Setting, job

diary = Setting("diary")


@dataclass(frozen=True)
class Order:
    """`kills`: how many of its runs end in SIGKILL; `hold`: seconds that a run takes."""

    name: str
    kills: int = 0
    hold: float = 0.0
    stuck: bool = False


def note(ctx: JobContext, name: str, what: str) -> None:
    with open(ctx.address(diary), "a") as file:  # noqa: PTH123 one write of one line, appended as a whole
        file.write(json.dumps({"at": time.time(), "name": name, "what": what, "attempt": ctx.attempt}) + "\n")


def runs(ctx: JobContext, name: str) -> int:
    with open(ctx.address(diary)) as file:  # noqa: PTH123
        return sum(1 for line in file if json.loads(line)["name"] == name and json.loads(line)["what"] == "start")


def obey(order: Order, ctx: JobContext) -> None:
    note(ctx, order.name, "start")
    if runs(ctx, order.name) <= order.kills:
        if order.hold:
            time.sleep(order.hold)
        os.kill(os.getpid(), signal.SIGKILL)
    if order.stuck:
        time.sleep(order.hold)  # a blocking call that no timeout of a thread can end
    note(ctx, order.name, "effect")


RETRY = Retry(attempts=4, base=timedelta(seconds=1), cap=timedelta(seconds=1))


@job("chaos.batch", queue=batch, key="name", retry=RETRY, uses=[diary])
def one_by_one(order: Order, ctx: JobContext) -> None:
    obey(order, ctx)


@job("chaos.side", queue=side, key="name", retry=RETRY, uses=[diary])
def side_by_side(order: Order, ctx: JobContext) -> None:
    obey(order, ctx)


@job("chaos.long", queue=long, key="name", heartbeat=timedelta(seconds=60), retry=RETRY, uses=[diary])
def long_running(order: Order, ctx: JobContext) -> None:
    note(ctx, order.name, "start")
    first = ctx.resume(int) is None
    ctx.checkpoint(1)
    time.sleep(order.hold if first else 0)
    note(ctx, order.name, "effect")
