"""What was decided on each delivery of a batch, and what SQS was told of it."""

from __future__ import annotations

from collections.abc import Sequence

from loomjobs.core.decision import Decision, is_gone
from loomjobs.core.delivery import Delivery
from loomjobs.core.visibility import visibility_timeout, wait_of
from loomjobs.runtime.ports import Clock, Messages


class Replies:
    """Deliveries are named by their place in the batch."""

    def __init__(self, deliveries: Sequence[Delivery], messages: Messages, clock: Clock) -> None:
        self._deliveries = deliveries
        self._messages = messages
        self._clock = clock
        self._decided: dict[int, Decision] = {}
        self._back_at: dict[int, float] = {}
        self._told: set[int] = set()

    def __contains__(self, place: int) -> bool:
        return place in self._decided

    def __len__(self) -> int:
        return len(self._decided)

    def all(self) -> list[tuple[Delivery, Decision]]:
        return [(delivery, self._decided[place]) for place, delivery in enumerate(self._deliveries)]

    def put(self, place: int, decision: Decision) -> None:
        """A wait is measured from now, however long the rest of the batch takes."""
        self._decided[place] = decision
        wait = wait_of(decision)
        if wait is not None:
            self._back_at[place] = self._clock().timestamp() + wait

    def hide_all(self, seconds: float) -> None:
        """Let every message come back after so long, should this process not live to say otherwise."""
        self._hide([(delivery, seconds) for delivery in self._deliveries])

    def acknowledge(self) -> None:
        """Tell SQS everything that was decided so far, ahead of the answer to Lambda."""
        fresh = [place for place in self._decided if place not in self._told]
        gone = [self._deliveries[place] for place in fresh if is_gone(self._decided[place])]
        if gone:
            self._messages.delete(gone)
        self.send_back()
        self._told.update(fresh)

    def send_back(self) -> None:
        """Say when the messages that stay are wanted again; the others are left to the answer."""
        now = self._clock().timestamp()
        untold = [(place, at) for place, at in self._back_at.items() if place not in self._told]
        self._hide([(self._deliveries[place], at - now) for place, at in untold])

    def _hide(self, waits: Sequence[tuple[Delivery, float]]) -> None:
        now = self._clock()
        if waits:
            self._messages.hide([(delivery, visibility_timeout(wait, delivery, now)) for delivery, wait in waits])
