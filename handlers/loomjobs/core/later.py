"""Messages that are due later than SQS can hold them: each gets a one-off schedule, which sends it then."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta

from loomjobs.core import limits

PREFIX = "send-"
"""Names of these schedules begin with it; a worker's rights are narrowed by it and the queue."""
_QUEUE = 26
"""Characters of the queue's name in that of a schedule, which has 64 with an id of 32."""


def queue_prefix(queue: str) -> str:
    """What names of a queue's schedules begin with."""
    return f"{PREFIX}{queue[:_QUEUE]}-"


def schedule_name(queue: str, id: str) -> str:
    """The same for the same message, so that creating it again makes no second one."""
    name = queue_prefix(queue) + id
    if len(name) <= limits.SCHEDULE_NAME:
        return name
    return queue_prefix(queue) + hashlib.sha256(id.encode()).hexdigest()[:32]


def whole_minute(at: datetime) -> datetime:
    """EventBridge Scheduler fires within the minute that is named, so the next one: late, never early.

    https://docs.aws.amazon.com/scheduler/latest/UserGuide/schedule-types.html
    """
    floor = at.replace(second=0, microsecond=0)
    return floor if floor == at else floor + timedelta(minutes=1)


def literal(body: str) -> str:
    """The same JSON, with nothing in it that EventBridge Scheduler would replace by what it knows of the schedule.

    https://docs.aws.amazon.com/scheduler/latest/UserGuide/managing-schedule-context-attributes.html
    """
    return body.replace("<aws.scheduler.", "\\u003caws.scheduler.")


def moved(body: str, due: datetime) -> str:
    """The same envelope, due at another instant."""
    members = json.loads(body) | {"due": due.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
    return literal(json.dumps(members, ensure_ascii=True, separators=(",", ":")))
