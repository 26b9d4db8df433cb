"""Logs and metrics of a worker through Powertools: a JSON line at enqueue, start and end, and EMF per invocation."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import IO, Any, cast

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from loomjobs.core.decision import Acknowledge, DeadLetter, DeferFor, HandBack, Renewed, RetryIn
from loomjobs.core.outgoing import Outgoing
from loomjobs.runtime.ports import Run

UNMAPPED = "unmapped"
"""The metric dimension of names that no declared job has: foreign names must not make metrics without bound."""

FAILED = "Failed"
"""Failed attempts and dead letters: by job, which its alarm reads, and once more by job and class."""


class PowertoolsJournal:
    """Implements the runtime's Journal. Payloads are not logged, only their hash."""

    def __init__(self, *, queue: str, jobs: frozenset[str]) -> None:
        self._log = Logger(utc=True, location=None, stream=cast("IO[str]", _Stdout()))
        self._queue = queue
        self._jobs = jobs
        self._figures: dict[str, list[tuple[str, MetricUnit, float]]] = defaultdict(list)
        self._failures: Counter[tuple[str, str]] = Counter()

    def enqueued(self, messages: Sequence[Outgoing], /) -> None:
        for message in messages:
            fields = {
                "job": message.call.job.name,
                "id": message.id,
                "key": message.key,
                "tenant": message.tenant,
                "correlation_id": message.correlation,
                "trace": message.trace,
                "delay": message.delay,
            }
            self._log.info("enqueued", extra=fields | {"to_queue": message.call.job.queue.name, "bytes": message.size})

    def started(self, run: Run, /) -> None:
        self._log.debug("started", extra=_fields(run))

    def ended(self, run: Run, /) -> None:
        outcome, extra = _outcome(run)
        fields = _fields(run) | {"outcome": outcome} | _failure(run.failure) | extra
        if run.duration is not None:
            fields["duration_ms"] = round(run.duration * 1000)
        if run.detail:
            fields["detail"] = run.detail
        sort = _class(run)
        if sort is not None:
            fields["class"] = sort
        level = self._log.error if sort is not None or isinstance(run.decision, HandBack) else self._log.info
        level("ended", extra=fields)
        self._count(run, outcome, sort)

    def counted(self, what: str, job: str | None, /) -> None:
        self._figures[job if job in self._jobs else UNMAPPED].append((what, MetricUnit.Count, 1))

    def trouble(self, what: str, /) -> None:
        self._log.warning(what)
        self._figures[UNMAPPED].append(("Trouble", MetricUnit.Count, 1))

    def flush(self) -> None:
        """Write the invocation's metrics; nothing is carried into the next one."""
        figures, self._figures = self._figures, defaultdict(list)
        failures, self._failures = self._failures, Counter()
        for job, values in figures.items():
            self._write(values, {"job": job})
        for (job, sort), times in failures.items():
            self._write([(FAILED, MetricUnit.Count, times)], {"job": job, "class": sort})

    def _write(self, values: Sequence[tuple[str, MetricUnit, float]], dimensions: Mapping[str, str]) -> None:
        metrics = EphemeralMetrics()
        for dimension, text in {"queue": self._queue, **dimensions}.items():
            metrics.add_dimension(name=dimension, value=text)
        for name, unit, value in values:
            metrics.add_metric(name=name, unit=unit, value=value)
        metrics.flush_metrics()

    def _count(self, run: Run, outcome: str, sort: str | None) -> None:
        job = run.job if run.job in self._jobs else UNMAPPED
        figures = self._figures[job]
        figures.append((_METRICS.get(outcome, outcome), MetricUnit.Count, 1))
        if sort is not None:
            figures.append((FAILED, MetricUnit.Count, 1))
            self._failures[job, sort] += 1
        if run.duration is not None:
            figures.append(("Duration", MetricUnit.Milliseconds, run.duration * 1000))
            figures.append(("TimeToStart", MetricUnit.Milliseconds, run.latency * 1000))


class _Stdout:
    """Whatever is standard output at the time: some hosts of a function change it for each invocation."""

    def write(self, text: str) -> int:
        return sys.stdout.write(text)

    def flush(self) -> None:
        sys.stdout.flush()


_METRICS: Mapping[str, str] = {
    "succeeded": "Succeeded",
    "duplicate": "DuplicateSuppressed",
    "dead-before": "DuplicateSuppressed",
    "cancelled": "Cancelled",
    "expired": "Expired",
    "removed": "Removed",
    "retry": "Retried",
    "deferred": "Deferred",
    "renewed": "Renewed",
    "dead": "Dead",
    "handed-back": "HandedBack",
}


_CLASSES = frozenset({"transient", "throttled"})


def _class(run: Run) -> str | None:
    """The class of a failure, of few values: how a failed attempt was sorted, or why the message is dead."""
    if isinstance(run.decision, DeadLetter):
        return run.decision.reason
    if run.failure is None:
        return None
    return run.sorting if run.sorting in _CLASSES else "unknown"


def _fields(run: Run) -> dict[str, Any]:
    return {
        "job": run.job,
        "id": run.id,
        "key": run.key,
        "message_id": run.delivery.message_id,
        "queue": run.delivery.queue,
        "attempt": run.attempt,
        "receives": run.delivery.receives,
        "latency_ms": round(run.latency * 1000),
        "payload_hash": run.payload_hash,
        "tenant": run.tenant,
        "trace": run.trace,
        "correlation_id": run.correlation,
    }


def _outcome(run: Run) -> tuple[str, dict[str, Any]]:
    match run.decision:
        case Acknowledge(why, since, note):
            earlier = {"duplicate_of": f"{run.job}#{run.key}", "finished_at": since} if since else {}
            return why, earlier | ({"why": note} if note else {})
        case RetryIn(delay, failure, _):
            return "retry", _failure(failure) | {"retry_in_s": round(delay, 1)}
        case DeferFor(delay, why):
            return "deferred", {"why": why, "back_in_s": round(delay, 1)}
        case DeadLetter(reason, failure, attempts):
            return "dead", {"reason": reason, "attempts": attempts} | _failure(failure)
        case Renewed(delay, why):
            return "renewed", {"why": why, "back_in_s": round(delay, 1)}
        case HandBack(why):
            return "handed-back", {"why": why}


def _failure(failure: Any) -> dict[str, Any]:
    if failure is None:
        return {}
    return {
        "error": failure.kind,
        "error_message": failure.message,
        "fingerprint": failure.fingerprint,
        "stack": failure.stack,
    }
