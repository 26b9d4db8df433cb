"""Beats beside a running job, from a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta


def beat_beside(every: timedelta, beat: Callable[[], bool], /) -> Callable[[], None]:
    """Implements the runtime's Pulse. The returned function waits for a beat that is under way."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every.total_seconds()) and beat():
            pass

    thread = threading.Thread(target=run, daemon=True, name="loomjobs-heart")
    thread.start()

    def stop() -> None:
        over.set()
        thread.join()

    return stop
