"""A clock that moves only when it is told to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Clock:
    """`now` is UTC; calling the clock reads it."""

    now: datetime = START
    pulses: list[tuple[timedelta, datetime, Callable[[], bool]]] = field(
        default_factory=list[tuple[timedelta, datetime, Callable[[], bool]]]
    )

    def __call__(self) -> datetime:
        return self.now

    def advance(self, by: timedelta, /) -> None:
        """Move on, calling what is due on the way. Raises ValueError for a step back."""
        if by < timedelta(0):
            raise ValueError("a clock does not run backwards")
        end = self.now + by
        while self.pulses and min(due for _, due, _ in self.pulses) <= end:
            every, due, beat = self.pulses.pop(min(range(len(self.pulses)), key=lambda at: self.pulses[at][1]))
            self.now = max(self.now, due)
            if beat():
                self.pulses.append((every, due + every, beat))
        self.now = end

    def pulse(self, every: timedelta, beat: Callable[[], bool], /) -> Callable[[], None]:
        """Call `beat` each time that the clock passes an interval, until it returns False or the result is called."""
        self.pulses.append((every, self.now + every, beat))

        def stop() -> None:
            self.pulses[:] = [each for each in self.pulses if each[2] is not beat]

        return stop
