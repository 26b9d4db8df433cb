"""A delivery understood: which job, for which payload, under which key."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from loomjobs.core import defaults
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.decision import Acknowledge, DeadLetter, DeferFor, Failure, Reason
from loomjobs.core.delivery import Delivery
from loomjobs.core.envelope import SEALED_VERSION, Envelope
from loomjobs.core.errors import (
    BadEnvelope,
    BadKey,
    BadPayload,
    CipherUnavailable,
    ConfigurationError,
    InvalidOption,
    LoomjobsError,
)
from loomjobs.core.evolve import upcast
from loomjobs.core.failure import failure_of, redacted
from loomjobs.core.job import Job
from loomjobs.core.key import EACH_ENQUEUE, derive
from loomjobs.core.letter import read_report
from loomjobs.core.offload import unpack
from loomjobs.core.payload import decode, digest, plain
from loomjobs.core.privacy import unsecret
from loomjobs.core.problem import nearest
from loomjobs.core.record import record_id
from loomjobs.core.sealed import Cipher, NotAsked, has_masks, unseal
from loomjobs.core.sensitive import Leaf, is_marked, leaves
from loomjobs.core.trace import is_traceparent, of_xray


@dataclass(frozen=True, slots=True)
class Work:
    """`id` is the job's id for life: the producer's, or the first message's where a foreign producer gave none.

    `payload` is of the job's version; `payload_hash` is that of the payload as it was sent, so that a duplicate from
    before a deploy is still one. A payload beside its message is None until `opened`.
    """

    delivery: Delivery
    envelope: Envelope
    job: Job[Any, Any]
    payload: Any = field(repr=False)
    id: str
    key: str
    payload_hash: str

    @property
    def is_closed(self) -> bool:
        """Its payload is beside its message, and not read yet."""
        return self.envelope.payload_ref is not None and self.envelope.payload is None

    @property
    def record_id(self) -> str:
        return record_id(self.job.name, self.key)

    @property
    def due(self) -> datetime:
        """When it could have started, UTC."""
        return self.envelope.due or self.envelope.enqueued_at or self.delivery.sent_at

    @property
    def secrets(self) -> list[Leaf]:
        """The payload's sensitive texts and numbers, as they were sent and as the job has them now."""
        type_, envelope = self.job.payload_type, self.envelope
        if not is_marked(type_):
            return []
        is_old = envelope.payload_version < self.job.options.version
        try:
            return [*leaves(envelope.payload, type_, everything=is_old), *leaves(plain(self.payload), type_)]
        except Exception:  # noqa: BLE001 the job may have put anything into a payload that it can change
            return list(leaves(envelope.payload, type_, everything=True))

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


def understand(delivery: Delivery, catalogue: Catalogue, cipher: Cipher | None = None) -> Work | Unworkable:
    """Decode strictly. Total: whatever arrived gets a decision, and never an exception.

    Encrypted fields are decrypted here, before any claim: a message whose fields cannot be waits or dies like one
    that cannot be decoded, with no claim to give back. That is one call of KMS for a delivery, a duplicate's too. Those
    of a payload beside its message are decrypted when that is read.
    """
    identity = identity_of(delivery)
    try:
        envelope = Envelope.parse(delivery.body)
    except BadEnvelope as error:
        return _dead("bad-envelope", error, identity)
    identity = envelope.id or identity
    job = catalogue.find(envelope.job)
    if envelope.v > SEALED_VERSION or (job is not None and envelope.payload_version > job.options.version):
        return _newer(delivery, envelope, identity)
    if job is None or job.queue.name != delivery.queue:
        return _unroutable(delivery, envelope, job, catalogue, identity)
    ref = envelope.payload_ref
    payload_hash = ref.digest if ref else digest(envelope.payload)
    try:
        envelope = envelope if ref else _unsealed(envelope, job, cipher)
        payload: Any = None if ref else _decoded(envelope, job)
    except BadPayload as error:
        return _dead("bad-payload", error, identity, job, envelope.payload)
    except (CipherUnavailable, ConfigurationError) as error:
        return _still_sealed(delivery, error, identity, job)
    try:
        key = envelope.key or _key(job, payload, identity, is_closed=ref is not None)
    except BadKey as error:
        return _dead("bad-key", error, identity, job, envelope.payload)
    envelope = replace(envelope, expires=_deadline(delivery, envelope, job), trace=_trace(delivery, envelope))
    return Work(delivery, envelope, job, payload, identity, key, payload_hash)


def opened(work: Work, data: bytes, cipher: Cipher | None = None) -> Work:
    """Closed work with its payload, from the bytes of its object. Raises PayloadTampered, BadPayload, and for encrypted
    fields CipherUnavailable, ConfigurationError."""
    assert work.envelope.payload_ref is not None
    envelope = replace(work.envelope, payload=unpack(work.envelope.payload_ref, data))
    envelope = _unsealed(envelope, work.job, cipher)
    return replace(work, envelope=envelope, payload=_decoded(envelope, work.job))


def _decoded(envelope: Envelope, job: Job[Any, Any]) -> Any:
    options = job.options
    plain = upcast(envelope.payload, envelope.payload_version, options.upcasters, to=options.version)
    return decode(plain, job.payload_type, strict=options.strict)


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


def _unsealed(envelope: Envelope, job: Job[Any, Any], cipher: Cipher | None) -> Envelope:
    """With its encrypted fields. One whose field was marked after it was sent is taken as it is, but never with masks
    for values."""
    if envelope.sealed is None:
        if envelope.v == SEALED_VERSION or has_masks(envelope.payload, job.payload_type):
            raise BadPayload("$", "its encrypted fields were lost on the way: it has no member 'sealed'")
        return envelope
    whole = unseal(envelope.payload, envelope.sealed, job=envelope.job, id=envelope.id, cipher=cipher)
    return replace(envelope, payload=whole)


def _still_sealed(delivery: Delivery, error: LoomjobsError, identity: str, job: Job[Any, Any]) -> Unworkable:
    """KMS may be back in a minute. A key that is gone, or not granted, is somebody's to look at."""
    if isinstance(error, NotAsked) or delivery.receives < defaults.CIPHER_RECEIVES:
        return Unworkable(DeferFor(60.0, "its encrypted fields cannot be decrypted now"), identity, job.name)
    return _dead("bad-payload", error, identity, job)


def _key(job: Job[Any, Any], payload: Any, identity: str, *, is_closed: bool) -> str:
    if job.options.key is EACH_ENQUEUE:
        return identity
    if is_closed:
        raise BadKey("a message with 'payload_ref' has to bring its 'key': the payload is read only when the job runs")
    key = derive(job.options.key, payload)
    try:
        return unsecret(key, job, payload, "key") if callable(job.options.key) else key
    except InvalidOption as error:
        raise BadKey(str(error)) from None


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


def _dead(
    reason: Reason,
    error: LoomjobsError,
    identity: str,
    job: Job[Any, Any] | None = None,
    payload: object = None,
) -> Unworkable:
    """What does not fit its type may stand where it should not: of a type with marks every value is sensitive."""
    secrets = leaves(payload, job.payload_type, everything=True) if job and is_marked(job.payload_type) else ()
    failure = redacted(failure_of(error, secrets=secrets), payload)
    return Unworkable(DeadLetter(reason, failure), identity, job.name if job else None)


def _letter(reason: Reason, text: str) -> DeadLetter:
    return DeadLetter(reason, Failure("LoomjobsError", text, reason))
