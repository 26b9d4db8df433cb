"""`loomjobs status` and `loomjobs rerun`: one job of an environment, by its payload or key."""

from __future__ import annotations

import argparse
from typing import Any

from loomjobs.cli.cancel import chosen, payload_of
from loomjobs.core import names
from loomjobs.core.errors import LoomjobsError

_STILL = {"duplicate": "it is queued or runs already"}


def add(commands: Any) -> None:
    shows = commands.add_parser("status", help="state, attempts, progress and last error of a job")
    shows.add_argument("--key", help="its key, or the id of its enqueue, in place of the payload")
    shows.set_defaults(run=show)
    again = commands.add_parser("rerun", help="run a job anew that has ended: its effect happens a second time")
    again.set_defaults(run=rerun)
    for each in (shows, again):
        each.add_argument("job")
        each.add_argument("payload", nargs="?", help="JSON, @file, or - for standard input")
        each.add_argument("--env", help=f"environment (default: {names.ENV})")


def show(given: argparse.Namespace) -> int:
    """Exit code 1 where nothing is known of it."""
    from loomjobs.runtime.status import status, status_of  # binds AWS on first use

    job = chosen(given)
    if (given.payload is None) == (given.key is None):
        raise LoomjobsError("which one? Give its payload, or --key KEY (for EACH_ENQUEUE jobs the id of the enqueue)")
    found = status_of(job, given.key) if given.key is not None else status(job, payload_of(given, job))
    print(f"{job.name} {found.key}: {found.state}")
    lines = {
        "attempts": found.attempts or None,
        "progress": found.progress and "{} of {}".format(*found.progress),
        "reason": found.why,
        "last error": found.error,
        "result": found.stored if found.state == "succeeded" else None,
    }
    for name, value in lines.items():
        if value:
            print(f"  {name:<11}{value}")
    return int(found.state == "unknown")


def rerun(given: argparse.Namespace) -> int:
    """Exit code 1 where it is queued or runs."""
    from loomjobs.runtime import sending  # binds AWS on first use

    job = chosen(given)
    if given.payload is None:
        raise LoomjobsError("which one? Give its payload: the record keeps only a hash of it")
    done = sending.rerun(job, payload_of(given, job))
    print(f"{job.name} {done.key}: {_STILL.get(done.outcome, 'it runs anew')}")
    return int(done.outcome == "duplicate")
