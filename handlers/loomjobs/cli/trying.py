"""`loomjobs try`: one job, in memory, at once."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from loomjobs.cli.project import catalogue, find
from loomjobs.core.decision import Acknowledge, DeadLetter, DeferFor, RetryIn
from loomjobs.core.errors import LoomjobsError
from loomjobs.core.payload import decode, parse
from loomjobs.local.jobs import Jobs, memory
from loomjobs.runtime.ports import Run


def add(commands: Any) -> None:
    tries = commands.add_parser("try", help="run a job in memory and show what is decided")
    tries.add_argument("job")
    tries.add_argument("payload", help="JSON, @file, or - for standard input")
    tries.add_argument("--drain", action="store_true", help="also run retries and what it enqueues")
    tries.add_argument("--provide", action="append", default=[], metavar="NAME=VALUE", help="an address or setting")
    tries.set_defaults(run=attempt)


def attempt(given: argparse.Namespace) -> int:
    known = catalogue()
    job = find(given.job, known)
    payload: Any = decode(parse(_text(given.payload)), job.payload_type)
    with memory(known) as jobs:
        for pair in given.provide:
            name, equals, value = pair.partition("=")
            if not equals:
                raise LoomjobsError(f"--provide {pair!r} is not NAME=VALUE")
            jobs.backend.addresses.values[name] = value
        return _run(jobs, job, payload, drain=given.drain)


def _run(jobs: Jobs, job: Any, payload: Any, *, drain: bool) -> int:
    from loomjobs.runtime.sending import enqueue

    enqueue(job, payload)
    sent = len(jobs.backend.journal.sent)
    if drain:
        jobs.drain()
    else:
        jobs.backend.deliver(job.queue.name)
    for run in jobs.backend.runs():
        print(_line(run))
    for message in jobs.backend.journal.sent[sent:]:
        print(f"enqueued  {message.call.job.name} {message.key}")
    return int(isinstance(jobs.backend.journal.runs[-1].decision, (DeadLetter, RetryIn)))


def _line(run: Run) -> str:
    head = f"{run.job or '?'} {run.key or ''} attempt {run.attempt}: "
    took = f" in {run.duration * 1000:.0f} ms" if run.duration else ""
    match run.decision:
        case Acknowledge(why, since):
            earlier = f" of a run that finished at {since}" if since else ""
            return head + why + earlier + took + (f" ({run.detail})" if run.detail else "")
        case RetryIn(delay, failure, _):
            return head + f"retry in {delay:.0f} s ({run.detail}): {failure.kind}: {failure.message}"
        case DeferFor(delay, why):
            return head + f"deferred for {delay:.0f} s: {why}"
        case DeadLetter(reason, failure, _):
            return head + f"dead letter, {reason}" + (f": {failure.kind}: {failure.message}" if failure else "")
        case other:
            return head + str(other)


def _text(argument: str) -> str:
    if argument == "-":
        return sys.stdin.read()
    if argument.startswith("@"):
        try:
            return Path(argument[1:]).read_text(encoding="utf-8")
        except OSError as error:
            raise LoomjobsError(f"the payload's file cannot be read: {error}") from None
    return argument
