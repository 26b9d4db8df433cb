"""Lambda entry point: turns the ticks of EventBridge Scheduler into jobs."""

from __future__ import annotations

from loomjobs.aws.scheduler import make_scheduler_handler

handler = make_scheduler_handler()
