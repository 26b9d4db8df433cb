"""`loomjobs unblock` and `loomjobs brakes`: halted groups and circuits of an environment, seen and let go."""

from __future__ import annotations

import argparse
import os
import time
from datetime import UTC, datetime
from typing import Any

from loomjobs.cli.project import catalogue, environment
from loomjobs.cli.table import table
from loomjobs.core import names
from loomjobs.core.breaker import CLOSED, Breaker, Policy, admitted_share, breaker_id
from loomjobs.core.errors import LoomjobsError
from loomjobs.core.halt import halt_id, is_halted, lift_write
from loomjobs.core.uses import Service


def add(commands: Any) -> None:
    frees = commands.add_parser("unblock", help="let a FIFO group go on behind a dead letter that halted it")
    frees.add_argument("queue")
    frees.add_argument("group")
    frees.add_argument("--env", help=f"environment (default: {names.ENV})")
    frees.set_defaults(run=unblock)
    shows = commands.add_parser("brakes", help="state of the circuit breakers of an environment")
    shows.add_argument("--env", help=f"environment (default: {names.ENV})")
    shows.set_defaults(run=brakes)


def unblock(given: argparse.Namespace) -> int:
    """Exit code 1 where the group is not halted."""
    queues = {queue.name: queue for queue in catalogue().queues}
    if given.queue not in queues or not queues[given.queue].fifo:
        fifo = ", ".join(name for name, queue in queues.items() if queue.fifo) or "none"
        raise LoomjobsError(f"{given.queue!r} is not a FIFO queue; there are: {fifo}")
    store = _store(given.env)
    mark = store.read(halt_id(given.queue, given.group))
    if mark is None or not is_halted(mark, record="", now=int(time.time())):
        print(f"group {given.group} of {given.queue} is not halted")
        return 1
    store.write(lift_write(given.queue, given.group))
    print(f"group {given.group} of {given.queue} goes on; it was halted by {mark['by']}, which stays a dead letter")
    return 0


def brakes(given: argparse.Namespace) -> int:
    services = sorted(
        {use.name for job in catalogue().jobs for use in job.options.uses if isinstance(use, Service) and use.breaker}
    )
    store, now = _store(given.env), int(time.time() * 1000)
    rows = [_row(Breaker.of(name, store.read(breaker_id(name)), now=now), now) for name in services]
    print(table(("service", "state", "since", "admits"), rows) if rows else "no job uses a Service with breaker=True")
    return 0


def _row(breaker: Breaker, now: int) -> tuple[str, str, str, str]:
    opened = breaker.opened_at if breaker.state != CLOSED else None
    since = datetime.fromtimestamp(opened, UTC).isoformat(timespec="seconds") if opened else ""
    if breaker.state == CLOSED:
        admits = f"{admitted_share(breaker, now, Policy()):.0%}"
    else:
        rest = breaker.reopens_in(now, Policy())
        admits = f"a probe in {rest:.0f} s" if rest else "one probe at a time"
    return breaker.service, breaker.state, since, admits


def _store(env: str | None) -> Any:
    from loomjobs.runtime.status import reader  # binds AWS on first use

    if env is not None:
        chosen = environment(env)
        os.environ |= {names.ENV: chosen.name, names.APP: chosen.app}
        os.environ.pop(names.TABLE, None)
    return reader()
