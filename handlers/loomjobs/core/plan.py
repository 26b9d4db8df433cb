"""The Plan: every derived number, name and grant of one environment, computed once and rendered by everybody else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from typing import Any, TypeAlias

from loomjobs.core import defaults, limits, names
from loomjobs.core.admit import Admit
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.environment import Environment
from loomjobs.core.grant import Grant, resolve_sends, scheduler_grants, send_grants, worker_grants
from loomjobs.core.job import Job
from loomjobs.core.queue import Queue, Workload
from loomjobs.core.schedule import Schedule
from loomjobs.core.uses import Rate, Service, Setting


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value that another stack made, by its path in SSM Parameter Store; read when the stack is deployed."""

    path: str


Value: TypeAlias = str | Parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One queue with its dead-letter queue, worker function and alarms. Durations are seconds."""

    queue: str
    fifo: bool
    workload: str
    stack: str
    handler: str
    jobs: tuple[str, ...]
    modules: tuple[str, ...]
    memory_mb: int
    network: str | None
    batch_size: int
    batch_window: int
    max_concurrency: int
    downstream_concurrency: int
    function_timeout: int
    visibility: int
    max_receive_count: int
    retention: int
    dlq_retention: int
    age_alarm: int
    admit: Admit | None = None
    environment: Mapping[str, Value]
    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSchedule:
    """`retry_age` bounds EventBridge Scheduler's delivery retries: a tick older than its period is not wanted."""

    name: str
    job: str
    expression: str
    enabled: bool
    retry_age: int
    start: str | None
    end: str | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRelay:
    """The outbox table and the function that sends its rows. `grants` are all to send; durations are seconds.

    `retries` of a stream batch are few: an outage must not hold up the rows behind it, and the sweep sends them later.
    """

    stack: str
    handler: str
    memory_mb: int
    function_timeout: int
    batch_size: int
    retries: int
    sweep: str
    lag_alarm: int
    environment: Mapping[str, Value]
    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedService:
    """A downstream. `concurrency` is the most calls at a time that its jobs can make, each one run a call; `rate` and
    `capacity` are runs and seconds."""

    name: str
    jobs: tuple[str, ...]
    concurrency: int
    rate: tuple[int, float] | None
    capacity: tuple[int, float] | None
    breaker: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`workers` are in order of their queues' names; the last is the scheduler's where there are schedules. `relay` is
    None where no job declares `sends=`. `record_ttl` and `payload_life`, how long a payload beside its message is kept,
    are seconds."""

    app: str
    environment: str
    record_ttl: int
    payload_life: int
    workers: tuple[Worker, ...]
    schedules: tuple[PlannedSchedule, ...]
    services: tuple[PlannedService, ...] = ()
    relay: PlannedRelay | None = None

    @property
    def has_key(self) -> bool:
        """Some job has encrypted fields."""
        return any(grant.kind == "key" for worker in self.workers for grant in worker.grants)

    def worker(self, queue: str) -> Worker:
        return next(worker for worker in self.workers if worker.queue == queue)


TICKS = Queue(
    names.TICKS,
    workload=Workload.NEAR_REAL_TIME,
    max_workers=2,
    batch_size=1,
    job_timeout=timedelta(seconds=30),
    memory_mb=defaults.MEMORY_MB,
)
"""The scheduler's own queue."""


def make_plan(catalogue: Catalogue, environment: Environment) -> Plan:
    """Derive everything. Total for any catalogue that `check` passes; it does not check itself."""
    workers = [_worker(queue, catalogue, environment) for queue in catalogue.queues]
    if catalogue.schedules:
        workers.append(_scheduler(catalogue, environment))
    return Plan(
        app=environment.app,
        environment=environment.name,
        record_ttl=defaults.RECORD_TTL,
        payload_life=defaults.PAYLOAD_LIFE,
        workers=tuple(workers),
        schedules=tuple(_schedule(schedule, environment) for schedule in catalogue.schedules),
        services=tuple(_services(catalogue, environment)),
        relay=_relay(catalogue, environment),
    )


def function_timeout(queue: Queue) -> int:
    """Seconds for a full batch of the longest jobs, one more for a suspect that runs alone, and the reserve."""
    longest = int(queue.job_timeout.total_seconds())
    rounds = ceil(queue.batch_size / queue.parallel)
    suspect = longest if queue.batch_size > 1 else 0
    return rounds * longest + suspect + defaults.RESERVE


