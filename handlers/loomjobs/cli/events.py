"""`loomjobs events`: sample Lambda events, written from the code."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from loomjobs.cli.project import catalogue, root
from loomjobs.cli.samples import samples


def add(commands: Any) -> None:
    writes = commands.add_parser("events", help="write the sample events, or check that they are up to date")
    writes.add_argument("--check", action="store_true", help="write nothing; exit 1 when one is stale")
    writes.set_defaults(run=events)


def events(given: argparse.Namespace) -> int:
    folder = root() / "events"
    fresh = {
        folder / f"{name}.json": json.dumps(event, indent=2) + "\n" for name, event in samples(catalogue()).items()
    }
    stale = [path for path, text in fresh.items() if _read(path) != text]
    surplus = sorted(set(folder.glob("*.json")) - set(fresh))
    if given.check:
        for path in [*stale, *surplus]:
            print(f"{path.relative_to(root())} is stale; `loomjobs events` writes it anew", file=sys.stderr)
        return int(bool(stale or surplus))
    folder.mkdir(exist_ok=True)
    for path in stale:
        path.write_text(fresh[path], encoding="utf-8")
        print(f"wrote {path.relative_to(root())}")
    for path in surplus:
        path.unlink()
        print(f"removed {path.relative_to(root())}")
    return 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
