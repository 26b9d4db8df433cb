"""`loomjobs scheduled`: calls that are due later than SQS can hold them."""

from __future__ import annotations

import argparse
import os
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from loomjobs.cli.project import catalogue, environment
from loomjobs.cli.table import table
from loomjobs.core import names
from loomjobs.core.errors import LoomjobsError
from loomjobs.core.record import record_id
from loomjobs.core.unique import freed_write

if TYPE_CHECKING:
    from loomjobs.aws.scheduled import Scheduled, Waiting

_SHOWN = 100


def add(commands: Any) -> None:
    command = commands.add_parser("scheduled", help="see, move or cancel calls that are due later than SQS can hold")
    parts = command.add_subparsers(dest="part", required=True, metavar="PART")
    lists = _part(parts, "list", "what waits", show)
    lists.add_argument("--queue", help="of this queue only")
    lists.add_argument("--limit", type=int, default=_SHOWN, help=f"rows at most (default: {_SHOWN})")
    moves = _part(parts, "move", "have one sent at another time", move)
    moves.add_argument("name", help="as `scheduled list` shows it: its queue and the id that enqueue returned")
    moves.add_argument("--at", required=True, help="the instant, with a zone, such as 2026-12-24T18:00:00Z")
    cancels = _part(parts, "cancel", "have some never sent", cancel)
    cancels.add_argument("name", nargs="+")
    _part(parts, "resend", "send what EventBridge Scheduler could not", resend)


def show(given: argparse.Namespace) -> int:
    queues = {queue.name for queue in catalogue().queues}
    if given.queue is not None and given.queue not in queues:
        raise LoomjobsError(f"there is no queue {given.queue!r}; there are: {', '.join(sorted(queues))}")
    found = list(islice(_scheduled(given.env).waiting(given.queue), given.limit + 1))
    rows = [_row(one) for one in sorted(found[: given.limit], key=lambda one: one.at)]
    print(table(("due", "job", "key", "name"), rows) if rows else "nothing waits")
    if len(found) > given.limit:
        print(f"and more: --limit {given.limit * 10}, or --queue")
    return 0


def move(given: argparse.Namespace) -> int:
    one = _scheduled(given.env).move(given.name, _instant(given.at))
    print(f"{one.job} {one.key} is sent at {_moment(one.at)}")
    return 0


def cancel(given: argparse.Namespace) -> int:
    from loomjobs.runtime.status import reader

    scheduled = _scheduled(given.env)
    for name in given.name:
        one = scheduled.cancel(name)
        if one.job and one.key:  # a record that says it is queued would keep others from queueing it
            reader().write(freed_write(record_id(one.job, one.key), one.id))
        print(f"{name} will not be sent")
    return 0


def resend(given: argparse.Namespace) -> int:
    lines = 0
    for line in _scheduled(given.env).resend():
        print(line)
        lines += 1
    if not lines:
        print("EventBridge Scheduler has sent everything")
    return 0


def _part(parts: Any, name: str, text: str, run: Any) -> Any:
    part = parts.add_parser(name, help=text)
    part.add_argument("--env", help=f"environment (default: {names.ENV})")
    part.set_defaults(run=run)
    return part


def _scheduled(env: str | None) -> Scheduled:
    from loomjobs.aws import clients
    from loomjobs.aws.places import Places
    from loomjobs.aws.scheduled import Scheduled

    if env is not None:
        chosen = environment(env)
        os.environ |= {names.ENV: chosen.name, names.APP: chosen.app}
        os.environ.pop(names.TABLE, None)
    return Scheduled(Places(os.environ).later, scheduler=clients.scheduler(), sqs=clients.sqs())


def _row(one: Waiting) -> tuple[str, str, str, str]:
    return _moment(one.at), one.job, one.key, one.name


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise LoomjobsError(f"--at {text!r} is no instant; give one such as 2026-12-24T18:00:00Z") from None
    if at.tzinfo is None:
        raise LoomjobsError(f"--at {text} has no zone; write {text}Z for UTC")
    return at.astimezone(UTC)


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}Z"
