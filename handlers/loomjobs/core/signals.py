"""What a job's author raises to say how a run ended."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import overload


class Permanent(Exception):
    """This job can never succeed as it is: dead-letter it at once, with this text as the reason."""


class Transient(Exception):
    """Worth another attempt. `after` is the least time to wait (an API's `Retry-After`); jitter is added to it."""

    def __init__(self, message: str = "", *, after: timedelta | None = None) -> None:
        if after is not None and after < timedelta(0):
            raise ValueError("after= is a time to wait, so it cannot be negative")
        self.after = after
        super().__init__(message)


class Signal(BaseException):
    """Not an error, so it derives from BaseException: an author's `except Exception` must not swallow it."""


class Defer(Signal):
    """Not now: come back after `delay` or at `until`. No attempt is charged. A time in the past means at once."""

    @overload
    def __init__(self, delay: timedelta, /, *, why: str = ...) -> None: ...
    @overload
    def __init__(self, *, until: datetime, why: str = ...) -> None: ...
    def __init__(
        self, delay: timedelta | None = None, *, until: datetime | None = None, why: str = "deferred by the job"
    ) -> None:
        if (delay is None) == (until is None):
            raise TypeError("Defer takes either a delay or until=")
        if until is not None and until.tzinfo is None:
            raise ValueError("until= needs a time zone, for example datetime.now(UTC)")
        self.delay = delay
        self.until = until
        self.why = why
        super().__init__(why)

    def seconds(self, now: datetime) -> float:
        """How long to wait from `now`, never negative."""
        wait = self.delay if self.until is None else self.until - now
        assert wait is not None
        return max(0.0, wait.total_seconds())


class Continue(Signal):
    """Go on in a later delivery from the last checkpoint: no attempt is spent, and Lambda's loop guard is not touched,
    since the message itself comes back."""
