"""The deliveries of one invocation, in order: who may start, who waits, and what FIFO asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from loomjobs.core import defaults
from loomjobs.core.decision import Acknowledge, DeadLetter, Decision, DeferFor
from loomjobs.core.delivery import Delivery
from loomjobs.runtime.worker import Worker


def decide_all(
    worker: Worker, deliveries: Sequence[Delivery], *, until: datetime, longest: timedelta
) -> Iterator[tuple[Delivery, Decision]]:
    """Decide one after the other, and yield each decision as it stands.

    `until` is when the process will be stopped, `longest` the queue's job timeout. What has no time left is handed
    back without a claim. A FIFO group ends at its first delivery that stays in the queue; the others go on.
    """
    blocked: set[str] = set()
    stop_at = until - timedelta(seconds=defaults.RESERVE)
    for place, delivery in enumerate(deliveries):
        # the first may start with less than a whole timeout: an invocation of one job has no more than that
        start_by = stop_at - longest if place else stop_at
        group = delivery.group if delivery.kind == "fifo" else None
        if group in blocked:
            decision: Decision = DeferFor(0.0, "behind a failed job of its group")
        elif worker.clock() >= start_by:
            decision = DeferFor(0.0, "no time left")
        else:
            decision = worker.process(delivery, until=stop_at)
        if group is not None and not isinstance(decision, (Acknowledge, DeadLetter)):
            blocked.add(group)
        yield delivery, decision
