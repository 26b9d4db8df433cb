"""`loomjobs batch`: how far a batch of jobs is, and which of them have failed."""

from __future__ import annotations

import argparse
import os
from typing import Any

from loomjobs.cli.project import environment
from loomjobs.core import names

_SHOWN = 20


def add(commands: Any) -> None:
    command = commands.add_parser("batch", help="progress and failures of a batch of jobs")
    parts = command.add_subparsers(dest="part", required=True, metavar="PART")
    shows = parts.add_parser("show", help="one batch")
    shows.add_argument("key")
    shows.add_argument("--all", action="store_true", help=f"every failure, and not the first {_SHOWN}")
    shows.add_argument("--env", help=f"environment (default: {names.ENV})")
    shows.set_defaults(run=show)


def show(given: argparse.Namespace) -> int:
    """Exit code 1 where some have failed."""
    from loomjobs.runtime.fanout import batch_status  # binds AWS on first use

    if given.env is not None:
        chosen = environment(given.env)
        os.environ |= {names.ENV: chosen.name, names.APP: chosen.app}
        os.environ.pop(names.TABLE, None)
    found = batch_status(given.key)
    state = "completed" if found.completed else "closed" if found.total is not None else "open: more may come"
    print(f"{found.key}: {state}")
    for name, count in (("sent", found.sent), ("done", found.done), ("pending", found.pending)):
        print(f"  {name:<8}{count:>9,}")
    print(f"  {'failed':<8}{len(found.failures):>9,}")
    shown = found.failures if given.all else found.failures[:_SHOWN]
    for each in shown:
        print(f"    {each}")
    if len(shown) < len(found.failures):
        print(f"    and {len(found.failures) - len(shown):,} more: --all")
    return int(bool(found.failures))
