"""`loomjobs list` and `loomjobs show`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from loomjobs.cli.project import catalogue, find
from loomjobs.cli.table import seconds, table
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.grant import resolve_sends
from loomjobs.core.job import Job
from loomjobs.core.payload_type import field_names
from loomjobs.core.plan import function_timeout, visibility
from loomjobs.core.schedule import Schedule
from loomjobs.core.sensitive import marked_fields


def add(commands: Any) -> None:
    lists = commands.add_parser("list", help="the jobs and schedules")
    lists.add_argument("--json", action="store_true", help="as JSON")
    lists.set_defaults(run=list_jobs)
    shows = commands.add_parser("show", help="everything about one job")
    shows.add_argument("job")
    shows.set_defaults(run=show)


def list_jobs(given: argparse.Namespace) -> int:
    known = catalogue()
    if given.json:
        removed = [{"job": one.name, "queue": one.queue.name, "removed": one.why} for one in known.tombstones]
        print(json.dumps([*(_summary(job) for job in known.jobs), *removed], indent=2))
        return 0
    headings = ("JOB", "QUEUE", "KEY", "ATTEMPTS", "TIMEOUT", "WHAT IT DOES")
    print(table(headings, [tuple(_summary(job).values()) for job in known.jobs]))
    if known.schedules:
        print()
        rows = [(one.name, one.when.expression, *_next(one, 1), one.why) for one in known.schedules]
        print(table(("SCHEDULE", "WHEN (UTC)", "NEXT", "WHY"), rows))
    if known.tombstones:
        print()
        print(table(("REMOVED", "QUEUE", "WHY"), [(one.name, one.queue.name, one.why) for one in known.tombstones]))
    return 0


def show(given: argparse.Namespace) -> int:
    known = catalogue()
    job = find(given.job, known)
    for name, value in _facts(job, known):
        print(f"{name:<14}{value}")
    return 0


def _summary(job: Job[Any, Any]) -> dict[str, Any]:
    return {
        "job": job.name,
        "queue": job.queue.name,
        "key": _key(job),
        "attempts": job.options.retry.attempts,
        "timeout": seconds(job.timeout.total_seconds()),
        "summary": job.summary,
    }


def _facts(job: Job[Any, Any], known: Catalogue) -> Iterator[tuple[str, str]]:
    retry, queue = job.options.retry, job.queue
    yield "job", f"{job.name}   {job.source}"
    yield "", job.summary
    yield "payload", f"{job.payload_type.__name__}({', '.join(_fields(job))})"
    yield "key", _key(job)
    yield "queue", f"{queue.name} ({'FIFO' if queue.fifo else 'standard'}, {queue.workload.name.lower()})"
    if job.options.group:
        yield "group", f"{job.options.group}: in order within each value"
    if queue.admit is not None:
        yield "full", str(queue.admit)
    numbers = f"function {function_timeout(queue)} s, visibility {visibility(queue)} s"
    yield "timeout", f"{seconds(job.timeout.total_seconds())}; {numbers}"
    waits = [f"{retry.delay(failure, 1.0):g}" for failure in range(1, min(retry.attempts, 8))]
    more = " …" if retry.attempts > len(waits) + 1 else ""
    yield "attempts", f"{retry.attempts}; waits at most {', '.join(waits) or 'none'}{more} s"
    for kind in ("permanent", "transient"):
        classes = getattr(retry, kind)
        if classes:
            yield kind, ", ".join(each.__name__ for each in classes)
    for use in job.options.uses:
        yield "uses", f"{type(use).__name__.lower()} {use.name} {', '.join(getattr(use, 'verbs', ()))}"
    for target in resolve_sends(job, known):
        yield "sends", target.name
    for sender in known.jobs:
        if job in resolve_sends(sender, known):
            yield "sent by", sender.name
    for schedule in known.schedules:
        if schedule.job is job:
            only = f", only in {', '.join(schedule.only)}" if schedule.only else ""
            yield "schedule", f"{schedule.when.expression} UTC{only}: {schedule.why}"
            yield "next", ", ".join(_next(schedule, 3))
    if job.options.expires is not None:
        yield "expires", f"{seconds(job.options.expires.total_seconds())} after its enqueue"
    if job.options.upcasters:
        yield "version", f"{job.options.version}, and takes payloads from version {min(job.options.upcasters)}"
    if job.options.aliases:
        yield "formerly", ", ".join(job.options.aliases)


def _fields(job: Job[Any, Any]) -> list[str]:
    hints = getattr(job.payload_type, "__annotations__", {})
    marked = marked_fields(job.payload_type)
    fields = ((name, _type(hints.get(name, "?"))) for name in field_names(job.payload_type))
    return [f"{name}: {shown}{' (sensitive)' if name in marked else ''}" for name, shown in fields]


def _type(hint: object) -> str:
    return hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint))


def _key(job: Job[Any, Any]) -> str:
    key = job.options.key
    if isinstance(key, (str, tuple)):
        return key if isinstance(key, str) else ", ".join(key)
    return "each enqueue" if not callable(key) else f"{getattr(key, '__name__', 'function')}(payload)"


def _next(schedule: Schedule, count: int) -> list[str]:
    def fires() -> Iterator[str]:
        at = schedule.when.next(datetime.now(UTC))
        while at is not None:
            yield f"{at:%Y-%m-%d %H:%M}"
            at = schedule.when.next(at)

    return list(islice(fires(), count)) or ["never again"]
