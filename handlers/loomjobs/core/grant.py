"""What a role may do, and which jobs brought each right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from loomjobs.core.catalogue import Catalogue
from loomjobs.core.job import Job
from loomjobs.core.queue import Queue
from loomjobs.core.sealed import has_encrypted
from loomjobs.core.uses import Access, Secret

Sends: TypeAlias = "Iterable[tuple[Job[Any, Any], str]]"
"""Jobs that are sent, each with who does it: a job or a schedule."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A right of one worker's role. `because` names the jobs that brought it.

    - `depth` and `age`: to read how full a queue is that the worker sends to, from SQS and from CloudWatch.
    - `key`: to encrypt or decrypt fields of the job `target`, and no other's.
    - `payload`: to "read" what goes beside the messages of its queue, "write" what goes beside those that it sends.
    """

    kind: Literal["send", "resource", "secret", "depth", "age", "key", "payload"]
    target: str
    verb: str
    because: tuple[str, ...]


def worker_grants(queue: Queue, jobs: Iterable[Job[Any, Any]], catalogue: Catalogue) -> list[Grant]:
    """Of the worker of a queue, which runs these jobs."""
    jobs = tuple(jobs)
    sends = [(target, job.name) for job in jobs for target in resolve_sends(job, catalogue)]
    return [
        *_key_grants(jobs, sends),
        *send_grants((target.queue.name, job) for target, job in sends),
        *_reading_grants(sends),
        *_use_grants(jobs),
        *_payload_grants(queue, jobs, sends),
    ]


def scheduler_grants(catalogue: Catalogue) -> list[Grant]:
    """Of the scheduler's worker, which sends what is due. It asks no queue whether it is full."""
    sends = [(schedule.job, f"schedule {schedule.name}") for schedule in catalogue.schedules]
    return [
        *_key_grants((), sends),
        *send_grants((target.queue.name, schedule) for target, schedule in sends),
        *_storing_grants(sends),
    ]


def send_grants(sends: Iterable[tuple[str, str]]) -> list[Grant]:
    return _grouped(("send", queue, "send", because) for queue, because in sends)


def _reading_grants(sends: Sends) -> list[Grant]:
    """Whoever sends to a queue with an `admit=` asks how full it is."""
    asking = [(target.queue.admit, target.queue.name, by) for target, by in sends if target.queue.admit is not None]
    depths = [("depth", queue, "read", by) for _, queue, by in asking]
    return _grouped([*depths, *(("age", queue, "read", by) for admit, queue, by in asking if admit.age)])


def _key_grants(jobs: Iterable[Job[Any, Any]], sends: Sends) -> list[Grant]:
    """A ciphertext is bound to the name that its job had when it was sent, so aliases count."""
    opened = [
        ("key", name, "decrypt", job.name)
        for job in jobs
        if has_encrypted(job.payload_type)
        for name in (job.name, *job.options.aliases)
    ]
    sealed = [("key", target.name, "encrypt", by) for target, by in sends if has_encrypted(target.payload_type)]
    return _grouped([*opened, *sealed])


def _payload_grants(queue: Queue, jobs: Iterable[Job[Any, Any]], sends: Sends) -> list[Grant]:
    """A queue's worker reads what goes beside its messages."""
    reads = [("payload", queue.name, "read", job.name) for job in jobs if queue.oversized == "offload"]
    return [*_grouped(reads), *_storing_grants(sends)]


def _storing_grants(sends: Sends) -> list[Grant]:
    """Whoever sends to a queue stores first what goes beside its messages."""
    return _grouped(("payload", to.queue.name, "write", by) for to, by in sends if to.queue.oversized == "offload")


def _use_grants(jobs: Iterable[Job[Any, Any]]) -> list[Grant]:
    uses = [(use, job.name) for job in jobs for use in job.options.uses]
    accesses = [("resource", use.name, verb, job) for use, job in uses if isinstance(use, Access) for verb in use.verbs]
    secrets = [("secret", use.name, "read", job) for use, job in uses if isinstance(use, Secret)]
    return _grouped([*accesses, *secrets])


def _grouped(rights: Iterable[tuple[Any, str, str, str]]) -> list[Grant]:
    because: dict[tuple[Any, str, str], list[str]] = {}
    for kind, target, verb, job in rights:
        because.setdefault((kind, target, verb), []).append(job)
    return [Grant(*right, tuple(dict.fromkeys(jobs))) for right, jobs in sorted(because.items())]


def resolve_sends(job: Job[Any, Any], catalogue: Catalogue) -> tuple[Job[Any, Any], ...]:
    """The declared jobs that `sends=` names; unknown names are left to the check."""
    found = (target if isinstance(target, Job) else catalogue.find(target) for target in job.options.sends)
    return tuple(target for target in found if target is not None)
