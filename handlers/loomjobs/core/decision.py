"""What is to happen to a delivery, as a value: policy returns it, an adapter carries it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Reason: TypeAlias = Literal[
    "bad-envelope",
    "unroutable",
    "newer-version",
    "bad-payload",
    "bad-key",
    "payload-missing",
    "payload-tampered",
    "key-conflict",
    "permanent",
    "exhausted",
    "crashed",
    "returned-awaitable",
    "deadline",
    "receive-budget",
    "retention",
]
"""Why a message is in a dead-letter queue. The same words in the failure report, metrics, CLI and docs."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed run. `kind` is the exception's class, `fingerprint` groups failures of the same cause."""

    kind: str
    message: str
    fingerprint: str
    stack: str = ""


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The message is done with: the job ended now, or had ended before (`why` is then the duplicate's cause)."""

    why: Literal["succeeded", "duplicate", "cancelled", "expired", "removed", "dead-before"]
    since: str | None = None
    """When the earlier run ended, ISO 8601, for a duplicate."""
    note: str = ""
    """What the team wrote about it: the `why` of a removed job's tombstone."""


@dataclass(frozen=True, slots=True)
class RetryIn:
    """A failed attempt was charged; the next may start after `delay` seconds."""

    delay: float
    failure: Failure
    attempt: int


@dataclass(frozen=True, slots=True)
class DeferFor:
    """Not now, and nobody's fault: no attempt is charged. `delay` in seconds."""

    delay: float
    why: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """To the dead-letter queue, with its reason, and then acknowledged."""

    reason: Reason
    failure: Failure | None = None
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Renewed:
    """Sent again as a fresh message that arrives after `delay` seconds, and then acknowledged."""

    delay: float
    why: str


@dataclass(frozen=True, slots=True)
class HandBack:
    """Report as failed and do not touch the visibility: what happened is not known or not recorded."""

    why: str


Decision: TypeAlias = Acknowledge | RetryIn | DeferFor | DeadLetter | Renewed | HandBack


def is_gone(decision: Decision) -> bool:
    """The message leaves its queue."""
    return isinstance(decision, (Acknowledge, DeadLetter, Renewed))
