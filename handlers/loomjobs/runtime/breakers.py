"""The circuit breakers of one process: what it saw of them, what it counted, and the writes that change them."""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import Final, Literal, TypeAlias

from loomjobs.core import breaker, lock
from loomjobs.core.breaker import Breaker, Deny, Policy, Probe, Tally
from loomjobs.core.errors import StoreUnavailable
from loomjobs.core.work import Work
from loomjobs.core.write import Item, Write
from loomjobs.runtime.admission import Hold, Waits
from loomjobs.runtime.asking import Asking

SEEN_FOR: Final = 5_000
"""Milliseconds for which a breaker's state is taken as read; Powertools caches as long."""
LONGEST_PROBE: Final = 120
"""Seconds of a probe's lease; a longer run renews it."""

Ending: TypeAlias = Literal["passed", "failed", "left"]
"""Of a run toward a service; `left`: it says nothing about it."""


class Breakers:
    """`enter` is called by one thread, `report` and `renew` by any. `changes`: (service, new state) made here."""

    def __init__(self, ask: Asking, policy: Policy) -> None:
        self._ask, self._policy = ask, policy
        self._seen: dict[str, tuple[int, Breaker]] = {}
        self._tallies: dict[str, Tally] = {}
        self._guard = Lock()
        self.changes: deque[tuple[str, str]] = deque(maxlen=100)

    def enter(self, hold: Hold, service: str) -> Waits | None:
        """None lets the job go on; a probe is noted in its hold."""
        record = self._look(service, hold.at)
        verdict = breaker.admission(record, hold.at, self._ask.roll(), self._policy)
        if isinstance(verdict, Probe):
            return self._probe(hold, record)
        return Waits(verdict.wait, verdict.why) if isinstance(verdict, Deny) else None

    def report(self, hold: Hold, service: str, ending: Ending) -> None:
        """How a run ended for a service that it had been let through to."""
        probed = hold.probes.get(service)
        if probed is not None:
            self._end_probe(hold, probed, ending)
        elif ending != "left":
            self._count(hold, service, failed=ending == "failed")

    def renew(self, hold: Hold) -> None:
        """Extend the leases of its probes."""
        now = self._ask.now()
        for name, record in hold.probes.items():
            write = breaker.probe_renew_write(record, hold.owner, now=now, lease=_probe_lease(hold.work))
            self._ask.write(write, f"renewing the probe of {name}")

    def open_services(self) -> frozenset[str]:
        with self._guard:
            return frozenset(name for name, (_, record) in self._seen.items() if record.state != breaker.CLOSED)

    def shut_for(self) -> float:
        """Seconds until the first open circuit lets a probe through; 0 while none is open."""
        now = self._ask.now()
        with self._guard:
            opens = [record.reopens_in(now, self._policy) for _, record in self._seen.values()]
        return min((seconds for seconds in opens if seconds > 0), default=0.0)

    def _look(self, service: str, now: int) -> Breaker:
        with self._guard:
            at, record = self._seen.get(service, (None, None))
        if at is not None and record is not None and 0 <= now - at < SEEN_FOR:
            return record
        try:
            item = self._ask.store.read(breaker.breaker_id(service))
        except StoreUnavailable as error:
            self._ask.troubles.append(f"the circuit of {service} was not read, so its jobs pass: {error}")
            item = None
        return self._remember(service, item, now)

    def _remember(self, service: str, item: Item | None, now: int) -> Breaker:
        record = Breaker.of(service, item, now=now)
        with self._guard:
            _, before = self._seen.get(service, (0, None))
            self._seen[service] = (now, record)
            if record.state != breaker.CLOSED or (before is not None and before.closed_at != record.closed_at):
                self._tallies.pop(service, None)
        return record

    def _probe(self, hold: Hold, record: Breaker) -> Waits | None:
        write = breaker.probe_write(record, hold.owner, now=hold.at, lease=_probe_lease(hold.work))
        written = self._ask.write(write, f"electing a probe of {record.service}")
        if written is None:
            return None
        now_is = self._remember(record.service, written.item, hold.at)
        if written.applied or now_is.owner == hold.owner:
            hold.probes[record.service] = now_is
            if record.state == breaker.OPEN:
                self.changes.append((record.service, breaker.HALF_OPEN))
            return None
        verdict = breaker.admission(now_is, hold.at, self._ask.roll(), self._policy)
        if isinstance(verdict, Deny):
            return Waits(verdict.wait, verdict.why)
        if now_is.state == breaker.CLOSED:
            return None
        return self._ask.waits(breaker.SHORT_WAIT, "another probe is starting")

    def _end_probe(self, hold: Hold, probed: Breaker, ending: Ending) -> None:
        now = self._ask.now()
        if ending == "passed":
            write = breaker.probe_passed_write(probed, hold.owner, now=now, policy=self._policy)
        elif ending == "failed":
            write = breaker.probe_failed_write(probed, hold.owner, now=now, policy=self._policy)
        else:
            write = breaker.probe_left_write(probed, hold.owner, now=now)
        self._move(write, probed.service, now)

    def _count(self, hold: Hold, service: str, *, failed: bool) -> None:
        """A run admitted while the circuit was closed. One of before the last closing says nothing about today."""
        now = self._ask.now()
        with self._guard:
            _, record = self._seen.get(service, (0, Breaker(service=service)))
            if record.state != breaker.CLOSED or hold.at < record.closed_at:
                return
            tally = self._tallies.get(service, Tally()).after(now, failed=failed, policy=self._policy)
            self._tallies[service] = tally
        if failed and tally.trips(self._policy):
            write = breaker.trip_write(record, admitted=hold.at, now=now, failures=tally.failures, policy=self._policy)
            self._move(write, service, now)

    def _move(self, write: Write, service: str, now: int) -> None:
        written = self._ask.write(write, f"telling the circuit of {service}")
        if written is None:
            return
        record = self._remember(service, written.item, now)
        if written.applied and record.state != breaker.HALF_OPEN:
            self.changes.append((service, record.state))


def _probe_lease(work: Work) -> int:
    return min(round(work.job.timeout.total_seconds()) + lock.LEASE_MARGIN, LONGEST_PROBE)
