"""A clock that moves only when it is told to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Clock:
    """`now` is UTC; calling the clock reads it."""

    now: datetime = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, by: timedelta, /) -> None:
        """Move on. Raises ValueError for a step back."""
        if by < timedelta(0):
            raise ValueError("a clock does not run backwards")
        self.now += by
