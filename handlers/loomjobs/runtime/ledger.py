"""The execution record in use: claims and endings, each one conditional write, many of them in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from loomjobs.core.cancel import asked, cancelled_write, unless_cancelled
from loomjobs.core.claim import (
    Claim,
    Replace,
    Resume,
    Verdict,
    Wait,
    Won,
    claim_write,
    insert_write,
    judge,
    replace_write,
    slot_write,
    takeover_write,
)
from loomjobs.core.decision import Failure, Reason
from loomjobs.core.ending import (
    bury_write,
    checkpoint_write,
    complete_write,
    continue_write,
    defer_write,
    die_write,
    fail_write,
    landed,
    progress_write,
    renew_write,
)
from loomjobs.core.errors import ConfigurationError, LostClaim, StoreUnavailable
from loomjobs.core.record import DYING, QUEUED, WAITING, Record
from loomjobs.core.write import Write, Written
from loomjobs.runtime.ports import Answer, Clock, Store

_LONGEST_TTL = 10 * 366 * 86_400
"""Seconds. A TTL in milliseconds, or past the year 3000, is none to DynamoDB, and records would stay for ever."""
_ROUNDS = 4
"""Tries of one claim: each refusal shows a newer record, so more rounds only mean heavy contention."""


@dataclass(frozen=True, slots=True)
class Held:
    """The claim is ours; every later write is fenced by its owner."""

    record: Record


@dataclass(frozen=True, slots=True)
class Refused:
    """The claim is not ours, and why."""

    verdict: Verdict
    record: Record | None


Claimed: TypeAlias = Held | Refused


@dataclass(frozen=True, slots=True)
class Closing:
    """The end of a run as a write that is still to be made durable; it rides with other jobs' claims."""

    record: Record
    write: Write


