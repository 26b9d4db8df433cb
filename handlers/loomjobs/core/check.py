"""Relations between declarations, and between them and an environment. All findings at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from loomjobs.core import defaults, limits, names
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.declaration import payload_problems
from loomjobs.core.environment import Environment
from loomjobs.core.errors import DeclarationError, LoomjobsError
from loomjobs.core.grant import resolve_sends
from loomjobs.core.job import Job
from loomjobs.core.key import EACH_ENQUEUE, derive
from loomjobs.core.payload import encode
from loomjobs.core.plan import Worker, function_timeout, make_plan, receive_limit
from loomjobs.core.problem import Problem, nearest
from loomjobs.core.queue import Queue
from loomjobs.core.retry import Retry
from loomjobs.core.schedule import Tick
from loomjobs.core.uses import Access, Secret, Service, Setting

_CHECK_FROM = datetime(2026, 1, 1, tzinfo=UTC)
"""Schedules are tried on the first tick after this instant: any will do, and the same one gives the same findings."""


def check(
    catalogue: Catalogue,
    environments: Collection[Environment] = (),
    *,
    provided: Collection[str] | None = None,
) -> list[Problem]:
    """Everything wrong with the catalogue, and with it in each environment. `provided` are the names of
    infra/resources.py; None leaves that side out."""
    found = [*catalogue.problems, *_of_jobs(catalogue), *_of_queues(catalogue), *_of_services(catalogue)]
    known = {environment.name for environment in environments}
    found += _of_schedules(catalogue, known)
    if provided is not None:
        found += _of_provisions(catalogue, provided)
    if not any(problem.severity == "error" for problem in found):
        for environment in environments:
            found += _of_environment(catalogue, environment)
    return found


def _of_jobs(catalogue: Catalogue) -> Iterator[Problem]:
    owners: dict[str, list[Job[Any, Any]]] = defaultdict(list)
    known = [name for job in catalogue.jobs for name in (job.name, *job.options.aliases)]
    for job in catalogue.jobs:
        yield from payload_problems(job)
        for name in {job.name, *job.options.aliases}:
            owners[name].append(job)
        for target in job.options.sends:
            name = target if isinstance(target, str) else target.name
            if catalogue.find(name) is None:
                yield Problem(job.where, f"sends= names {name!r}, which no module declares", nearest(name, known))
    for name, jobs in owners.items():
        if len(jobs) > 1:
            others = ", ".join(job.source for job in jobs[1:])
            cure = "Rename one, or remove the alias."
            yield Problem(jobs[0].where, f"the name {name} is also declared at {others}", cure)


def _of_queues(catalogue: Catalogue) -> Iterator[Problem]:
    by_name: dict[str, list[Queue]] = defaultdict(list)
    for queue in catalogue.queues:
        by_name[queue.name].append(queue)
        yield from _of_queue(queue, catalogue)
    for name, queues in by_name.items():
        if len(queues) > 1:
            cure = "Declare it once, in jobs/queues.py, and import it."
            yield Problem(f"queue {name}", "it is declared twice, with different options", cure)
    yield from _of_admission(catalogue)


def _of_queue(queue: Queue, catalogue: Catalogue) -> Iterator[Problem]:
    if queue.name == names.TICKS:
        yield Problem(queue.where, "the name is the scheduler's own", "Choose another.")
    seconds = function_timeout(queue)
    if seconds > limits.LAMBDA_TIMEOUT_SECONDS:
        yield Problem(
            queue.where,
            f"a batch of {queue.batch_size} jobs of {queue.job_timeout} each needs {seconds} s, "
            f"and Lambda stops a function after {limits.LAMBDA_TIMEOUT_SECONDS} s",
            _fitting(queue),
        )
    receives = receive_limit(queue)
    siblings = queue.batch_size if queue.fifo else 1
    for job in catalogue.on(queue.name):
        needed = job.options.retry.attempts * siblings
        if receives < needed:
            yield Problem(
                job.where,
                f"{job.options.retry.attempts} attempts may take {needed} receives, and its queue's retention "
                f"holds {receives}",
                "Lower attempts= of its Retry, job_timeout= or batch_size= of its queue.",
            )


def _of_admission(catalogue: Catalogue) -> Iterator[Problem]:
    """Jobs that wait for room in a queue which only they could empty."""
    sends: dict[str, set[str]] = defaultdict(set)
    for job in catalogue.jobs:
        for target in resolve_sends(job, catalogue):
            if target.queue.admit is not None and target.queue.admit.full == "reject":
                sends[job.queue.name].add(target.queue.name)
    for queue in catalogue.queues:
        if queue.name in _reached(sends, queue.name):
            what = (
                "what its jobs send comes back to it, and all queues on the way reject when full: a circle of waiting"
            )
            cure = "Send with ctx.commit(enqueue=[...]), which a full queue takes too."
            yield Problem(queue.where, what, cure, "warning")


def _reached(sends: Mapping[str, Collection[str]], start: str) -> set[str]:
    reached: set[str] = set()
    ahead = {start}
    while ahead:
        ahead = {target for queue in ahead for target in sends.get(queue, ())} - reached
        reached |= ahead
    return reached


def _fitting(queue: Queue) -> str:
    longest = int(queue.job_timeout.total_seconds())
    room = limits.LAMBDA_TIMEOUT_SECONDS - defaults.RESERVE
    batch = room // longest * queue.parallel - (1 if room // longest > 1 else 0)
    if batch < 1:
        return f"Lower job_timeout= to at most {room} s, or split the job."
    return f"batch_size={batch} fits; or lower job_timeout=."


def _of_services(catalogue: Catalogue) -> Iterator[Problem]:
    """One brake for all the jobs that use it, and retries that its capacity can take."""
    users: dict[str, dict[Service, list[Job[Any, Any]]]] = defaultdict(lambda: defaultdict(list))
    for job in catalogue.jobs:
        for use in dict.fromkeys(job.options.uses):
            if isinstance(use, Service):
                users[use.name][use].append(job)
    for name, declared in users.items():
        if len(declared) > 1:
            cure = "Declare it once and import it: it is one brake for all its jobs."
            yield Problem(f"Service {name}", "it is declared in several ways, with different options", cure)
        for service, jobs in declared.items():
            yield from _of_capacity(service, jobs)


def _of_capacity(service: Service, jobs: Sequence[Job[Any, Any]]) -> Iterator[Problem]:
    """Worst case: every run fails, in every worker at once, and comes back within the shortest mean of all waits."""
    capacity, rate = service.capacity, service.rate
    if capacity is None:
        return
    per = capacity.per.total_seconds()
    if rate is not None:
        if rate.count * per > capacity.count * rate.per.total_seconds():
            what = (
                f"rate= lets {rate.count} through per {rate.per}, its capacity is {capacity.count} per {capacity.per}"
            )
            yield Problem(f"Service {service.name}", what, "Lower the count of rate=.")
        return  # every run takes a slot, a retry too
    load = sum(job.options.retry.attempts * job.queue.max_workers * job.queue.parallel for job in jobs)
    span = min(_retry_span(job.options.retry) for job in jobs)
    room = int(capacity.count * max(1.0, span / per))
    if load > room:
        queues = ", ".join(sorted({job.queue.name for job in jobs}))
        what = f"retries may bring {load:,} calls within {max(span, per):,.0f} s, its capacity is {room:,} in that time"
        cure = (
            f"Give it rate=Rate({capacity.count}, per=timedelta(seconds={per:g})), lower max_workers= of {queues}, "
            "or lower attempts= or raise base= of the Retry of its jobs."
        )
        yield Problem(f"Service {service.name}", what, cure)


def _retry_span(retry: Retry) -> float:
    """Seconds from the first failure to the last run, by the mean of each wait's full jitter."""
    return sum(retry.delay(failures, 0.5) for failures in range(1, retry.attempts))


