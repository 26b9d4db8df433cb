"""`loomjobs`: what is declared, what becomes of it, and whether it is right.

Exit codes: 0 fine, 1 problems found or a job that failed, 2 a wrong call.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import metadata

from loomjobs.cli import (
    batch,
    cancel,
    checking,
    events,
    handle,
    listing,
    new,
    operate,
    planning,
    relaying,
    scheduled,
    schema,
    start,
    trying,
)
from loomjobs.cli.project import NoProject
from loomjobs.core.errors import LoomjobsError

COMMANDS = (
    listing,
    planning,
    checking,
    new,
    trying,
    handle,
    batch,
    cancel,
    operate,
    scheduled,
    relaying,
    events,
    schema,
    start,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; errors of ours are one message on stderr, with `--debug` the whole stack."""
    given = parser().parse_args(arguments)
    try:
        return int(given.run(given))
    except (LoomjobsError, NoProject) as error:
        if given.debug:
            raise
        print(f"loomjobs: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()  # `loomjobs list | head` is no error
        return 0


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog="loomjobs", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    root.add_argument("--version", action="version", version=f"loomjobs {metadata.version('loomjobs')}")
    root.add_argument("--debug", action="store_true", help="show the stack of an error")
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in COMMANDS:
        module.add(commands)
    return root


if __name__ == "__main__":
    sys.exit(main())
