"""EventBridge Scheduler's context attributes, and its clock.

Stock MiniStack sends `<aws.scheduler.scheduled-time>` as it stands, and looks for due schedules every 10 seconds from a
thread of its own (see `server` for why that loses messages).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Final

SWEEP_SECONDS: Final = 1.0


def correct() -> None:
    scheduler: Any = import_module("ministack.services.scheduler")
    scheduler.start_scheduler = lambda: None
    events: Any = import_module("ministack.services.eventbridge")
    stock = events._invoke_target

    def invoke(target: dict[str, Any], event: dict[str, Any], rule: dict[str, Any], view: Any = None) -> None:
        if event.get("Source") == "aws.scheduler" and "Input" in target:
            at = scheduled_time(rule.get("ScheduleExpression", ""), event["Time"])
            target = {**target, "Input": fill(target["Input"], arn=rule.get("Arn", ""), at=at)}
        stock(target, event, rule, view)

    events._invoke_target = invoke


async def fire() -> None:
    scheduler: Any = import_module("ministack.services.scheduler")
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        scheduler._tick_schedules()


def scheduled_time(expression: str, now: float) -> datetime:
    """The instant that a schedule found due at `now` was meant for: cron expressions name whole minutes."""
    at = datetime.fromtimestamp(now, tz=UTC).replace(microsecond=0)
    return at.replace(second=0) if expression.startswith("cron(") else at


def fill(text: str, *, arn: str, at: datetime) -> str:
    """https://docs.aws.amazon.com/scheduler/latest/UserGuide/managing-schedule-context-attributes.html"""
    for name, value in _attributes(arn, at).items():
        text = text.replace(f"<aws.scheduler.{name}>", value)
    return text


def _attributes(arn: str, at: datetime) -> Mapping[str, str]:
    return {
        "schedule-arn": arn,
        "scheduled-time": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "execution-id": str(uuid.uuid4()),
        "attempt-number": "1",
    }
