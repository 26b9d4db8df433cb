"""For authors of jobs: a pytest fixture `jobs` with queues, records and schedules in memory on a virtual clock.

Installed with the package as a pytest plugin. While it is active, `enqueue` and `status` go to it.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

from loomjobs.local.clock import Clock
from loomjobs.local.jobs import Jobs, Outcome, context, memory

__all__ = ["Clock", "Jobs", "Outcome", "context", "jobs", "memory"]


@pytest.fixture
def jobs() -> Generator[Jobs]:
    """The jobs imported so far, in memory."""
    with memory() as active:
        yield active
