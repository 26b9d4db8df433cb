"""`make bench`: runs each measurement, or the one that is named, prints tables of minimum / median / maximum over the
rounds, and writes them to build/bench/<name>.json."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import batch, producers, start, worker
from benchmarks.table import Table

BENCHMARKS: Mapping[str, Callable[[], Sequence[Table]]] = {
    "producers": producers.measure,
    "batch": batch.measure,
    "worker-cpu": worker.measure,
    "worker-waiting": worker.measure_waiting,
    "handler-start": start.measure,
}
FOLDER = Path("build/bench")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; all without")
    names = parser.parse_args().names or list(BENCHMARKS)
    if unknown := set(names) - set(BENCHMARKS):
        parser.error(f"no such benchmark: {', '.join(unknown)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names:
        _report(name, BENCHMARKS[name]())
    return 0


def _report(name: str, tables: Sequence[Table]) -> None:
    python = f"{platform.python_implementation()} {platform.python_version()}"
    machine = f"{python}, {platform.machine()}, {os.cpu_count()} cores"
    record = {"name": name, "machine": machine, "measures": [table.record() for table in tables]}
    (FOLDER / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")
    print(f"== {name} ({machine}; minimum / median / maximum; ratios round by round)")
    for table in tables:
        print(f"{table.text()}\n")


if __name__ == "__main__":
    raise SystemExit(main())
