"""How full one queue is, as this process knows it: what was read last, and what it has sent since."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from loomjobs.core.admit import Admit
from loomjobs.core.backpressure import Accept, Reject, Verdict, is_fresh, is_usable, judge, unread
from loomjobs.core.errors import ConfigurationError
from loomjobs.core.reading import Reading
from loomjobs.runtime.ports import Clock, Depths, Roll

AGE_REFRESH = timedelta(minutes=1)
"""CloudWatch has one value a minute, and each question costs."""
READ_AGAIN = timedelta(seconds=1)
"""After a failed reading, the next is not tried sooner: what hinders it may be our asking."""
PATIENCE = 5.0
"""Seconds that a thread waits for the reading of another."""


class Gauge:
    """Threads share it, and one of them reads at a time. Meanwhile the last reading, while it is usable, may let others
    in, but turns nobody away: they wait for the new one."""

    def __init__(self, queue: str, depths: Depths, *, clock: Clock, roll: Roll, trouble: Callable[[str], None]) -> None:
        self._queue = queue
        self._depths = depths
        self._clock = clock
        self._roll = roll
        self._trouble = trouble
        self._changed = threading.Condition()
        self._reading: Reading | None = None
        self._before: Reading | None = None
        self._aged_at: datetime | None = None
        self._is_reading = False
        self._failed_at: datetime | None = None
        self._failure = "another thread is still reading it"
        self._under_way = 0
        self._sent = 0
        self._sent_while_reading = 0

    def ask(self, policy: Admit, count: int) -> Verdict:
        """Whether the queue takes `count` more. Unless it rejects, they are under way until `settle`.

        Raises ConfigurationError where the queue's address is not known.
        """
        with self._changed:
            is_ours = self._is_due(policy)
            if is_ours:
                self._is_reading, self._sent_while_reading = True, 0
        if is_ours:
            self._read(policy)
        with self._changed:
            verdict = self._judge(policy)
            if self._is_reading and not self._is_let_in(policy, verdict):
                self._changed.wait_for(lambda: not self._is_reading, PATIENCE)
                verdict = self._judge(policy)
            if not isinstance(verdict, Reject):
                self._under_way += count
            return verdict

    def settle(self, count: int, *, arrived: int) -> None:
        """Of `count` that were under way, so many are in the queue, or may be."""
        with self._changed:
            self._under_way -= count
            self._sent += arrived
            self._sent_while_reading += arrived

    def _is_due(self, policy: Admit) -> bool:
        now = self._clock()
        if self._is_reading or is_fresh(policy, self._reading, now):
            return False
        return _has_passed(READ_AGAIN, since=self._failed_at, now=now)

    def _is_let_in(self, policy: Admit, verdict: Verdict) -> bool:
        """By a reading: not because nothing is known yet."""
        return isinstance(verdict, Accept) and is_usable(policy, self._reading, self._clock())

    def _judge(self, policy: Admit) -> Verdict:
        now = self._clock()
        if self._reading is None or not is_usable(policy, self._reading, now):
            return unread(policy, self._failure, roll=self._roll())
        own = self._sent + self._under_way
        return judge(policy, self._reading, own=own, now=now, roll=self._roll(), before=self._before)

    def _read(self, policy: Admit) -> None:
        """Outside the lock: the others need not wait for an answer."""
        asked_at = self._clock()
        is_aged = policy.age is not None and _has_passed(AGE_REFRESH, since=self._aged_at, now=asked_at)
        try:
            reading = self._depths.read(self._queue, age=is_aged)
        except ConfigurationError:
            raise
        except Exception as error:  # noqa: BLE001 whatever it is, the policy says what follows from it
            self._fail(policy, asked_at, f"{type(error).__name__}: {error}")
        else:
            self._keep(reading, aged_at=asked_at if is_aged else None)
        finally:
            with self._changed:
                self._is_reading = False
                self._changed.notify_all()

    def _keep(self, reading: Reading, *, aged_at: datetime | None) -> None:
        """What had arrived before the question is in the answer; what had not may be missing, so it still counts."""
        with self._changed:
            if aged_at is not None:
                self._aged_at = aged_at
            elif self._reading is not None:
                reading = replace(reading, age=self._reading.age)
            self._before, self._reading = self._reading, reading
            self._sent = self._sent_while_reading
            self._failed_at = None

    def _fail(self, policy: Admit, at: datetime, failure: str) -> None:
        with self._changed:
            is_first = self._failed_at is None
            self._failed_at, self._failure = at, failure
        if is_first:
            used = f"the last reading serves for up to {3 * policy.refresh}, then on_error={policy.on_error!r}"
            self._trouble(f"how full queue {self._queue} is could not be read; {used}: {failure}")


def _has_passed(span: timedelta, *, since: datetime | None, now: datetime) -> bool:
    """Also where the clock was set back."""
    return since is None or not timedelta(0) <= now - since < span
