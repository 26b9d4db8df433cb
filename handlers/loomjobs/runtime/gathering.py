"""Fan-in: a page of a batch that is over is told to the batch, and a batch that is over to whoever waits for it.

Send, then note that it was sent: a crash in between sends it again, with the same id, and its record suppresses it.
"""

from __future__ import annotations

from dataclasses import dataclass

from loomjobs.core.call import Report
from loomjobs.core.errors import NotSent, StoreUnavailable, UnknownOutcome
from loomjobs.core.fan import Page, Whole, calls_id, over_write, told_write
from loomjobs.core.follow import Follow
from loomjobs.core.write import Write
from loomjobs.runtime.ports import Clock, Store
from loomjobs.runtime.producer import Producer


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering:
    """`ttl` is that of records, seconds."""

    store: Store
    producer: Producer
    clock: Clock
    ttl: int

    def page(self, batch: str, page: int, write: Write) -> None:
        """Write to a page, and tell the batch where that ended it. Raises StoreUnavailable, NotSent, UnknownOutcome."""
        written = self.store.write(write)
        item = written.item if written.item is not None else self.store.read(write.id)
        if item is None:
            raise StoreUnavailable(f"page {page} of batch {batch} is gone")
        state = Page.of(item)
        if state.is_sound or state.is_over:
            self.whole(batch, over_write(batch, page, sound=state.is_sound, expires=self.expires()))

    def whole(self, batch: str, write: Write) -> Whole:
        """Write to the batch's own item, and send what is due where that ended it. Raises as `page`."""
        written = self.store.write(write)
        item = written.item if written.item is not None else self.store.read(write.id)
        whole = Whole.of(item or {})
        if whole.is_complete and not whole.completed:
            self._tell(batch, "completed")
        elif whole.has_failed and not whole.failed:
            self._tell(batch, "failed")
        return whole

    def expires(self) -> int:
        return int(self.clock().timestamp()) + self.ttl

    def _tell(self, batch: str, what: str) -> None:
        calls = self.store.read(calls_id(batch)) or {}
        if what in calls:
            (sent,) = self.producer.forward([Follow.parse(calls[what])])
            if sent.outcome != "accepted":
                error = UnknownOutcome if sent.outcome == "unknown" else NotSent
                raise error(Report(accepted=0), sent.reason)
        now = int(self.clock().timestamp() * 1000)
        self.store.write(told_write(batch, what, now=now, expires=self.expires()))
