"""`loomjobs plan`: every derived number, grant and variable of an environment."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import msgspec

from loomjobs.cli.project import catalogue, environment
from loomjobs.cli.table import seconds, table
from loomjobs.core import defaults, limits
from loomjobs.core.plan import Parameter, Plan, Worker, make_plan


def add(commands: Any) -> None:
    plans = commands.add_parser("plan", help="what is derived from the declarations, for one environment")
    plans.add_argument("--env", default="local", help="environment (default: local)")
    plans.add_argument("--json", action="store_true", help="as JSON, for tools")
    plans.set_defaults(run=plan)


def plan(given: argparse.Namespace) -> int:
    made = make_plan(catalogue(), environment(given.env))
    if given.json:
        print(msgspec.json.format(msgspec.json.encode(made), indent=2).decode())
        return 0
    print(f"{made.app} in {made.environment}; records are kept for {seconds(made.record_ttl)}\n")
    for worker in made.workers:
        print("\n".join(_worker(worker)), end="\n\n")
    if made.relay is not None:
        print(f"relay of committed calls   stack {made.relay.stack}, to {', '.join(_targets(made))}\n")
    if made.services:
        print("\n".join(_services(made)), end="\n\n")
    if made.schedules:
        print("\n".join(_schedules(made)))
    return 0


def _worker(worker: Worker) -> Iterator[str]:
    kind = "FIFO" if worker.fifo else "standard"
    window = f" + window {worker.batch_window}" if worker.batch_window else ""
    yield f"queue {worker.queue} ({kind}, {worker.workload})   stack {worker.stack}"
    yield f"  jobs         {', '.join(worker.jobs)}"
    yield f"  function     {worker.function_timeout} s, {worker.memory_mb} MB; batches of {worker.batch_size}"
    yield (
        f"  visibility   {worker.visibility} s = {limits.VISIBILITY_PER_TIMEOUT} x {worker.function_timeout}{window}"
    )
    yield (
        f"  receives     {worker.max_receive_count} before SQS itself dead-letters = "
        f"({seconds(worker.retention)} - {seconds(defaults.RECEIVE_MARGIN)}) / {worker.visibility} s, at most 1,000"
    )
    yield f"  at a time    {worker.max_concurrency} workers, so {worker.downstream_concurrency} jobs downstream"
    yield f"  retention    {seconds(worker.retention)}, dead letters {seconds(worker.dlq_retention)}"
    if worker.admit is not None:
        yield f"  full         {worker.admit}"
    yield f"  alarms       oldest message from {worker.age_alarm} s, dead letters from 1"
    rows = [(f"  {one.kind}", one.target, one.verb, "for " + ", ".join(one.because)) for one in worker.grants]
    if rows:
        yield table(("  GRANT", "ON", "TO", "WHY"), rows)
    variables = [(f"  {key}", _value(value)) for key, value in sorted(worker.environment.items())]
    yield table(("  VARIABLE", "VALUE"), variables)


def _targets(made: Plan) -> list[str]:
    assert made.relay is not None
    return sorted({grant.target for grant in made.relay.grants if grant.kind == "send"})


def _services(made: Plan) -> Iterator[str]:
    rows = [
        (
            one.name,
            one.concurrency,
            _rate(one.rate),
            _rate(one.capacity),
            "yes" if one.breaker else "no",
            ", ".join(one.jobs),
        )
        for one in made.services
    ]
    yield table(("SERVICE", "CALLS AT A TIME", "RATE", "CAPACITY", "BREAKER", "JOBS"), rows)


def _rate(pair: tuple[int, float] | None) -> str:
    return "" if pair is None else f"{pair[0]} per {seconds(pair[1])}"


def _schedules(made: Plan) -> Iterator[str]:
    rows = [
        (one.name, one.expression, "on" if one.enabled else "off", seconds(one.retry_age), one.why)
        for one in made.schedules
    ]
    yield table(("SCHEDULE", "WHEN (UTC)", "HERE", "LATE BY UP TO", "WHY"), rows)


def _value(value: str | Parameter) -> str:
    return f"parameter {value.path}" if isinstance(value, Parameter) else value
