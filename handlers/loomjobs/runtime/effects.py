"""What a run makes durable before it ends: checkpoints, and its effects together with its completion."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from loomjobs.core.commit import Action, Commit, Transactor, make_commit, settle
from loomjobs.core.errors import InvalidCommit, InvalidOption, LostClaim, StoreUnavailable
from loomjobs.core.outgoing import Outgoing
from loomjobs.core.payload import decode, encode, parse
from loomjobs.core.record import Record
from loomjobs.core.result import encode_result
from loomjobs.core.work import Work
from loomjobs.runtime.ledger import Ledger
from loomjobs.runtime.ports import Clock

S = TypeVar("S")

SHOW_EVERY = timedelta(seconds=2)
"""`ctx.progress` writes at most this often: each is one write of DynamoDB."""
LOOK_EVERY = timedelta(seconds=5)
"""`ctx.cancelled` reads the record at most this often."""


@dataclass(slots=True, kw_only=True)
class Effects:
    """Of one run. `committed`: its own completion is durable. `cancelled`: somebody asked for it. `lost`: its claim is
    another's by now, or can no longer be kept."""

    work: Work
    record: Record
    ledger: Ledger
    transactor: Transactor
    clock: Clock
    committed: bool = False
    cancelled: bool = False
    lost: bool = False
    looked_at: datetime | None = None
    shown_at: datetime | None = None
    tried: Commit | None = None

    def checkpoint(self, state: object) -> None:
        """Durable when it returns. Raises BadPayload for a state that cannot be kept, LostClaim, StoreUnavailable."""
        text = encode(state, type(state)).decode()
        self.ledger.checkpoint(self.record, text, version=self.work.job.options.version)
        self._keep(text)

    def progress(self, done: int, total: int) -> None:
        """Shown every two seconds at most, and at the end. A store that does not answer is no reason to fail a job.
        Raises InvalidOption, LostClaim."""
        if not 0 <= done <= total:
            raise InvalidOption(f"{self.work.job.name}: progress({done}, {total}): give how many of how many are done")
        now = self.clock()
        if done < total and self.shown_at is not None and now - self.shown_at < SHOW_EVERY:
            return
        self.shown_at = now
        with suppress(StoreUnavailable):
            self.ledger.progress(self.record, done, total)

    def resume(self, type_: type[S]) -> S | None:
        """The last checkpoint, decoded as strictly as a payload, or None before the first."""
        text = self.record.checkpoint
        return None if text is None else decode(parse(text), type_)

    def commit(self, *, items: Sequence[Action], messages: Sequence[Outgoing], result: object) -> None:
        """The author's items, the messages and the completion, all or nothing.

        Raises CommitRefused for a condition of an item, CommitTooLarge, InvalidCommit, LostClaim, StoreUnavailable.
        After StoreUnavailable the same commit may be tried again, and no other: the first may have been written.
        """
        if self.committed:
            raise InvalidCommit(f"{self.work.job.name}: this run has committed already; a commit completes the job")
        text, _ = encode_result(result, self.work.job)
        now = self.clock()
        made = make_commit(
            self.record, items=items, messages=messages, result=text, now=now, expires=self.ledger.expires()
        )
        if self.tried is not None and self.tried.token != made.token:
            raise InvalidCommit(
                f"{self.work.job.name}: another commit of this run had no answer, and may be written; let the run fail"
            )
        try:
            settle(self.transactor.commit(made), job=self.work.job.name)
        except StoreUnavailable:
            self.tried = made
            raise
        except LostClaim:
            self.lost = True
            raise
        self.committed = True

    def is_cancelled(self) -> bool:
        now = self.clock()
        if not self.cancelled and (self.looked_at is None or now - self.looked_at >= LOOK_EVERY):
            self.looked_at = now
            record = self.ledger.read(self.record.id)
            self.cancelled = record is not None and record.cancelled
        return self.cancelled

    def _keep(self, text: str) -> None:
        self.record = replace(self.record, checkpoint=text, checkpoint_version=self.work.job.options.version)
