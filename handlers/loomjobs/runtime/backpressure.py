"""Before each request, the queue's `admit=` is asked: the request is sent, sent delayed, or not sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from loomjobs.core.backpressure import Delay, Reject
from loomjobs.core.outgoing import Outgoing, Sent, is_far
from loomjobs.runtime.gauge import Gauge
from loomjobs.runtime.ports import Clock, Deliver, Delivered, Depths, Roll


class Backpressure:
    """Of one producer, so of one environment; a gauge for each queue. `trouble` hears of failed readings."""

    def __init__(self, depths: Depths, *, clock: Clock, roll: Roll, trouble: Callable[[str], None]) -> None:
        self._depths = depths
        self._clock = clock
        self._roll = roll
        self._trouble = trouble
        self._gauges: dict[str, Gauge] = {}

    def deliver(self, pack: Sequence[Outgoing], send: Deliver) -> Delivered:
        """A batch of one queue goes as a whole or not at all, so a queue is overfilled by up to nine.

        What is due only later than SQS can hold it is not asked about: the queue's depth of today says nothing of then.
        """
        queue = pack[0].call.job.queue
        if queue.admit is None:
            return send(pack)
        far = [message for message in pack if is_far(message)]
        if far:
            near = self.deliver([each for each in pack if not is_far(each)], send) if len(far) < len(pack) else ()
            done = {message.id: (message, sent) for message, sent in (*near, *send(far))}
            return [done[message.id] for message in pack]
        gauge = self._gauge(queue.name)
        verdict = gauge.ask(queue.admit, len(pack))
        if isinstance(verdict, Reject):
            return [(message, Sent("full", verdict.reason, rejection=verdict)) for message in pack]
        if isinstance(verdict, Delay):
            pack = [_later(message, verdict.by) for message in pack]
        arrived = 0
        try:
            delivered = send(pack)
            arrived = sum(sent.outcome in ("accepted", "unknown") for _, sent in delivered)
        finally:
            gauge.settle(len(pack), arrived=arrived)
        return delivered

    def _gauge(self, queue: str) -> Gauge:
        gauge = self._gauges.get(queue)
        if gauge is None:  # of two threads that make one, both get the first
            made = Gauge(queue, self._depths, clock=self._clock, roll=self._roll, trouble=self._trouble)
            gauge = self._gauges.setdefault(queue, made)
        return gauge


def _later(message: Outgoing, by: timedelta) -> Outgoing:
    return replace(message, delay=max(message.delay, int(by.total_seconds())))
