"""Lambda's entry point of the scheduler: ticks are messages, handled by the ordinary worker."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from loomjobs.aws.handler import make_handler
from loomjobs.aws.process import worker_catalogue, worker_process
from loomjobs.core.names import SCHEDULED_TIME
from loomjobs.core.tick_job import with_ticks


def make_scheduler_handler() -> Callable[[Any, Any], Any]:
    """The handler of the tick queue."""
    handle = make_handler(worker_process(os.environ, with_ticks(worker_catalogue(os.environ))))

    def handler(event: Any, context: Any) -> Any:
        return handle(with_scheduled_time(event), context)

    return handler


def with_scheduled_time(event: Any) -> Any:
    """Fill in the scheduled instant where it was not substituted.

    EventBridge Scheduler replaces `<aws.scheduler.scheduled-time>` in what it sends; the embedded AWS does not. There
    the minute of the message's arrival is taken, which is right as long as it fires on time.
    """
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list) or not any(SCHEDULED_TIME in str(record.get("body")) for record in records):
        return event
    return {**event, "Records": [_filled(record) for record in records]}


def _filled(record: Mapping[str, Any]) -> Mapping[str, Any]:
    sent = str(record.get("attributes", {}).get("SentTimestamp", ""))
    moment = datetime.fromtimestamp(int(sent) / 1000, UTC) if sent.isdigit() else datetime.now(UTC)
    minute = moment.replace(second=0, microsecond=0).isoformat()
    return {**record, "body": str(record.get("body")).replace(SCHEDULED_TIME, minute)}
