"""Background jobs on AWS for Python teams: declare jobs, deploy, send messages.

Declare: Queue Workload Admit Retry Rate job tombstone EACH_ENQUEUE · Resource Secret Setting Service
On time: schedule cron every
Inside a job: JobContext · Permanent Transient · Signal Defer Continue
Private payload fields: Sensitive Encrypted masked
Send: call enqueue enqueue_many aenqueue aenqueue_many outbox_item · Batch batch_status · Producer correlation
Look: status wait cancel rerun
Sent: Call Enqueued Report Rejected Reading Status Cancelled BatchStatus
Errors: loomjobs.core.errors draws the tree
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loomjobs.core.admit import Admit
from loomjobs.core.call import Call, Enqueued, Rejected, Report, call
from loomjobs.core.context import JobContext
from loomjobs.core.cron import When, cron, every
from loomjobs.core.declare import job
from loomjobs.core.errors import (
    BadKey,
    BadPayload,
    CipherUnavailable,
    ConfigurationError,
    DeclarationError,
    EnqueueError,
    InvalidOption,
    LoomjobsError,
    NotAvailableYet,
    NotSent,
    PayloadTooLarge,
    QueueFull,
    UndeclaredSend,
    UnknownOutcome,
)
from loomjobs.core.evolve import tombstone
from loomjobs.core.job import Job
from loomjobs.core.key import EACH_ENQUEUE, Key, KeyPart
from loomjobs.core.masked import masked
from loomjobs.core.queue import Queue, Workload
from loomjobs.core.reading import Reading
from loomjobs.core.retry import Retry
from loomjobs.core.schedule import MissedRuns, Overlap, Tick, schedule
from loomjobs.core.sensitive import Encrypted, Sensitive
from loomjobs.core.signals import Continue, Defer, Permanent, Signal, Transient
from loomjobs.core.uses import Rate, Resource, Secret, Service, Setting, Use

if TYPE_CHECKING:
    from loomjobs.aws.producer import Producer
    from loomjobs.aws.promise import outbox_item
    from loomjobs.runtime.caller import correlation
    from loomjobs.runtime.cancelling import Cancelled, cancel
    from loomjobs.runtime.fanout import Batch, BatchStatus, batch_status
    from loomjobs.runtime.sending import aenqueue, aenqueue_many, enqueue, enqueue_many, rerun
    from loomjobs.runtime.status import Status, status, wait

__all__ = [
    "EACH_ENQUEUE",
    "Admit",
    "BadKey",
    "BadPayload",
    "Batch",
    "BatchStatus",
    "Call",
    "Cancelled",
    "CipherUnavailable",
    "ConfigurationError",
    "Continue",
    "DeclarationError",
    "Defer",
    "Encrypted",
    "EnqueueError",
    "Enqueued",
    "InvalidOption",
    "Job",
    "JobContext",
    "Key",
    "KeyPart",
    "LoomjobsError",
    "MissedRuns",
    "NotAvailableYet",
    "NotSent",
    "Overlap",
    "PayloadTooLarge",
    "Permanent",
    "Producer",
    "Queue",
    "QueueFull",
    "Rate",
    "Reading",
    "Rejected",
    "Report",
    "Resource",
    "Retry",
    "Secret",
    "Sensitive",
    "Service",
    "Setting",
    "Signal",
    "Status",
    "Tick",
    "Transient",
    "UndeclaredSend",
    "UnknownOutcome",
    "Use",
    "When",
    "Workload",
    "aenqueue",
    "aenqueue_many",
    "batch_status",
    "call",
    "cancel",
    "correlation",
    "cron",
    "enqueue",
    "enqueue_many",
    "every",
    "job",
    "masked",
    "outbox_item",
    "rerun",
    "schedule",
    "status",
    "tombstone",
    "wait",
]

_ON_FIRST_USE = {
    "Batch": "runtime.fanout",
    "BatchStatus": "runtime.fanout",
    "Producer": "aws.producer",
    "aenqueue": "runtime.sending",
    "aenqueue_many": "runtime.sending",
    "enqueue": "runtime.sending",
    "enqueue_many": "runtime.sending",
    "batch_status": "runtime.fanout",
    "outbox_item": "aws.promise",
    "correlation": "runtime.caller",
    "Cancelled": "runtime.cancelling",
    "cancel": "runtime.cancelling",
    "Status": "runtime.status",
    "rerun": "runtime.sending",
    "status": "runtime.status",
    "wait": "runtime.status",
}


def __getattr__(name: str) -> Any:
    """PEP 562: what sends is imported on first use, so that declaring needs the core only."""
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module 'loomjobs' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"loomjobs.{_ON_FIRST_USE[name]}"), name)
