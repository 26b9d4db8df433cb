"""The store, time and chance as the brakes use them: a store that does not answer is noted, and never raised."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from loomjobs.core.errors import StoreUnavailable
from loomjobs.core.write import Write, Written
from loomjobs.runtime.admission import Waits
from loomjobs.runtime.ports import Clock, Roll, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    store: Store
    clock: Clock
    roll: Roll
    troubles: deque[str] = field(default_factory=lambda: deque[str](maxlen=100))

    def write(self, write: Write, what: str) -> Written | None:
        """None when the answer is not known."""
        try:
            return self.store.write(write)
        except StoreUnavailable as error:
            self.troubles.append(f"{what}: {error}")
            return None

    def waits(self, bounds: tuple[float, float], why: str) -> Waits:
        """A random wait between these bounds, seconds."""
        low, high = bounds
        return Waits(low + (high - low) * self.roll(), why)

    def now(self) -> int:
        """Epoch milliseconds."""
        return int(self.clock().timestamp() * 1000)
