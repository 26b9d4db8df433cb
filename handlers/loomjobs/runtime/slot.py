"""One delivery on its way through a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from loomjobs.core.claim import Claim
from loomjobs.core.delivery import Delivery
from loomjobs.core.record import Record
from loomjobs.core.work import Work
from loomjobs.runtime.admission import Hold, Result
from loomjobs.runtime.context import RunContext
from loomjobs.runtime.ports import Run
from loomjobs.runtime.remote import Remote


@dataclass(slots=True, eq=False)
class Slot:
    """`place` is its index in the batch. What it holds comes one after the other: a hold of the brakes, a claim, a
    context while it runs, a result for the brakes. `remote` is its payload where that is beside its message, `lapsed`
    the record of the run that crashed before it, `reserved` the slot of a rate that its record keeps (epoch ms), `hush`
    ends its heartbeat."""

    place: int
    delivery: Delivery
    work: Work
    run: Run
    remote: Remote | None = None
    lapsed: Record | None = None
    reserved: int | None = None
    hold: Hold | None = None
    claim: Claim | None = None
    context: RunContext | None = None
    started: datetime | None = None
    hush: Callable[[], None] | None = None
    result: Result = "refused"
    blamed: str | None = None

    @property
    def group(self) -> str | None:
        return self.delivery.group if self.delivery.kind == "fifo" else None

    @property
    def is_first(self) -> bool:
        """Nothing should be on record yet: its claim can be a plain insert."""
        return self.delivery.receives == 1 and not self.work.envelope.redrives
