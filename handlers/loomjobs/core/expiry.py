"""Deadlines: `expires` of an envelope is the instant after which its job is not worth running.

A job that is late and never failed ends as EXPIRED, without a dead letter: nothing went wrong with it. One that had
failed before is a dead letter `deadline`, because there is a failure to look at. A run that began in time may end
after its deadline, and its success counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from loomjobs.core.claim import Claim, Ended, Lapsed, Replace, Resume, Verdict, Wait, Won, judge, takeover_write
from loomjobs.core.record import DYING, EXPIRED, INPROGRESS, QUEUED, WAITING, Record
from loomjobs.core.unrun import flip, insert, renew
from loomjobs.core.write import AllOf, Is, Write

Fate: TypeAlias = Literal["run", "expire", "bury"]


@dataclass(frozen=True, slots=True)
class Expire:
    """Nobody has run it to a failure: end it as EXPIRED by this write."""

    write: Write


@dataclass(frozen=True, slots=True)
class Bury:
    """It failed before: this write takes it to DYING with the reason `deadline`, and its hand-off follows."""

    write: Write


LateVerdict: TypeAlias = Verdict | Expire | Bury


def verdict_on_deadline(expires: datetime | None, now: datetime, attempts: int) -> Fate:
    """What a job is before it starts. `attempts` are the failures and crashes so far; at the instant itself it is
    still in time."""
    if expires is None or now <= expires:
        return "run"
    return "bury" if attempts else "expire"


def verdict_on_retry(expires: datetime | None, now: datetime, wait: float) -> Fate:
    """What a failed run is: to be retried, or dead by its deadline since the retry, `wait` seconds from now, would
    start after it."""
    return "run" if expires is None or now + timedelta(seconds=wait) <= expires else "bury"


def failures(record: Record) -> int:
    """Failures and crashes that a record knows of, charged or not."""
    return max(record.attempts, len(record.history), record.suspicions)


def expire_write(claim: Claim) -> Write:
    """An absent record → EXPIRED: the only write of a job that is late on its first delivery."""
    return insert(claim.id, _expired(claim))


def judge_late(old: Record, claim: Claim) -> LateVerdict:
    """What to do with a late delivery, after `old` refused `expire_write`. Pure and total; verdicts that it shares with
    `judge` mean the same. Lapsed is returned for a crashed run that was to be cancelled, which is abandoned."""
    verdict = judge(old, claim)
    match verdict:
        case Won() if old.status == EXPIRED:
            return Ended()
        case Won() if old.status == DYING:
            return Resume()
        case Replace():
            return Expire(renew(old, _expired(claim)))
        case Lapsed() if not old.cancelled:
            return Bury(_bury_crashed(claim, old))
        case Wait() if old.status in (WAITING, QUEUED):
            return Bury(_bury_waiting(claim, old)) if failures(old) else Expire(flip(old, _expired(claim)))
        case _:
            return verdict


def expired_write(record: Record, *, now: int, expires: int) -> Write:
    """INPROGRESS → EXPIRED by the owner of a claim whose job did not start in time, and had not failed before."""
    condition = AllOf(Is("owner", "=", record.owner), Is("status", "=", INPROGRESS))
    sets = {"status": EXPIRED, "ended": now, "expiration": expires}
    return Write(id=record.id, condition=condition, sets=sets, wants_item=False)


def _expired(claim: Claim) -> dict[str, Any]:
    return {
        "status": EXPIRED,
        "owner": claim.owner,
        "ph": claim.payload_hash,
        "mid": claim.message,
        "sent": claim.sent,
        "rd": claim.redrives,
        "rc": claim.receives,
        "ver": claim.version,
        "ended": claim.now,
        "expiration": claim.expires,
    }


def _bury_waiting(claim: Claim, old: Record) -> Write:
    sets = _dying(claim) | {"epoch": old.epoch + 1}
    return Write(id=claim.id, condition=old.unchanged(), sets=sets, removes=("nb", "slot"))


def _bury_crashed(claim: Claim, old: Record) -> Write:
    """The take-over's own write, so that the crash is charged and kept, to an end that does not run it again."""
    taken = takeover_write(claim, old, attempts=0)
    return replace(taken, sets={**taken.sets, **_dying(claim)})


def _dying(claim: Claim) -> dict[str, Any]:
    return claim.fresh() | {"status": DYING, "why": "deadline", "susp": 0}
