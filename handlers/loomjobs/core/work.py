"""A delivery understood: which job, for which payload, under which key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from loomjobs.core import defaults
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.decision import Acknowledge, DeadLetter, DeferFor, Failure, Reason
from loomjobs.core.delivery import Delivery
from loomjobs.core.envelope import Envelope
from loomjobs.core.errors import BadEnvelope, BadKey, BadPayload, LoomjobsError
from loomjobs.core.evolve import upcast
from loomjobs.core.failure import failure_of
from loomjobs.core.job import Job
from loomjobs.core.key import EACH_ENQUEUE, derive
from loomjobs.core.letter import read_report
from loomjobs.core.payload import decode, digest
from loomjobs.core.problem import nearest
from loomjobs.core.record import record_id
from loomjobs.core.trace import is_traceparent, of_xray

_WIRE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Work:
    """`id` is the job's id for life: the producer's, or the first message's where a foreign producer gave none.

    `payload` is of the job's version; `payload_hash` is that of the payload as it was sent, so that a duplicate from
    before a deploy is still one.
    """

    delivery: Delivery
    envelope: Envelope
    job: Job[Any, Any]
    payload: Any
    id: str
    key: str
    payload_hash: str

    @property
    def record_id(self) -> str:
        return record_id(self.job.name, self.key)

    @property
    def due(self) -> datetime:
        """When it could have started, UTC."""
        return self.envelope.due or self.envelope.enqueued_at or self.delivery.sent_at

    @property
    def expires(self) -> datetime | None:
        """Its deadline, UTC: the envelope's, or the job's `expires=` counted from `due` where a foreign producer gave
        none. A dead letter that was sent back has none: whoever redrives wants it to run."""
        return self.envelope.expires


@dataclass(frozen=True, slots=True)
class Unworkable:
    """A delivery that is no work here, with what can be said of it."""

    decision: DeadLetter | DeferFor | Acknowledge
    id: str
    job: str | None = None


def understand(delivery: Delivery, catalogue: Catalogue) -> Work | Unworkable:
    """Decode strictly. Total: whatever arrived gets a decision, and never an exception."""
    identity = identity_of(delivery)
    try:
        envelope = Envelope.parse(delivery.body)
    except BadEnvelope as error:
        return _dead("bad-envelope", error, identity)
    identity = envelope.id or identity
    job = catalogue.find(envelope.job)
    if envelope.v > _WIRE_VERSION or (job is not None and envelope.payload_version > job.options.version):
        return _newer(delivery, envelope, identity)
    if job is None or job.queue.name != delivery.queue:
        return _unroutable(delivery, envelope, job, catalogue, identity)
    options = job.options
    try:
        plain = upcast(envelope.payload, envelope.payload_version, options.upcasters, to=options.version)
        payload: Any = decode(plain, job.payload_type, strict=options.strict)
    except BadPayload as error:
        return _dead("bad-payload", error, identity, job.name)
    try:
        key = envelope.key or _key(job, payload, identity)
    except BadKey as error:
        return _dead("bad-key", error, identity, job.name)
    envelope = replace(envelope, expires=_deadline(delivery, envelope, job), trace=_trace(delivery, envelope))
    return Work(delivery, envelope, job, payload, identity, key, digest(envelope.payload))


def _deadline(delivery: Delivery, envelope: Envelope, job: Job[Any, Any]) -> datetime | None:
    if envelope.redrives or read_report(dict(delivery.attributes)) is not None:
        return None
    if envelope.expires is not None or job.options.expires is None:
        return envelope.expires
    try:
        return (envelope.due or envelope.enqueued_at or delivery.sent_at) + job.options.expires
    except OverflowError:  # beyond the year 9999
        return None


def _trace(delivery: Delivery, envelope: Envelope) -> str | None:
    """The envelope's, else that of X-Ray's header, as a traced producer sends it; what is malformed is dropped."""
    if envelope.trace is not None and is_traceparent(envelope.trace):
        return envelope.trace
    try:
        return of_xray(delivery.trace_header) if delivery.trace_header else None
    except ValueError:
        return None


def identity_of(delivery: Delivery) -> str:
    """The first message's id: a hand-off and a redrive make new messages, and keep it in their report."""
    report = read_report(dict(delivery.attributes))
    kept = report.get("id") if report else None
    return kept if isinstance(kept, str) and kept else delivery.message_id


def _key(job: Job[Any, Any], payload: Any, identity: str) -> str:
    return identity if job.options.key is EACH_ENQUEUE else derive(job.options.key, payload)


def _newer(delivery: Delivery, envelope: Envelope, identity: str) -> Unworkable:
    """During a rolling deploy a newer worker will come for it; after the grace nobody is expected any more."""
    age = delivery.received_at - delivery.sent_at
    if age < timedelta(seconds=defaults.NEWER_VERSION_GRACE):
        return Unworkable(DeferFor(60.0, "its version is newer than this worker"), identity, envelope.job)
    text = f"envelope v{envelope.v}, payload version {envelope.payload_version}: newer than this worker knows"
    return Unworkable(_letter("newer-version", text), identity, envelope.job)


def _unroutable(
    delivery: Delivery, envelope: Envelope, job: Job[Any, Any] | None, catalogue: Catalogue, identity: str
) -> Unworkable:
    grave = catalogue.grave(envelope.job) if job is None else None
    if grave is not None and grave.queue.name == delivery.queue:
        return Unworkable(Acknowledge("removed", note=grave.why), identity, envelope.job)
    owner = job or grave
    if owner is not None:
        text = f"job {envelope.job} belongs to queue {owner.queue.name}, and this is queue {delivery.queue}"
    else:
        hint = nearest(envelope.job, (each.name for each in catalogue.jobs))
        text = (
            f"queue {delivery.queue} has no job {envelope.job}. {hint}If it was renamed, add the old name to aliases=."
        )
    return Unworkable(_letter("unroutable", text), identity, envelope.job)


def _dead(reason: Reason, error: LoomjobsError, identity: str, job: str | None = None) -> Unworkable:
    return Unworkable(DeadLetter(reason, failure_of(error)), identity, job)


def _letter(reason: Reason, text: str) -> DeadLetter:
    return DeadLetter(reason, Failure("LoomjobsError", text, reason))
