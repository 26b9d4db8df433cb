"""What a queue lets in: the policy of a declaration. `core.backpressure` applies it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from loomjobs.core import defaults, limits
from loomjobs.core.problem import Problem, refuse

_SECOND = timedelta(seconds=1)
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit:
    """When a queue is full, and what producers are told then. At least one of `depth` and `age` is needed.

    - `depth`: full from so many messages, counted as visible + in flight + delayed, and what this process has sent
      since that was counted.
    - `age`: full while its oldest message is at least as old, from a minute on. CloudWatch says it, minutes late.
    - `full`: "reject" raises QueueFull, with the time to come back; "delay" sends with a delay of `delay`, up to 15
      minutes and not on FIFO. Delayed messages count as depth.
    - `refresh`: how long one count serves, 1 s to 5 min. Nothing decides by one older than three times that.
    - `on_error`: where there is no such count, "open" lets everything in, "closed" takes the queue for full. It has no
      default: whether work or the queue comes first is for the team to say.
    """

    depth: int | None = None
    age: timedelta | None = None
    full: Literal["reject", "delay"] = "reject"
    delay: timedelta | None = None
    refresh: timedelta = defaults.ADMIT_REFRESH
    on_error: Literal["open", "closed"]

    def __post_init__(self) -> None:
        refuse(_problems(self))

    def __str__(self) -> str:
        limits = [f"{self.depth:,} messages" if self.depth is not None else "", f"{self.age} old" if self.age else ""]
        then = "reject" if self.full == "reject" else f"delay by {self.delay}"
        return f"{then} from {' or '.join(each for each in limits if each)}; {self.on_error} where that is not known"


def _problems(admit: Admit) -> list[Problem]:
    """Ranges, and relations between fields, all at once."""
    retention = timedelta(seconds=defaults.SOURCE_RETENTION)
    rules = [
        (
            admit.depth is not None or admit.age is not None,
            "neither depth= nor age= is given",
            "Say from how many messages, or from which age of the oldest, the queue is full",
        ),
        (
            admit.depth is None or (type(admit.depth) is int and admit.depth >= 1),
            f"depth={admit.depth!r} is not a whole number above 0",
            "It counts messages that are visible, in flight and delayed",
        ),
        (
            admit.age is None or (_is_time(admit.age) and _MINUTE <= admit.age < retention),
            f"age={admit.age!r} is not a timedelta from one minute to below the queue's retention, {retention}",
            "CloudWatch knows the age of the oldest message to the minute",
        ),
        (
            admit.full in ("reject", "delay"),
            f"full={admit.full!r} is neither 'reject' nor 'delay'",
            "Say what a full queue does with a call",
        ),
        (
            _is_time(admit.refresh) and _SECOND <= admit.refresh <= 5 * _MINUTE,
            f"refresh={admit.refresh!r} is not a timedelta from 1 second to 5 minutes",
            "Each process asks once in that time, while it sends",
        ),
        (
            admit.on_error in ("open", "closed"),
            f"on_error={admit.on_error!r} is neither 'open' nor 'closed'",
            "Say whether calls are let in while the depth is not known",
        ),
        *_delay_rules(admit),
    ]
    return [Problem("Admit", what, cure + ".") for ok, what, cure in rules if not ok]


def _delay_rules(admit: Admit) -> list[tuple[bool, str, str]]:
    most = timedelta(seconds=limits.SQS_DELAY_SECONDS)
    given = admit.delay
    return [
        (
            (admit.full == "delay") == (given is not None),
            f"delay={given} and full={admit.full!r} do not go together",
            "delay= is how long full='delay' holds a message back; a queue that rejects has none",
        ),
        (
            given is None or (_is_time(given) and _SECOND <= given <= most and not given.microseconds),
            f"delay={given!r} is not a timedelta of whole seconds from 1 to {limits.SQS_DELAY_SECONDS}",
            "SQS delays a message by 15 minutes at most",
        ),
    ]


def _is_time(value: object) -> bool:
    return isinstance(value, timedelta)
