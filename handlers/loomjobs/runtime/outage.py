"""The process-wide brake while the store of execution records does not answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

PAUSE = timedelta(seconds=10)
"""How long nothing is claimed after the store failed; then one claim tries again."""


@dataclass(slots=True)
class Outage:
    """Without it every message of every batch would wait for its own timeout."""

    until: datetime | None = None

    def is_on(self, now: datetime) -> bool:
        return self.until is not None and now < self.until

    def begin(self, now: datetime) -> None:
        self.until = now + PAUSE

    def end(self) -> None:
        self.until = None