def _of_schedules(catalogue: Catalogue, environments: Collection[str]) -> Iterator[Problem]:
    for schedule in catalogue.schedules:
        for name in schedule.only:
            if environments and name not in environments:
                cure = f"{nearest(name, environments)}Known are {', '.join(sorted(environments))}."
                yield Problem(schedule.where, f"only= names the environment {name!r}", cure)
        at = schedule.when.next(_CHECK_FROM)
        if at is None:
            continue
        try:
            payload = schedule.payload(Tick(schedule.name, at))
            encode(payload, schedule.job.payload_type)
            if schedule.job.options.key is not EACH_ENQUEUE:
                derive(schedule.job.options.key, payload)
        except DeclarationError:
            continue  # a finding about the job already
        except LoomjobsError as error:
            yield Problem(schedule.where, f"its payload for the tick of {at.isoformat()} is refused: {error}", "")
        except Exception as error:  # noqa: BLE001 the author's function is checked, so whatever it raises is a finding
            what = f"payload= raised {type(error).__name__} for the tick of {at.isoformat()}: {error}"
            yield Problem(schedule.where, what, "It gets a Tick and returns the job's payload.")


def _of_provisions(catalogue: Catalogue, provided: Collection[str]) -> Iterator[Problem]:
    used = {}
    for job in catalogue.jobs:
        for use in job.options.uses:
            if isinstance(use, (Access, Secret)):
                used[use.name] = job
                if use.name not in provided:
                    cure = f'{nearest(use.name, provided)}Add a function with @provides("{use.name}").'
                    yield Problem(job.where, f"uses {use.name!r}, which infra/resources.py does not provide", cure)
    for name in sorted(set(provided) - set(used)):
        cure = "Remove it, or keep it for data that must outlive its job."
        yield Problem("infra/resources.py", f"no job uses {name!r}", cure, "warning")


def _of_environment(catalogue: Catalogue, environment: Environment) -> Iterator[Problem]:
    where = f"environment {environment.name}"
    for job in catalogue.jobs:
        for use in job.options.uses:
            if isinstance(use, Setting) and not environment.settings.get(use.name):
                cure = f'Add settings={{"{use.name}": ...}} in infra/environments.py.'
                yield Problem(where, f"the setting {use.name!r} of job {job.name} is missing", cure)
    for queue in catalogue.queues:
        if queue.network is not None and queue.network not in environment.networks:
            cure = f"{nearest(queue.network, environment.networks)}Add it to networks= in infra/environments.py."
            yield Problem(where, f"the network {queue.network!r} of queue {queue.name} is missing", cure)
    for worker in make_plan(catalogue, environment).workers:
        yield from _of_size(worker, where)


def _of_size(worker: Worker, where: str) -> Iterator[Problem]:
    """Lambda takes 4 KB of variables; a value that is known only at deploy is counted as 120 bytes."""
    size = sum(len(key) + (len(value) if isinstance(value, str) else 120) for key, value in worker.environment.items())
    if size > limits.LAMBDA_ENVIRONMENT_BYTES:
        cure = "Spread its jobs over more queues."
        yield Problem(where, f"the variables of worker {worker.queue} come to about {size} bytes of 4,096", cure)
