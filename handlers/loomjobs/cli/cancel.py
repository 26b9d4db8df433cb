"""`loomjobs cancel`: one job of an environment, by its payload or key."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from loomjobs.cli.project import catalogue, environment, find
from loomjobs.core import names
from loomjobs.core.errors import LoomjobsError
from loomjobs.core.job import Job
from loomjobs.core.payload import decode, parse

_SAYS = {
    "cancelled": "it will not run",
    "requested": "it is running and was told; it may still complete, and is not tried again",
    "too-late": "it has ended",
}


def add(commands: Any) -> None:
    cancels = commands.add_parser("cancel", help="cancel a job of an environment, also before it has arrived there")
    cancels.add_argument("job")
    cancels.add_argument("payload", nargs="?", help="JSON, @file, or - for standard input")
    cancels.add_argument("--key", help="its key, or the id of its enqueue, in place of the payload")
    cancels.add_argument("--env", help=f"environment (default: {names.ENV})")
    cancels.set_defaults(run=cancel)


def cancel(given: argparse.Namespace) -> int:
    """Exit code 1 where it was too late."""
    from loomjobs.runtime import cancelling  # binds AWS on first use

    job = chosen(given)
    if (given.payload is None) == (given.key is None):
        raise LoomjobsError("which one? Give its payload, or --key KEY (for EACH_ENQUEUE jobs the id of the enqueue)")
    if given.key is not None:
        done = cancelling.cancel(job, key=given.key)
    else:
        done = cancelling.cancel(job, payload_of(given, job))
    print(f"{done.job.name} {done.key}: {done.outcome}, {_SAYS[done.outcome]} (state: {done.state})")
    return int(done.outcome == "too-late")


def chosen(given: argparse.Namespace) -> Job[Any, Any]:
    """The job that was named, with this process set to the environment that was."""
    if given.env is not None:
        env = environment(given.env)
        os.environ |= {names.ENV: env.name, names.APP: env.app}
        os.environ.pop(names.TABLE, None)  # what was asked for wins over what the shell happens to have
    return find(given.job, catalogue())


def payload_of(given: argparse.Namespace, job: Job[Any, Any]) -> Any:
    """Raises BadPayload."""
    return decode(parse(_text(given.payload)), job.payload_type, strict=job.options.strict)


def _text(argument: str) -> str:
    if argument == "-":
        return sys.stdin.read()
    if argument.startswith("@"):
        try:
            return Path(argument[1:]).read_text(encoding="utf-8")
        except OSError as error:
            raise LoomjobsError(f"the payload's file cannot be read: {error}") from None
    return argument
