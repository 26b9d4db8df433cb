"""Claiming a record: the conditional writes of a worker that wants to run a job, and what their refusal means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from loomjobs.core import defaults
from loomjobs.core.record import (
    CANCELLED,
    COMPLETED,
    DEAD,
    DYING,
    EXPIRED,
    INPROGRESS,
    QUEUED,
    WAITING,
    Record,
    extended,
)
from loomjobs.core.write import Absent, AllOf, AnyOf, Condition, Is, OneOf, Write

UNCHARGED_CRASHES: Final = 3
"""Crashes of a shared wave that are charged to nobody, before they are charged after all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a worker brings to claim a record. Times are epoch milliseconds, `expires` epoch seconds."""

    id: str
    owner: str
    now: int
    lease: int
    payload_hash: str
    message: str
    sent: int
    expires: int
    version: str
    redrives: int = 0
    receives: int = 1
    wave: int = 1

    def fresh(self) -> dict[str, Any]:
        """Attributes that every kind of claim sets."""
        return {
            "status": INPROGRESS,
            "owner": self.owner,
            "in_progress_expiration": self.lease,
            "wave": self.wave,
            "mid": self.message,
            "sent": self.sent,
            "rd": self.redrives,
            "rc": self.receives,
            "ver": self.version,
            "expiration": self.expires,
        }


@dataclass(frozen=True, slots=True)
class Won:
    """The claim had been written: its answer was lost."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now: in progress elsewhere, or its backoff is not over. `until` in epoch milliseconds."""

    until: int
    why: str


@dataclass(frozen=True, slots=True)
class Lapsed:
    """In progress under a lease that is over: its worker crashed, this delivery may take over."""


@dataclass(frozen=True, slots=True)
class Replace:
    """The record is stale (its TTL passed) or dead and redriven: start it anew."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """The key belongs to other work: same key, other payload."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Finished before: this delivery is a duplicate."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Its hand-off to the dead-letter queue was begun and not finished."""


@dataclass(frozen=True, slots=True)
class Buried:
    """Dead before, and this is the message that died, or one sent earlier."""


Verdict: TypeAlias = Won | Wait | Lapsed | Replace | Conflict | Ended | Resume | Buried


def judge(old: Record, claim: Claim) -> Verdict:
    """What to do after `old` refused `claim`. Pure, total: an unknown status of a newer release waits."""
    if old.owner == claim.owner:
        return Won()
    if old.expires * 1000 <= claim.now:
        return Replace()
    if old.status == INPROGRESS:
        free_at = old.lease + defaults.CLOCK_SKEW * 1000
        if free_at > claim.now:
            return Wait(free_at, "in progress elsewhere")
        # the crashed run was of that payload: taking it over for another would lose it
        return Lapsed() if old.payload_hash in (None, claim.payload_hash) else Conflict()
    if old.payload_hash not in (None, claim.payload_hash):
        if old.status == QUEUED and not old.queued_at:  # reserved for a message that may never come
            return Wait(old.reserved_until, "reserved") if old.reserved_until > claim.now else Replace()
        return Conflict()
    if old.status in (WAITING, QUEUED):
        if old.cancelled:
            return Ended()
        return Wait(max(old.not_before, claim.now + 1000), "backing off")
    if old.status == DYING:
        return Resume()
    if old.status == DEAD:
        same = old.message == claim.message or claim.sent <= old.dead_at
        return Buried() if same else Replace()
    if old.status in (COMPLETED, CANCELLED, EXPIRED):
        return Ended()
    return Wait(claim.now + 60_000, f"record of a newer release ({old.status})")


def insert_write(claim: Claim) -> Write:
    """Claim a record that should be absent: what a first delivery expects, and a batch call can carry."""
    return Write(
        id=claim.id,
        condition=Absent("id"),
        sets=claim.fresh() | {"epoch": 1, "n": 0, "susp": 0, "free": 0, "ph": claim.payload_hash},
        wants_item=False,
    )


def slot_write(claim: Claim, *, at: int) -> Write:
    """Let an absent or due record wait for its slot of a rate, `at` in epoch milliseconds. Nobody holds it then."""
    return Write(
        id=claim.id,
        condition=_free(claim),
        sets={"status": WAITING, "nb": at, "slot": at, "expiration": claim.expires},
        absent_sets={"n": 0, "susp": 0, "free": 0, "epoch": 0, "ph": claim.payload_hash},
        wants_item=False,
    )


def claim_write(claim: Claim, *, early: bool = False) -> Write:
    """Claim a record that is absent, or waiting and due; with `early` also one that waits for a later instant."""
    return Write(
        id=claim.id,
        condition=_free(claim, early=early),
        sets=claim.fresh(),
        absent_sets={"n": 0, "susp": 0, "free": 0, "ph": claim.payload_hash},
        adds={"epoch": 1},
        removes=("nb", "slot"),
    )


def _free(claim: Claim, *, early: bool = False) -> Condition:
    due = AllOf(
        OneOf("status", (WAITING, QUEUED)),
        Is("expiration", ">", claim.now // 1000),
        *([] if early else [AnyOf(Absent("nb"), Is("nb", "<=", claim.now))]),
        AnyOf(Absent("ph"), Is("ph", "=", claim.payload_hash)),
        Absent("cancel"),
        *([] if claim.wave == 1 else [AnyOf(Absent("susp"), Is("susp", "=", 0))]),
    )
    return AnyOf(Absent("id"), due)


def takeover_write(claim: Claim, old: Record, *, attempts: int) -> Write:
    """Take over from a crashed worker, which is charged as an attempt when it ran this job alone.

    When that uses up `attempts`, the record goes to DYING instead (`crashed`), and the job does not run.
    """
    charged = old.wave == 1 or old.uncharged >= UNCHARGED_CRASHES
    count = old.attempts + charged
    crash = {
        "kind": "Crashed",
        "message": "the worker process ended during the run, or could not record its end",
        "at": claim.now,
        "n": count,
        "ver": old.version,
    }
    sets = claim.fresh() | {
        "n": count,
        "free": old.uncharged + (not charged),
        "susp": old.suspicions + 1,
        "epoch": old.epoch + 1,
        "hist": extended(old.history, crash),
    }
    if count >= attempts:
        sets |= {"status": DYING, "why": "crashed"}
    lapsed = claim.now - defaults.CLOCK_SKEW * 1000
    return Write(
        id=claim.id,
        condition=AllOf(old.unchanged(), Is("in_progress_expiration", "<=", lapsed)),
        sets=sets,
    )


def replace_write(claim: Claim, old: Record) -> Write:
    """Start anew over a stale or dead record: attempts, suspicions and results are those of a first run."""
    sets = claim.fresh() | {"n": 0, "susp": 0, "free": 0, "epoch": old.epoch + 1, "ph": claim.payload_hash}
    removes = tuple("nb slot dead_at why ck ckv cont dfr data ended hist cancel done total".split())
    return Write(id=claim.id, condition=old.unchanged(), sets=sets, removes=removes)