class Ledger:
    """Writes records. Raises StoreUnavailable when the store did not answer, LostClaim when the fence refused."""

    def __init__(self, store: Store, *, clock: Clock, ttl: int) -> None:
        """`ttl` in seconds. Raises ConfigurationError for one that DynamoDB would never act on."""
        if not 0 < ttl < _LONGEST_TTL:
            raise ConfigurationError(f"a TTL of {ttl} s is none: give whole seconds, up to ten years")
        self.store = store
        self.clock = clock
        self.ttl = ttl

    def claim(self, claim: Claim, *, early: bool = False) -> Claimed:
        """Try to hold the record; settle one by one what stands in the way, except a lapsed run, which is reported.

        `early` also takes one that waits for a later instant: to end it, not to run it.
        """
        return self._settle(claim, self.store.write(claim_write(claim, early=early)))

    def take_over(self, claim: Claim, old: Record, *, attempts: int) -> Claimed:
        """Claim after a crash; Refused with Resume when the crashes used up its attempts."""
        return self._settle(claim, self.store.write(takeover_write(claim, old, attempts=attempts)))

    def slot(self, claim: Claim, *, at: int) -> Refused | None:
        """Let the record wait for its slot; Refused when it is not free to."""
        written = self.store.write(slot_write(claim, at=at))
        if written.applied or written.item is None:
            return None
        old = Record.of(written.item)
        return Refused(judge(old, claim), old)

    def flush(self, closings: Sequence[Closing], claims: Sequence[Claim]) -> tuple[list[Answer], list[Answer]]:
        """Endings and first claims in one call; claims are of records that should be absent."""
        writes = [*(closing.write for closing in closings), *(insert_write(claim) for claim in claims)]
        answers = list(self.store.write_many(writes)) if writes else []
        return answers[: len(closings)], answers[len(closings) :]

    def claimed(self, claim: Claim, answer: Answer | None) -> Claimed:
        """What became of a claim of `flush`: asked for once more where no answer came. None claims it now."""
        if answer is None or isinstance(answer, StoreUnavailable):
            return self.claim(claim)
        if answer.applied:
            return Held(Record.of({"id": claim.id, **insert_write(claim).sets}))
        if answer.item is not None and answer.item.get("status") in (WAITING, QUEUED):
            return self.claim(claim)
        return self._settle(claim, answer)

    def closed(self, closing: Closing, answer: Answer) -> bool:
        """Whether the ending is durable; False where somebody asked to cancel the run, which may not wait then.
        Raises StoreUnavailable or LostClaim."""
        if isinstance(answer, StoreUnavailable):
            raise answer
        if answer.applied or landed(closing.record, closing.write, answer.item):
            return True
        if asked(closing.record, answer.item):
            return False
        raise LostClaim(f"{closing.record.id}: another worker holds it now")

    def completing(self, record: Record, *, result: str | None) -> Closing:
        return Closing(record, complete_write(record, now=self.now(), expires=self.expires(), result=result))

    def failing(self, record: Record, failure: Failure, *, not_before: int) -> Closing:
        write = fail_write(record, failure, now=self.now(), not_before=not_before, expires=self.expires())
        return Closing(record, unless_cancelled(write))

    def deferring(self, record: Record, *, not_before: int, why: str) -> Closing:
        write = defer_write(record, not_before=not_before, expires=self.expires(), why=why, now=self.now())
        return Closing(record, unless_cancelled(write))

    def continuing(self, record: Record, *, not_before: int) -> Closing:
        write = continue_write(record, not_before=not_before, expires=self.expires())
        return Closing(record, unless_cancelled(write))

    def cancelling(self, record: Record, failure: Failure | None) -> Closing:
        return Closing(record, cancelled_write(record, failure, now=self.now(), expires=self.expires()))

    def die(self, record: Record, reason: Reason, failure: Failure | None, *, attempts: int) -> None:
        write = die_write(record, reason, failure, now=self.now(), expires=self.expires(), attempts=attempts)
        self.end(Closing(record, write))

    def bury(self, record: Record) -> None:
        self.end(Closing(record, bury_write(record, now=self.now(), expires=self.expires())))

    def checkpoint(self, record: Record, state: str, *, version: int) -> None:
        self.end(Closing(record, checkpoint_write(record, state, version=version, expires=self.expires())))

    def progress(self, record: Record, done: int, total: int) -> None:
        self.end(Closing(record, progress_write(record, done, total, expires=self.expires())))

    def renew(self, record: Record, *, lease: int) -> bool:
        """Extend the lease; False when the run is to be cancelled. Raises LostClaim when another worker has it."""
        written = self.store.write(renew_write(record, lease=lease))
        if written.applied:
            return True
        if written.item is not None and written.item.get("owner") == record.owner:
            return False
        raise LostClaim(f"{record.id}: another worker holds it now")

    def write(self, write: Write) -> bool:
        """A write of something beside the records; whether it was applied."""
        return self.store.write(write).applied

    def read(self, id: str) -> Record | None:
        item = self.store.read(id)
        return None if item is None else Record.of(item)

    def expires(self) -> int:
        """The TTL of a record written now, epoch seconds; refreshed by every write."""
        return self.now() // 1000 + self.ttl

    def now(self) -> int:
        return millis(self.clock())

    def _settle(self, claim: Claim, written: Written) -> Claimed:
        for _ in range(_ROUNDS):
            if written.applied:
                return _held(written)
            if written.item is None:
                written = self.store.write(claim_write(claim))
                continue
            old = Record.of(written.item)
            verdict = judge(old, claim)
            match verdict:
                case Won():
                    return _held(written)
                case Replace():
                    written = self.store.write(replace_write(claim, old))
                case _:
                    return Refused(verdict, old)
        return Refused(Wait(claim.now + 1_000, "contended"), None)

    def end(self, closing: Closing) -> None:
        """Make an ending durable at once. Raises StoreUnavailable or LostClaim."""
        self.closed(closing, self.store.write(closing.write))


def millis(moment: datetime) -> int:
    """Epoch milliseconds."""
    return int(moment.timestamp() * 1000)


def _held(written: Written) -> Claimed:
    assert written.item is not None
    record = Record.of(written.item)
    return Refused(Resume(), record) if record.status == DYING else Held(record)
