"""Commits in memory, with the outbox and its relay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from loomjobs.core.commit import Action, Commit, CommitOutcome, Committed, FenceLost, ItemRefused
from loomjobs.core.ending import landed
from loomjobs.core.errors import StoreUnavailable
from loomjobs.core.outbox import BadRow, Row, age
from loomjobs.core.write import apply
from loomjobs.local.store import Fault, MemoryStore
from loomjobs.runtime.relay import Forwarded, Outlet, Relay


@dataclass
class MemoryOutbox:
    """Implements the relay's Outbox. While `stuck`, what was sent is not deleted: the relay crashed in between."""

    rows: dict[str, Row] = field(default_factory=dict[str, Row])
    stuck: bool = False

    def delete(self, rows: Sequence[Row], /) -> None:
        for row in rows:
            if not self.stuck:
                self.rows.pop(row.id, None)

    def written_before(self, at: int, /) -> Iterator[Row | BadRow]:
        yield from [row for row in self.rows.values() if row.at <= at]


@dataclass
class RelayLog:
    """A relay's journal that keeps everything, for assertions."""

    rows_sent: list[Row] = field(default_factory=list[Row])
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    lags: list[int] = field(default_factory=list[int])

    def sent(self, rows: Sequence[Row], /, *, now: datetime) -> None:
        self.rows_sent.extend(rows)

    def refused(self, id: str, queue: str, reason: str, /) -> None:
        self.reasons[id] = reason

    def postponed(self, rows: Sequence[Row], reason: str, /) -> None:
        self.reasons |= {row.id: reason for row in rows}

    def lag(self, milliseconds: int, /) -> None:
        self.lags.append(milliseconds)


class MemoryTransactor:
    """Implements core's Transactor on a MemoryStore; `committed` has the authors' items.

    With a `client` (boto3's, against a table that a test made) the items are carried out there; without one their
    conditions are not looked at.
    `faults` is consumed one per commit: `refused` fails before it is written, `reply-lost` after. `refusals` likewise:
    the outcome of an author's item that is refused, as long as the fence holds.
    """

    def __init__(self, store: MemoryStore, outlet: Outlet) -> None:
        self.store = store
        self.outlet = outlet
        self.outbox = MemoryOutbox()
        self.journal = RelayLog()
        self.committed: list[Action] = []
        self.client: Any = None
        self.faults: list[Fault] = []
        self.refusals: list[ItemRefused] = []

    def beside(self, store: MemoryStore) -> MemoryTransactor:
        """For records of another store; everything else is shared."""
        other = copy(self)
        other.store = store
        return other

    def commit(self, commit: Commit, /) -> CommitOutcome:
        fault = self.faults.pop(0) if self.faults else "none"
        if fault == "refused":
            raise StoreUnavailable("the store refused the commit (injected)")
        outcome = self._apply(commit)
        if fault == "reply-lost":
            raise StoreUnavailable("the answer to the commit was lost (injected)")
        return outcome

    def relay(self, now: datetime) -> Forwarded:
        """Send all rows, as the stream does at once."""
        return self._relay(now).forward(list(self.outbox.rows.values()))

    def sweep(self, now: datetime) -> int:
        """Send the rows that the stream left behind."""
        return self._relay(now).sweep(enough_time=lambda: True)

    def oldest(self, now: datetime) -> timedelta:
        """Age of the oldest row, 0 where there is none."""
        ages = [age(row, now=now.astimezone(UTC)) for row in self.outbox.rows.values()]
        return timedelta(milliseconds=max(ages, default=0))

    def _relay(self, now: datetime) -> Relay:
        return Relay(outbox=self.outbox, outlet=self.outlet, journal=self.journal, clock=lambda: now)

    def _apply(self, commit: Commit) -> CommitOutcome:
        written = apply(commit.complete, self.store.items.get(commit.record.id))
        if not written.applied or written.item is None:
            return Committed() if landed(commit.record, commit.complete, written.item) else FenceLost()
        refusal = self.refusals.pop(0) if self.refusals else self._carry_out(commit.items)
        if refusal is not None:
            return refusal
        self.store.items[commit.record.id] = written.item
        self.committed.extend(commit.items)
        self.outbox.rows |= {row.id: row for row in commit.rows}
        return Committed()

    def _carry_out(self, items: Sequence[Action]) -> ItemRefused | None:
        if self.client is None or not items:
            return None
        try:
            self.client.transact_write_items(TransactItems=list(items))
        except self.client.exceptions.TransactionCanceledException as refusal:
            reasons = enumerate(refusal.response["CancellationReasons"])
            place, reason = next((place, each) for place, each in reasons if each.get("Code", "None") != "None")
            return ItemRefused(place, reason["Code"], reason.get("Item"))
        return None
