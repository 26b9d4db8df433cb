"""The execution record in use: claim, and the endings, each one conditional write."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from loomjobs.core.claim import (
    Claim,
    Lapsed,
    Replace,
    Resume,
    Verdict,
    Wait,
    Won,
    claim_write,
    judge,
    replace_write,
    takeover_write,
)
from loomjobs.core.decision import Failure, Reason
from loomjobs.core.ending import bury_write, complete_write, defer_write, die_write, fail_write, landed
from loomjobs.core.errors import LostClaim
from loomjobs.core.record import DYING, Record
from loomjobs.core.write import Write, Written
from loomjobs.runtime.ports import Clock, Store

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


class Ledger:
    """Writes records. Raises StoreUnavailable when the store did not answer, LostClaim when the fence refused."""

    def __init__(self, store: Store, *, clock: Clock, ttl: int) -> None:
        self._store = store
        self._clock = clock
        self._ttl = ttl

    def claim(self, claim: Claim, *, attempts: int) -> Claimed:
        """Try to hold the record; settle one by one what stands in the way."""
        written = self._store.write(claim_write(claim))
        for _ in range(_ROUNDS):
            if written.applied:
                return _held(written)
            if written.item is None:
                written = self._store.write(claim_write(claim))
                continue
            old = Record.of(written.item)
            verdict = judge(old, claim)
            match verdict:
                case Won():
                    return _held(Written(True, written.item))
                case Replace():
                    written = self._store.write(replace_write(claim, old))
                case Lapsed():
                    written = self._store.write(takeover_write(claim, old, attempts=attempts))
                case _:
                    return Refused(verdict, old)
        return Refused(Wait(claim.now + 1_000, "contended"), None)

    def complete(self, record: Record, *, result: str | None) -> None:
        self._end(record, complete_write(record, now=self._now(), expires=self.expires(), result=result))

    def fail(self, record: Record, failure: Failure, *, not_before: int) -> None:
        write = fail_write(record, failure, now=self._now(), not_before=not_before, expires=self.expires())
        self._end(record, write)

    def defer(self, record: Record, *, not_before: int) -> None:
        self._end(record, defer_write(record, not_before=not_before, expires=self.expires()))

    def die(self, record: Record, reason: Reason, failure: Failure | None) -> None:
        self._end(record, die_write(record, reason, failure, now=self._now(), expires=self.expires()))

    def bury(self, record: Record) -> None:
        self._end(record, bury_write(record, now=self._now(), expires=self.expires()))

    def expires(self) -> int:
        """The TTL of a record written now, epoch seconds; refreshed by every write."""
        return self._now() // 1000 + self._ttl

    def _end(self, record: Record, write: Write) -> None:
        written = self._store.write(write)
        if not written.applied and not landed(record, write, written.item):
            raise LostClaim(f"{record.id}: another worker holds it now")

    def _now(self) -> int:
        return millis(self._clock())


def millis(moment: datetime) -> int:
    """Epoch milliseconds."""
    return int(moment.timestamp() * 1000)


def _held(written: Written) -> Claimed:
    assert written.item is not None
    record = Record.of(written.item)
    return Refused(Resume(), record) if record.status == DYING else Held(record)
