"""The execution record: one item per (job, key), and its states. `claim` and `ending` hold the writes between them.

ABSENT | QUEUED | WAITING (due)  --claim-->     INPROGRESS
INPROGRESS --ok-->       COMPLETED              INPROGRESS --failed, attempts left--> WAITING (n + 1)
INPROGRESS --deferred--> WAITING                INPROGRESS --permanent or exhausted--> DYING --in the DLQ--> DEAD
INPROGRESS (lapsed) --take-over--> INPROGRESS, or DYING when its attempts are gone
DEAD --another message, sent after the death--> INPROGRESS (a redrive always runs)

Every write after the claim is fenced by the claim's random owner, holds absolute values and can be replayed.
`status`, `in_progress_expiration`, `expiration` and `data` are Powertools' attributes with Powertools' meaning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from loomjobs.core.decision import Failure
from loomjobs.core.write import Absent, AllOf, AnyOf, Condition, Is, Item

QUEUED: Final = "QUEUED"
INPROGRESS: Final = "INPROGRESS"
WAITING: Final = "WAITING"
DYING: Final = "DYING"
DEAD: Final = "DEAD"
COMPLETED: Final = "COMPLETED"
CANCELLED: Final = "CANCELLED"
EXPIRED: Final = "EXPIRED"

HISTORY: Final = 10
"""Failures kept in a record; the newest win."""


def record_id(job: str, key: str) -> str:
    """The record's primary key: readable while it fits 512 bytes, else the key's hash."""
    text = f"{job}#{key}"
    if len(text.encode("utf-8", "surrogatepass")) <= 512:
        return text
    return f"{job}#sha256:{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Record:
    """A stored record as this version reads it: unknown attributes are ignored, missing ones have their first value."""

    id: str
    status: str
    owner: str
    epoch: int
    attempts: int
    lease: int
    not_before: int
    wave: int
    suspicions: int
    uncharged: int
    payload_hash: str | None
    message: str
    sent: int
    dead_at: int
    ended: int
    why: str
    expires: int
    cancelled: bool
    history: tuple[Mapping[str, Any], ...]
    result: str | None
    receives: int = 1
    slot: int | None = None
    checkpoint: str | None = None
    checkpoint_version: int = 1
    continued: int = 0
    deferred: int = 0
    version: str = ""
    reserved_by: str = ""
    reserved_until: int = 0
    queued_at: int = 0
    progress: tuple[int, int] | None = None

    def is_due(self, now: int) -> bool:
        """It waits for a worker, and not for a later instant; `now` in epoch milliseconds."""
        return self.status in (WAITING, QUEUED) and self.not_before <= now and not self.cancelled

    @property
    def is_released(self) -> bool:
        """It was reserved for a message that was not sent after all."""
        return self.status == QUEUED and not self.queued_at and not self.reserved_until

    def unchanged(self) -> Condition:
        """Nobody has claimed, ended or reopened the record since it was read."""
        owner: Condition = Is("owner", "=", self.owner) if self.owner else Absent("owner")
        epoch: Condition = Is("epoch", "=", self.epoch) if self.epoch else AnyOf(Absent("epoch"), Is("epoch", "=", 0))
        return AllOf(owner, epoch, Is("status", "=", self.status))

    @classmethod
    def of(cls, item: Item) -> Record:
        return cls(
            id=item["id"],
            status=item.get("status", ""),
            owner=item.get("owner", ""),
            epoch=item.get("epoch", 0),
            attempts=item.get("n", 0),
            lease=item.get("in_progress_expiration", 0),
            not_before=item.get("nb", 0),
            wave=item.get("wave", 1),
            suspicions=item.get("susp", 0),
            uncharged=item.get("free", 0),
            payload_hash=item.get("ph"),
            message=item.get("mid", ""),
            sent=item.get("sent", 0),
            dead_at=item.get("dead_at", 0),
            ended=item.get("ended", 0),
            why=item.get("why", ""),
            expires=item.get("expiration", 0),
            cancelled="cancel" in item,
            history=tuple(item.get("hist", ())),
            result=item.get("data"),
            receives=item.get("rc", 1),
            slot=item.get("slot"),
            checkpoint=item.get("ck"),
            checkpoint_version=item.get("ckv", 1),
            continued=item.get("cont", 0),
            deferred=item.get("dfr", 0),
            version=item.get("ver", ""),
            reserved_by=item.get("rsv", ""),
            reserved_until=item.get("rsv_until", 0),
            queued_at=item.get("qat", 0),
            progress=(item["done"], item["total"]) if "done" in item else None,
        )


def entry(failure: Failure, *, now: int, count: int, version: str = "") -> dict[str, Any]:
    """One line of a record's history; `version` is the worker's that ran it."""
    return {
        "ver": version,
        "kind": failure.kind,
        "message": failure.message[:500],
        "fingerprint": failure.fingerprint,
        "at": now,
        "n": count,
    }


def extended(history: Sequence[Mapping[str, Any]], entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The history with one more entry, bounded."""
    return [*history, entry][-HISTORY:]
