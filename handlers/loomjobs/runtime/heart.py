"""The heartbeat of a long job: its claim, its message and its lock are kept for a short while at a time, so that a
crash is noticed soon after the last beat and not after the longest possible run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from loomjobs.core import defaults
from loomjobs.core.delivery import Delivery
from loomjobs.core.errors import LostClaim, StoreUnavailable
from loomjobs.core.visibility import visibility_timeout
from loomjobs.runtime.effects import Effects
from loomjobs.runtime.ports import Clock, Messages

BEATS = 3
"""Beats in each heartbeat interval: two may fail before the lease ends."""
_RETURN_MARGIN = 5
"""Seconds after the lease at which a crashed job's message is visible again."""


@dataclass(slots=True, kw_only=True)
class Heart:
    """Of one run. `keep` extends what else it holds, False when that is lost. `stop` ends the run itself: what it holds
    is gone, or can no longer be kept."""

    effects: Effects
    delivery: Delivery
    messages: Messages
    clock: Clock
    every: timedelta
    keep: Callable[[], bool]
    stop: Callable[[], None]
    hidden_until: datetime
    failed: int = field(default=0)

    def beat(self) -> bool:
        """Extend everything once, the claim first; False when there is nothing left to keep alive."""
        if self.effects.committed:
            return False
        try:
            lease = lease_until(self.clock(), self.every)
            alive = self.effects.ledger.renew(self.effects.record, lease=int(lease.timestamp() * 1000))
            self.effects.cancelled = self.effects.cancelled or not alive
        except LostClaim:
            return self._give_up()
        except StoreUnavailable:
            self.failed += 1
            return self._give_up() if self.failed >= BEATS - 1 else True
        self.failed = 0
        self.show()
        return self.keep() or self._give_up()

    def show(self) -> None:
        """Hide the message until a little after the lease; on FIFO never for less than before, for the group's sake."""
        now = self.clock()
        seconds = self.every.total_seconds() + defaults.LEASE_MARGIN + _RETURN_MARGIN
        until = now + timedelta(seconds=seconds)
        if self.delivery.kind == "fifo" and until <= self.hidden_until:
            return
        self.hidden_until = until
        self.messages.hide([(self.delivery, visibility_timeout(seconds, self.delivery, now))])

    def _give_up(self) -> bool:
        self.effects.lost = True
        self.stop()
        return False


def lease_until(now: datetime, every: timedelta) -> datetime:
    return now + every + timedelta(seconds=defaults.LEASE_MARGIN)
