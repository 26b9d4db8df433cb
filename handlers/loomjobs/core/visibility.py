"""When a message comes back: its visibility timeout, within what SQS allows."""

from __future__ import annotations

import math
from datetime import datetime

from loomjobs.core import limits
from loomjobs.core.decision import Decision, DeferFor, RetryIn
from loomjobs.core.delivery import Delivery

_MARGIN = 60
"""Seconds kept below the 12 hours: they count from SQS's receive, which was a little before ours."""


def visibility_timeout(seconds: float, delivery: Delivery, now: datetime) -> int:
    """Whole seconds from 0 to what is left of the 12 hours since the receive. Never raises."""
    elapsed = max(0.0, (now - delivery.received_at).total_seconds())
    most = limits.SQS_VISIBILITY_SECONDS - elapsed - _MARGIN
    return max(0, math.ceil(min(seconds, most)))


def wait_of(decision: Decision) -> float | None:
    """Seconds after which the message is wanted again; None leaves its visibility as it is."""
    return decision.delay if isinstance(decision, (RetryIn, DeferFor)) else None
