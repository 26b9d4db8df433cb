"""Every error that Loomjobs raises.

LoomjobsError
├── DeclarationError      a job, queue or schedule is declared wrongly (at import, check or synth)
│   └── NotAvailableYet   the option is part of the API, this release does not implement it
├── ConfigurationError    the process does not know where something is (queue, table, environment)
├── CipherUnavailable     encrypted fields could not be encrypted or decrypted now
├── BadMessage            a message cannot become a job: never retried
│   ├── BadEnvelope
│   ├── BadPayload
│   └── BadKey
├── PayloadError          a payload beside its message could not be stored or read
│   ├── PayloadMissing
│   ├── PayloadTampered
│   ├── PayloadForbidden
│   └── PayloadUnavailable
├── EnqueueError          work was not (or perhaps not) put into a queue
│   ├── InvalidOption
│   ├── PayloadTooLarge
│   ├── UndeclaredSend
│   ├── NotSent
│   │   └── QueueFull
│   └── UnknownOutcome
├── CommitError           ctx.commit wrote nothing, because of what it was given
│   ├── CommitRefused
│   ├── CommitTooLarge
│   └── InvalidCommit
└── StoreError            the execution record
    ├── StoreUnavailable
    └── LostClaim
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loomjobs.core.backpressure import Reject
    from loomjobs.core.call import Report
    from loomjobs.core.problem import Problem


class LoomjobsError(Exception):
    """The root of the tree: catch this to catch them all."""


class DeclarationError(LoomjobsError):
    """One declaration and everything that is wrong with it, in `problems`."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class NotAvailableYet(DeclarationError):
    """The option has its place in the API, but this release does not act on it, so it is refused."""


class ConfigurationError(LoomjobsError):
    """This process was not told where something is; the text says which setting to give."""


class CipherUnavailable(LoomjobsError):
    """KMS did not answer, throttled, or refused access to the key. Nothing was sent, and nothing ran."""


class BadMessage(LoomjobsError):
    """The message cannot become a job; running it again would change nothing."""


class BadEnvelope(BadMessage):
    """The body is not a Loomjobs envelope."""


class BadPayload(BadMessage):
    """The payload does not fit its type. `path` is where (`$.lines[3].total`); values are never quoted."""

    def __init__(self, path: str, what: str) -> None:
        self.path = path
        self.what = what
        super().__init__(f"{path}: {what}")


class BadKey(BadMessage):
    """A part of the idempotency key is missing, empty or of a type that has no one spelling."""


class PayloadError(LoomjobsError):
    """A payload that is kept in S3, beside its message, could not be stored or read."""


class PayloadMissing(PayloadError):
    """There is no such object (any more): it was never stored, it has expired, or somebody deleted it."""


class PayloadTampered(PayloadError):
    """The object is not the one that the message means: its size or its SHA-256 differs."""


class PayloadForbidden(PayloadError):
    """This process may not use the object. A right is missing, which a deploy mends."""


class PayloadUnavailable(PayloadError):
    """S3 did not answer, throttled, or failed."""


class EnqueueError(LoomjobsError):
    """Work was not put into a queue."""


class InvalidOption(EnqueueError, ValueError):
    """An option does not go with this queue or job. Nothing was sent."""


class PayloadTooLarge(EnqueueError):
    """The message is larger than its queue, or SQS, takes. Nothing was sent. Sizes are bytes."""

    def __init__(self, job: str, size: int, limit: int, *, cure: str = "") -> None:
        self.job = job
        self.size = size
        self.limit = limit
        super().__init__(
            f"{job}: the message has {size:,} bytes, {size - limit:,} over the limit of {limit:,}. "
            f"Store the data (S3, a table) and pass its address{cure}."
        )


class UndeclaredSend(EnqueueError):
    """A job sent to a job that it does not list in `sends=`. Nothing was sent."""

    def __init__(self, sender: str, job: str) -> None:
        self.sender = sender
        self.job = job
        super().__init__(
            f"{sender} sends {job}, but does not declare it. Add sends=[...] with {job} to the @job of {sender}: "
            "that grants its worker the right to send and gives it the queue's address."
        )


class NotSent(EnqueueError):
    """The queue did not take all: `report.rejected` are refused for good, `report.unsent` are safe to send again. The
    other `report.accepted` are in."""

    def __init__(self, report: Report, reason: str) -> None:
        self.report = report
        self.reason = reason
        super().__init__(f"{report.summary}: {reason}")

    def within(self, report: Report) -> NotSent:
        """The same, of more calls."""
        return NotSent(report, self.reason)


class QueueFull(NotSent):
    """A queue's `admit=` took no more; `report.unsent` has what was not sent, safe to send again after `retry_after`.

    `queue` is its name, `reading` what it held: None where that could not be read and `on_error` is "closed".
    `retry_after` differs from caller to caller, so that they do not all come back at once. A job that lets it through
    is put off for that time, and no attempt is charged.
    """

    def __init__(self, report: Report, queue: str, rejection: Reject) -> None:
        self.queue = queue
        self.rejection = rejection
        self.reading = rejection.reading
        self.retry_after: timedelta = rejection.retry_after
        seconds = rejection.retry_after.total_seconds()
        cure = f"Send again after {seconds:g} s, shed the work, or raise admit= of the queue"
        super().__init__(report, f"queue {queue} is full: {rejection.reason}. {cure}")

    def within(self, report: Report) -> QueueFull:
        return QueueFull(report, self.queue, self.rejection)


class UnknownOutcome(EnqueueError):
    """No answer came for `report.unknown`: they may be in the queue. Sending them again is safe where their key is
    the work's identity, since the second one is suppressed; with EACH_ENQUEUE it may run twice."""

    def __init__(self, report: Report, reason: str) -> None:
        self.report = report
        self.reason = reason
        super().__init__(f"{report.summary}: {reason}")

    def within(self, report: Report) -> UnknownOutcome:
        """The same, of more calls."""
        return UnknownOutcome(report, self.reason)


class CommitError(LoomjobsError):
    """ctx.commit refused what it was given: nothing of it was written, and the job has not ended."""


class CommitRefused(CommitError):
    """DynamoDB refused one of the items, such as by its condition; nothing of the commit was written.

    `place` is its index in `items=` (None: the request as a whole), `item` what is stored in its place, where the
    action asked for it with `ReturnValuesOnConditionCheckFailure="ALL_OLD"`.
    """

    def __init__(self, place: int | None, reason: str, item: Mapping[str, Any] | None = None) -> None:
        self.place = place
        self.reason = reason
        self.item = item
        where = "the commit" if place is None else f"items[{place}] of the commit"
        super().__init__(f"{where} was refused, and nothing of it was written: {reason}")


class CommitTooLarge(CommitError):
    """More than one transaction takes. Nothing was written."""

    def __init__(self, what: str, given: int, limit: int) -> None:
        self.given = given
        self.limit = limit
        super().__init__(
            f"{what}: {given:,}; DynamoDB takes {limit:,} in one transaction. Commit less at once: let one committed "
            "call fan the rest out, or keep the data elsewhere (S3) and commit its address."
        )


class InvalidCommit(CommitError, ValueError):
    """An action of `items=` does not have the form of TransactWriteItems. Nothing was written."""


class StoreError(LoomjobsError):
    """The execution record could not be used as asked."""


class StoreUnavailable(StoreError):
    """The store did not answer, throttled, or refused access. Nothing runs without a claim."""


class LostClaim(StoreError):
    """Another worker has taken this job over; what this one did since is not recorded."""
