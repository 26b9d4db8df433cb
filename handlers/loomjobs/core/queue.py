"""A queue: what kind of work it carries. Everything else about it is derived in the Plan."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from enum import Enum
from typing import Literal

from loomjobs.core import defaults, limits
from loomjobs.core.admit import Admit
from loomjobs.core.problem import Problem, refuse

_MOST_PARALLEL = 100
"""Lanes of one process: a Lambda function may have 1,024 threads, and boto3's pool grows with them."""

_LEAST_BODY = 4_096
"""Bytes: an envelope with a long key and a reference in place of its payload has about half."""


class Workload(Enum):
    """The latency class of a queue: how long a job may wait before somebody should know.

    The value is the age of the oldest message, in seconds, that raises the alarm: twice the upper bound of the class.
    """

    INTERACTIVE = 30
    """A user waits for it: under a second, at most 15 s."""
    NEAR_REAL_TIME = 60
    """1 to 30 seconds."""
    BACKGROUND = 600
    """30 seconds to 5 minutes."""
    BULK = 14_400
    """Minutes to hours, such as a monthly run."""


@dataclass(frozen=True, slots=True)
class Queue:
    """One SQS queue with its dead-letter queue, and one worker function.

    - `max_workers`: most Lambda invocations at a time, 2 to 1,000 (the mapping's MaximumConcurrency).
    - `parallel`: jobs of one invocation that run side by side, for jobs that mostly wait; 1 runs them one after the
      other, with a hard timeout each.
    - `batch_size`: messages of one invocation; a batch of the longest jobs must fit Lambda's 900 s, which is checked.
    - `batch_window`: how long Lambda gathers a batch, whole seconds up to 300; not on FIFO.
    - `job_timeout`: the longest any job of this queue may run; a job's own `timeout=` may be shorter.
    - `admit`: when it takes no more, and what producers are told then; without it, it takes everything.
    - `body_limit`: bytes of a message's body, up to SQS's 1,048,576. `oversized`: what becomes of a call beyond it, or
      beyond the 262,144 of a one-off schedule: "refuse" raises PayloadTooLarge, "offload" stores its payload in S3.
    - `network`: name of one of the environment's networks (VPC), or none.
    """

    name: str
    _: KW_ONLY
    workload: Workload
    fifo: bool = False
    max_workers: int = defaults.MAX_WORKERS
    parallel: int = 1
    batch_size: int = defaults.BATCH_SIZE
    batch_window: timedelta = timedelta(0)
    memory_mb: int = defaults.MEMORY_MB
    job_timeout: timedelta = defaults.JOB_TIMEOUT
    network: str | None = None
    admit: Admit | None = None
    body_limit: int = limits.SQS_MESSAGE_BYTES
    oversized: Literal["refuse", "offload"] = "refuse"

    def __post_init__(self) -> None:
        refuse(_problems(self))

    @property
    def where(self) -> str:
        return f"queue {self.name}"


def _problems(queue: Queue) -> list[Problem]:
    """Ranges, and relations between fields, all at once."""
    rules = [
        (
            isinstance(queue.name, str) and re.fullmatch(r"[a-z][a-z0-9-]{0,39}", queue.name) is not None,
            f"the name {queue.name!r} is not a queue name",
            "Use up to 40 lower-case letters, digits and hyphens, starting with a letter",
        ),
        (
            isinstance(queue.workload, Workload),
            f"workload={queue.workload!r} is not a Workload",
            "Say how long a job may wait, for example workload=Workload.BACKGROUND",
        ),
        (
            _within(queue.max_workers, limits.MAPPING_CONCURRENCY),
            f"max_workers={queue.max_workers} is outside 2 to 1,000",
            "Lambda allows no fewer than 2; for strictly serial work use a FIFO queue and one group",
        ),
        (
            _within(queue.memory_mb, limits.LAMBDA_MEMORY_MB),
            f"memory_mb={queue.memory_mb} is outside 128 to 10,240",
            "1,769 MB is one full vCPU",
        ),
        (
            queue.job_timeout > timedelta(0) and queue.job_timeout.microseconds == 0,
            f"job_timeout={queue.job_timeout} is not a whole number of seconds above 0",
            "Give about twice the p99 run time of the slowest job",
        ),
        (
            _within(queue.parallel, (1, _MOST_PARALLEL)),
            f"parallel={queue.parallel} is outside 1 to {_MOST_PARALLEL}",
            "It is the jobs of one invocation that run side by side: threads for `def`, one event loop for `async def`",
        ),
        (
            queue.admit is None or isinstance(queue.admit, Admit),
            f"admit={queue.admit!r} is not an Admit",
            "Say what it takes, for example admit=Admit(depth=10_000, on_error='open')",
        ),
        (
            not (queue.fifo and isinstance(queue.admit, Admit) and queue.admit.full == "delay"),
            "a FIFO queue cannot delay when it is full: SQS has no delay per message there",
            "Use full='reject' in its admit=",
        ),
        (
            _within(queue.body_limit, (_LEAST_BODY, limits.SQS_MESSAGE_BYTES)),
            f"body_limit={queue.body_limit} is outside {_LEAST_BODY:,} to {limits.SQS_MESSAGE_BYTES:,}",
            "It is bytes of a message's body; SQS takes no more than one mebibyte",
        ),
        (
            queue.oversized in ("refuse", "offload"),
            f"oversized={queue.oversized!r}",
            'Use "refuse" or "offload"',
        ),
        *_batch_rules(queue),
    ]
    return [Problem(queue.where, what, cure + ".") for ok, what, cure in rules if not ok]


def _batch_rules(queue: Queue) -> list[tuple[bool, str, str]]:
    most = limits.MAPPING_BATCH_FIFO if queue.fifo else limits.MAPPING_BATCH_STANDARD
    window = queue.batch_window.total_seconds()
    return [
        (
            _within(queue.batch_size, (1, most)),
            f"batch_size={queue.batch_size} is outside 1 to {most:,}",
            "FIFO takes at most 10" if queue.fifo else "Standard queues take at most 10,000",
        ),
        (
            queue.fifo or queue.batch_size <= limits.MAPPING_BATCH_WITHOUT_WINDOW or window >= 1,
            f"batch_size={queue.batch_size} needs a batch window",
            "Lambda takes more than 10 only with batch_window= of at least one second",
        ),
        (
            window == int(window) and 0 <= window <= limits.MAPPING_WINDOW_SECONDS,
            f"batch_window={queue.batch_window} is not a whole number of seconds from 0 to 300",
            "Give whole seconds",
        ),
        (
            not (queue.fifo and window),
            "a FIFO queue has no batch window",
            "Leave batch_window= out",
        ),
    ]


def _within(value: int, bounds: tuple[int, int]) -> bool:
    return isinstance(value, int) and bounds[0] <= value <= bounds[1]