def visibility(queue: Queue) -> int:
    """Six function timeouts and the batch window, as AWS advises."""
    window = int(queue.batch_window.total_seconds())
    return limits.VISIBILITY_PER_TIMEOUT * function_timeout(queue) + window


def receive_limit(queue: Queue) -> int:
    """maxReceiveCount: as many receives as the retention holds, so that it only catches what our code never saw."""
    fitting = (defaults.SOURCE_RETENTION - defaults.RECEIVE_MARGIN) // visibility(queue)
    return min(limits.SQS_RECEIVE_COUNT[1], fitting)


def _relay(catalogue: Catalogue, environment: Environment) -> PlannedRelay | None:
    """It may send to every queue that some job sends to, since any of those calls can be committed; to all of them
    where producers outside use it."""
    sends = [(target.queue.name, job.name) for job in catalogue.jobs for target in resolve_sends(job, catalogue)]
    if environment.outbox:
        sends += [(queue.name, "producers outside") for queue in catalogue.queues]
    if not sends:
        return None
    grants = send_grants(sends)
    variables: dict[str, Value] = {
        names.APP: environment.app,
        names.ENV: environment.name,
        names.OUTBOX: _parameter(environment, "outbox", "table", "name"),
        **_later(environment),
        "POWERTOOLS_SERVICE_NAME": environment.app,
        names.METRICS_NAMESPACE: names.metrics_namespace(environment.app, environment.name),
        "POWERTOOLS_LOG_LEVEL": environment.log_level,
    }
    for grant in grants:
        variables[names.queue_url_key(grant.target)] = _parameter(environment, "queues", grant.target, "url")
    return PlannedRelay(
        stack=names.stack(environment, "outbox"),
        handler="relay.handler",
        memory_mb=defaults.MEMORY_MB,
        function_timeout=defaults.RELAY_TIMEOUT,
        batch_size=defaults.RELAY_BATCH,
        retries=defaults.RELAY_RETRIES,
        sweep="rate(1 minute)",
        lag_alarm=defaults.OUTBOX_LAG,
        environment=variables,
        grants=tuple(grants),
    )


def _worker(queue: Queue, catalogue: Catalogue, environment: Environment) -> Worker:
    jobs = catalogue.on(queue.name)
    graves = [grave.module for grave in catalogue.tombstones if grave.queue.name == queue.name]
    grants = worker_grants(queue, jobs, catalogue)
    return _render(queue, jobs, grants, environment, handler="worker.handler", graves=graves)


def _scheduler(catalogue: Catalogue, environment: Environment) -> Worker:
    scheduled = tuple(dict.fromkeys(schedule.job for schedule in catalogue.schedules))
    return _render(TICKS, scheduled, scheduler_grants(catalogue), environment, handler="scheduler.handler")


def _render(
    queue: Queue,
    jobs: tuple[Job[Any, Any], ...],
    grants: list[Grant],
    environment: Environment,
    *,
    handler: str,
    graves: Iterable[str] = (),
) -> Worker:
    modules = tuple(sorted({job.function.__module__ for job in jobs} | set(graves)))
    return Worker(
        queue=queue.name,
        fifo=queue.fifo,
        workload=queue.workload.name.lower().replace("_", "-"),
        stack=names.stack(environment, "scheduler" if queue is TICKS else f"worker-{queue.name}"),
        handler=handler,
        jobs=tuple(job.name for job in jobs) if queue is not TICKS else (names.TICK_JOB,),
        modules=modules,
        memory_mb=queue.memory_mb,
        network=queue.network,
        batch_size=queue.batch_size,
        batch_window=int(queue.batch_window.total_seconds()),
        max_concurrency=queue.max_workers,
        downstream_concurrency=queue.max_workers * queue.parallel,
        function_timeout=function_timeout(queue),
        visibility=visibility(queue),
        max_receive_count=receive_limit(queue),
        retention=defaults.SOURCE_RETENTION,
        dlq_retention=defaults.DLQ_RETENTION,
        age_alarm=queue.workload.value,
        admit=queue.admit,
        environment=_variables(queue, modules, grants, jobs, environment),
        grants=tuple(grants),
    )


