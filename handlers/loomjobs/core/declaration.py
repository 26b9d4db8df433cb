"""What can be wrong with one job, judged without knowing the others."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from loomjobs.core import defaults
from loomjobs.core.errors import DeclarationError
from loomjobs.core.evolve import upcaster_problems
from loomjobs.core.job import Job
from loomjobs.core.job_name import check_job_name
from loomjobs.core.key import check_key
from loomjobs.core.payload_type import check_type, field_names
from loomjobs.core.privacy import sensitive_problems
from loomjobs.core.problem import Problem, nearest
from loomjobs.core.uses import Rate, Resource, Use


def problems(job: Job[Any, Any]) -> list[Problem]:
    """Every finding about this declaration; what depends on type hints waits until they resolve."""
    return [*_of_name(job), *_of_function(job), *_of_options(job), *_of_payload(job, later=True)]


def payload_problems(job: Job[Any, Any]) -> list[Problem]:
    """The part that needs resolved hints; unresolved ones are a finding here, since every module is loaded by now."""
    return list(_of_payload(job, later=False))


def _of_name(job: Job[Any, Any]) -> Iterator[Problem]:
    for name in (job.name, *job.options.aliases):
        advice = check_job_name(name)
        if advice:
            yield Problem(job.where, f"{name!r} is not a job name", advice)
    if job.name in job.options.aliases:
        yield Problem(job.where, "its own name stands in aliases=", "List former names only.")


def _of_function(job: Job[Any, Any]) -> Iterator[Problem]:
    parameters = list(inspect.signature(job.function).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    if len(positional) < 2 or len(required) > 2 or any(p.kind is p.KEYWORD_ONLY for p in required):
        what = f"its function takes ({', '.join(p.name for p in parameters)})"
        yield Problem(job.where, what, "A job takes two arguments: def name(payload: Payload, ctx: JobContext).")
    elif positional[0].annotation is inspect.Parameter.empty:
        what = f"its parameter {positional[0].name!r} has no type"
        yield Problem(job.where, what, "Annotate it with a dataclass: that is the payload's contract.")
    if inspect.isgeneratorfunction(job.function) or inspect.isasyncgenfunction(job.function):
        yield Problem(job.where, "its function yields, so a call would run nothing", "Return instead of yield.")


def _of_options(job: Job[Any, Any]) -> Iterator[Problem]:
    options, where = job.options, job.where
    if options.queue.fifo and options.group is None:
        cure = 'Name the payload field within whose values order matters, such as group="customer_id".'
        yield Problem(where, f"queue {job.queue.name} is FIFO and group= is missing", cure)
    if options.group is not None and not options.queue.fifo:
        cure = "Leave group= out, or put the job on a queue with fifo=True."
        yield Problem(where, f"group= has no effect on standard queue {job.queue.name}", cure)
    if not timedelta(0) < job.timeout <= job.queue.job_timeout or job.timeout.microseconds:
        cure = f"Use whole seconds up to {job.queue.job_timeout}, or raise job_timeout= of queue {job.queue.name}."
        yield Problem(where, f"timeout={job.timeout} does not fit its queue", cure)
    if options.on_dead not in ("halt", "skip"):
        yield Problem(where, f"on_dead={options.on_dead!r}", 'Use "halt" or "skip".')
    elif options.on_dead == "halt" and not options.queue.fifo:
        cure = "Leave on_dead= out, or put the job on a queue with fifo=True."
        yield Problem(where, f'on_dead="halt" has no effect on standard queue {job.queue.name}', cure)
    if options.heartbeat is not None:
        yield from _of_heartbeat(job, options.heartbeat)
    if options.version < 1:
        yield Problem(where, f"version={options.version}", "Count from 1.")
    yield from upcaster_problems(options.upcasters, options.version, where)
    if options.expires is not None and not _is_positive(options.expires):
        cure = "Give a timedelta above 0, counted from the enqueue, such as timedelta(hours=6)."
        yield Problem(where, f"expires={options.expires!r} is not a time to live", cure)
    for use in options.uses:
        if isinstance(use, Resource):
            cure = f'Say how: Resource("{use.name}").to("read").'
            yield Problem(where, f"uses= holds the bare resource {use.name}", cure)
        elif not isinstance(use, Use):
            yield Problem(where, f"uses= holds {use!r}", "Use Resource(...).to(...), Secret, Setting or Service.")
    for target in options.sends:
        if not isinstance(target, (Job, str)):
            yield Problem(
                where, f"sends= holds {target!r}", "List jobs, or their names where imports would be a cycle."
            )


def _is_positive(value: object) -> bool:
    return isinstance(value, timedelta) and timedelta(0) < value <= timedelta(days=3650)


def _of_heartbeat(job: Job[Any, Any], heartbeat: timedelta) -> Iterator[Problem]:
    if not defaults.HEARTBEAT_LEAST <= heartbeat < job.timeout or heartbeat.microseconds:
        cure = f"Use whole seconds from {defaults.HEARTBEAT_LEAST.seconds}, less than its timeout of {job.timeout}."
        yield Problem(job.where, f"heartbeat={heartbeat} does not fit", cure)
    if job.queue.parallel > 1 and job.queue.batch_size > 1:
        what = f"heartbeat= with jobs side by side on queue {job.queue.name}"
        yield Problem(job.where, what, "Give the queue batch_size=1, or leave its parallel= out.")


def _of_payload(job: Job[Any, Any], *, later: bool) -> Iterator[Problem]:
    try:
        payload_type = job.payload_type
    except DeclarationError as error:
        if not later:
            yield from error.problems
        return
    except (KeyError, StopIteration):
        return  # no annotated payload: a finding of _of_function
    unfit = check_type(payload_type)
    yield from (Problem(job.where, what, "") for what in unfit)
    yield from (Problem(job.where, what, "") for what in check_key(job.options.key, payload_type))
    yield from _of_group(job, payload_type)
    yield from _of_brakes(job, payload_type)
    if not unfit:  # else its marks may not be readable
        yield from sensitive_problems(job)


def _of_group(job: Job[Any, Any], payload_type: Any) -> Iterator[Problem]:
    group, names = job.options.group, field_names(payload_type)
    if group is not None and group not in names:
        cure = f"{nearest(group, names)}Its fields are {', '.join(names)}."
        yield Problem(job.where, f"group={group!r} is not a field of {payload_type.__name__}", cure)


def _of_brakes(job: Job[Any, Any], payload_type: Any) -> Iterator[Problem]:
    rate, exclusive = job.options.rate, job.options.exclusive
    if rate is not None and not isinstance(rate, Rate):
        yield Problem(job.where, f"rate={rate!r} is not a Rate", "Use Rate(90, per=timedelta(minutes=1)).")
    elif rate is not None and rate.key is not None:
        yield from _of_fields("the key of rate=", rate.key, job, payload_type)
    if exclusive is not None:
        yield from _of_fields("exclusive=", exclusive, job, payload_type)


def _of_fields(option: str, fields: object, job: Job[Any, Any], payload_type: Any) -> Iterator[Problem]:
    """Fields whose values tell limiters or locks apart must be spelled like parts of a key."""
    given = (fields,) if isinstance(fields, str) else fields
    if not isinstance(given, tuple) or not given or not all(isinstance(name, str) for name in given):
        yield Problem(job.where, f"{option} {fields!r} names no payload field", "Give a field, or a tuple of fields.")
        return
    known = field_names(payload_type)
    for name in given:
        if name not in known:
            cure = f"{nearest(name, known)}Its fields are {', '.join(known)}." if known else "Use a dataclass."
            yield Problem(job.where, f"{option} {name!r} is not a field of {payload_type.__name__}", cure)
        elif check_key(name, payload_type):
            what = f"{option} {name!r} is of a type with more than one spelling, or may be missing"
            yield Problem(job.where, what, "Use a field of str, int, bool, date, UUID or Enum.")
