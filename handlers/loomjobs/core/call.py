"""Work to be sent, as a value, and what came of sending it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, TypeVar

from loomjobs.core import defaults, limits
from loomjobs.core.errors import InvalidOption, UndeclaredSend
from loomjobs.core.job import Job
from loomjobs.core.key import EACH_ENQUEUE, derive
from loomjobs.core.label import checked_label
from loomjobs.core.payload import encode
from loomjobs.core.privacy import unsecret
from loomjobs.core.timing import checked_at, checked_delay, checked_expires

P = TypeVar("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A job with its payload, encoded and checked when the call is built. `key` is None for EACH_ENQUEUE.

    It is due `at` an instant, UTC, or `delay` seconds after its enqueue. A child of a `batch` brings its own `id`.
    """

    job: Job[Any, Any]
    payload: Any
    encoded: bytes
    key: str | None
    group: str | None
    tenant: str | None = None
    delay: int = 0
    at: datetime | None = None
    expires: timedelta | datetime | None = None
    unique_for: timedelta | None = None
    track: bool = False
    then: Call | None = None
    batch: str | None = None
    id: str | None = None

    def __repr__(self) -> str:
        return f"<call {self.job.name} {self.key or ''}>"


class CallOptions(TypedDict, total=False):
    """What `call` can be told beside the job and its payload; `enqueue` and its kin pass it on."""

    delay: timedelta | None
    at: datetime | None
    key: str | None
    tenant: str | None
    group: str | None
    expires: timedelta | datetime | None
    unique_for: timedelta | None
    track: bool
    then: Call | None


@dataclass(frozen=True, slots=True)
class Enqueued:
    """`id` is the job's id for all its life; `key` its idempotency key. A duplicate's `id` is that of the enqueue that
    stands, or "" where its record does not tell."""

    id: str
    key: str
    outcome: Literal["accepted", "duplicate", "delayed"]


@dataclass(frozen=True, slots=True)
class Rejected:
    """A call that its queue will not take as it is, and what the queue said."""

    call: Call
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What became of many calls. `duplicate` counts what `unique_for=` left out: a queue itself tells no duplicate.

    - `rejected`: refused for good, such as for a right that is missing; sending them again changes nothing.
    - `unsent`: not in the queue, by the server's fault or since the sending stopped before; safe to send again.
    - `unknown`: no answer came, so they may be in the queue.
    """

    accepted: int
    duplicate: int = 0
    rejected: tuple[Rejected, ...] = ()
    unsent: tuple[Call, ...] = ()
    unknown: tuple[Call, ...] = ()

    def __add__(self, other: Report) -> Report:
        return Report(
            accepted=self.accepted + other.accepted,
            duplicate=self.duplicate + other.duplicate,
            rejected=self.rejected + other.rejected,
            unsent=self.unsent + other.unsent,
            unknown=self.unknown + other.unknown,
        )

    @property
    def summary(self) -> str:
        """In words, with what did not occur left out."""
        counts = {
            "accepted": self.accepted,
            "duplicates": self.duplicate,
            "rejected": len(self.rejected),
            "not sent": len(self.unsent),
            "with unknown outcome": len(self.unknown),
        }
        return ", ".join(f"{count} {what}" for what, count in counts.items() if count or what == "accepted")


def call(
    job: Job[P, Any],
    payload: P,
    /,
    *,
    delay: timedelta | None = None,
    at: datetime | None = None,
    key: str | None = None,
    tenant: str | None = None,
    group: str | None = None,
    expires: timedelta | datetime | None = None,
    unique_for: timedelta | None = None,
    track: bool = False,
    then: Call | None = None,
) -> Call:
    """Build a call: the payload is encoded, decoded again and compared here, where a mistake has its stack.

    `delay` is whole seconds, up to ten years, and `at` the instant, with a zone; one that is over is due at once. Up to
    15 minutes SQS itself holds the message, to the second; beyond, and on FIFO queues, a one-off schedule sends it,
    up to two minutes late. FIFO queues take no delay of 15 minutes or less.
    `key` and `group` override what the declaration derives from the payload. `expires` is the instant, or the time from
    when it is due, after which it is not worth starting; the job's own `expires=` where it is left out.
    `tenant`: on whose behalf. What the job sends inherits it; SQS delivers the tenants of a standard queue fairly.
    `unique_for`: not sent while the same job and key is queued or runs, or for that long after it ended; then it runs
    anew, whatever its key did before. At most the 30 days that records are kept.
    `track`: its record says `queued` before it starts.
    `then`: a call that is sent once this one has succeeded; its job stands in this job's `sends=`.
    Raises BadPayload, BadKey, InvalidOption.
    """
    return Call(
        job=job,
        payload=payload,
        encoded=encode(payload, job.payload_type),
        key=_key(job, payload, key),
        group=_group(job, payload, group),
        tenant=None if tenant is None else checked_label(job.name, "tenant", tenant),
        delay=checked_delay(job, delay, at),
        at=checked_at(job, at),
        expires=checked_expires(job, expires),
        unique_for=_window(job, key, unique_for),
        track=track,
        then=_then(job, then),
    )


def _key(job: Job[Any, Any], payload: Any, given: str | None) -> str | None:
    if given is not None:
        return unsecret(checked_label(job.name, "key", given), job, payload, "key")
    if job.options.key is EACH_ENQUEUE:
        return None
    key = derive(job.options.key, payload)
    return unsecret(key, job, payload, "key") if callable(job.options.key) else key


def _window(job: Job[Any, Any], key: str | None, window: timedelta | None) -> timedelta | None:
    if window is None:
        return None
    if not timedelta(0) < window <= timedelta(seconds=defaults.RECORD_TTL):
        days = defaults.RECORD_TTL // 86_400
        raise InvalidOption(
            f"{job.name}: unique_for={window} is not between 0 and the {days} days that records are kept"
        )
    if key is None and job.options.key is EACH_ENQUEUE:
        raise InvalidOption(
            f"{job.name}: with EACH_ENQUEUE no two enqueues are the same work. Say which are: key=, beside unique_for="
        )
    return window


def _then(job: Job[Any, Any], then: Call | None) -> Call | None:
    if then is not None and not job.sends_to(then.job):
        raise UndeclaredSend(job.name, then.job.name)
    return then


def _group(job: Job[Any, Any], payload: Any, given: str | None) -> str | None:
    if not job.queue.fifo:
        if given is not None:
            raise InvalidOption(
                f"{job.name}: queue {job.queue.name} is not FIFO, so group= has no effect; leave it out"
            )
        return None
    assert job.options.group is not None
    if given is not None:
        return fifo_id(unsecret(checked_label(job.name, "group", given), job, payload, "group"))
    value = str(getattr(payload, job.options.group))
    if not value:
        raise InvalidOption(f"{job.name}: its group ({job.options.group}) is empty; FIFO queues need one")
    return fifo_id(value)


def fifo_id(text: str) -> str:
    """`text` where SQS takes it as a group or deduplication id, else a hash of it: equal texts stay equal."""
    if len(text) <= limits.SQS_FIFO_ID and re.fullmatch("[!-~]+", text):
        return text
    return "sha256-" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