def _variables(
    queue: Queue,
    modules: Iterable[str],
    grants: Sequence[Grant],
    jobs: Iterable[Job[Any, Any]],
    environment: Environment,
) -> dict[str, Value]:
    jobs = tuple(jobs)

    def parameter(*path: str) -> Parameter:
        return _parameter(environment, *path)

    variables: dict[str, Value] = {
        names.APP: environment.app,
        names.ENV: environment.name,
        names.QUEUE: queue.name,
        names.MODULES: ",".join(modules),
        names.TABLE: parameter("foundation", "executions", "name"),
        names.SOURCE_URL: parameter("queues", queue.name, "url"),
        names.SOURCE_ARN: parameter("queues", queue.name, "arn"),
        names.DLQ_URL: parameter("queues", queue.name, "dlq", "url"),
        names.RECEIVES: str(receive_limit(queue)),
        names.RECORD_TTL: str(defaults.RECORD_TTL),
        names.PACE: f"{environment.pace:g}",
        "POWERTOOLS_SERVICE_NAME": environment.app,
        names.METRICS_NAMESPACE: names.metrics_namespace(environment.app, environment.name),
        "POWERTOOLS_LOG_LEVEL": environment.log_level,
    }
    valve = has_valve(jobs, environment)
    if valve:
        variables[names.MAPPING] = names.parameter(environment.app, environment.name, "workers", queue.name, "mapping")
    if valve:
        variables[names.LATER_GROUP] = parameter("queues", "later", "group")
    sends = any(grant.kind == "send" for grant in grants) and queue is not TICKS
    if sends or not queue.fifo:
        variables |= _later(environment)
    if sends:
        variables[names.OUTBOX] = parameter("outbox", "table", "name")
    if any(grant.kind == "payload" for grant in grants):
        variables[names.PAYLOADS] = parameter("foundation", "payloads", "name")
    for grant in grants:
        if grant.kind == "send":
            variables[names.queue_url_key(grant.target)] = parameter("queues", grant.target, "url")
        elif grant.kind == "secret":
            variables[names.secret_key(grant.target)] = parameter("resources", grant.target, "address")
        elif grant.kind == "key":
            variables[names.KEY] = parameter("foundation", "key", "arn")
        elif grant.kind == "resource":
            variables[names.address_key(grant.target)] = parameter("resources", grant.target, "address")
    used = {use.name for job in jobs for use in job.options.uses if isinstance(use, Service)}
    rates = {name: [rate.count, rate.per.total_seconds()] for name, rate in environment.rates.items() if name in used}
    if rates:
        variables[names.RATES] = json.dumps(rates, sort_keys=True)
    for setting in sorted({use.name for job in jobs for use in job.options.uses if isinstance(use, Setting)}):
        if queue is not TICKS:
            variables[names.setting_key(setting)] = environment.settings.get(setting, "")
    return variables


def _later(environment: Environment) -> dict[str, Value]:
    paths = names.later_parameters(environment.app, environment.name)
    return {key: Parameter(path) for key, path in paths.items()}


def _parameter(environment: Environment, *path: str) -> Parameter:
    return Parameter(names.parameter(environment.app, environment.name, *path))


def has_valve(jobs: Iterable[Job[Any, Any]], environment: Environment) -> bool:
    """Whether a queue with these jobs can be switched off while a circuit is open. The embedded AWS has no schedules
    that call AWS's own APIs, so it goes without."""
    uses = [use for job in jobs for use in job.options.uses]
    return not environment.local and any(isinstance(use, Service) and use.breaker for use in uses)


def _schedule(schedule: Schedule, environment: Environment) -> PlannedSchedule:
    lowest, highest = limits.SCHEDULE_RETRY_AGE_SECONDS
    period = int(schedule.when.period().total_seconds())
    return PlannedSchedule(
        name=schedule.name,
        job=schedule.job.name,
        expression=schedule.when.expression,
        enabled=schedule.enabled(environment.name),
        retry_age=max(lowest, min(period, highest)),
        start=schedule.start.isoformat() if schedule.start else None,
        end=schedule.end.isoformat() if schedule.end else None,
        why=schedule.why,
    )


def _services(catalogue: Catalogue, environment: Environment) -> Iterator[PlannedService]:
    uses = {use.name: use for job in catalogue.jobs for use in job.options.uses if isinstance(use, Service)}
    for name, service in sorted(uses.items()):
        jobs = [job for job in catalogue.jobs if any(use == service for use in job.options.uses)]
        queues = {job.queue.name: job.queue for job in jobs}
        yield PlannedService(
            name=name,
            jobs=tuple(job.name for job in jobs),
            concurrency=sum(queue.max_workers * queue.parallel for queue in queues.values()),
            rate=_pair(environment.rates.get(name, service.rate)),
            capacity=_pair(service.capacity),
            breaker=service.breaker,
        )


def _pair(rate: Rate | None) -> tuple[int, float] | None:
    return None if rate is None else (rate.count, rate.per.total_seconds())
