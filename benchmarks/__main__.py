"""`make bench`: runs each measurement, prints a table, and writes the figures to .build/bench/<name>.json."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import start, worker

BENCHMARKS: Mapping[str, Callable[[], Mapping[str, Sequence[float]]]] = {
    "worker-cpu": worker.measure,
    "worker-waiting": worker.measure_waiting,
    "handler-start": start.measure,
}
FOLDER = Path(".build/bench")


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, measure in BENCHMARKS.items():
        samples = measure()
        peer = next(iter(samples))
        figures = {variant: _figures(values, samples[peer]) for variant, values in samples.items()}
        machine = f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()}"
        record = {"name": name, "machine": machine, "peer": peer, "figures": figures}
        (FOLDER / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")
        print(f"{name}: {' '.join((measure.__doc__ or '').split())}\n{machine}; ratios are to {peer!r}, round by round")
        for variant, each in figures.items():
            print(f"  {variant:<52}{_triple(each['value'])}   x {_triple(each['ratio'])}")
        print()
    return 0


def _figures(values: Sequence[float], peer: Sequence[float]) -> dict[str, list[float]]:
    ratios = [value / other for value, other in zip(values, peer, strict=True)]
    return {"value": _spread(values), "ratio": _spread(ratios)}


def _spread(values: Sequence[float]) -> list[float]:
    return [round(each, 3) for each in (min(values), statistics.median(values), max(values))]


def _triple(figures: Sequence[float]) -> str:
    return " / ".join(f"{each:g}" for each in figures)


if __name__ == "__main__":
    raise SystemExit(main())
