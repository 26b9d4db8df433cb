"""The decorator that declares a job, checked at import."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeVar

from loomjobs.core.context import JobContext
from loomjobs.core.declaration import problems
from loomjobs.core.evolve import Upcaster
from loomjobs.core.job import Job, Options
from loomjobs.core.key import Key
from loomjobs.core.problem import refuse
from loomjobs.core.queue import Queue
from loomjobs.core.registry import current
from loomjobs.core.retry import Retry
from loomjobs.core.uses import Rate, Use

P = TypeVar("P")
R = TypeVar("R")


class Declare(Protocol):
    """What `job(...)` returns: it takes the function and gives back the job."""

    def __call__(self, fn: Callable[[P, JobContext], R], /) -> Job[P, R]: ...


def job(
    name: str,
    *,
    queue: Queue,
    key: Key,
    group: str | None = None,
    retry: Retry | None = None,
    timeout: timedelta | None = None,
    expires: timedelta | None = None,
    heartbeat: timedelta | None = None,
    rate: Rate | None = None,
    exclusive: str | tuple[str, ...] | None = None,
    uses: Sequence[Use] = (),
    sends: Sequence[Job[Any, Any] | str] = (),
    on_dead: Literal["halt", "skip"] = "skip",
    version: int = 1,
    upcasters: Mapping[int, Upcaster] | None = None,
    aliases: Sequence[str] = (),
    strict: bool = False,
) -> Declare:
    """Declare a job.

    - `name`: stable and dotted, `domain.verb-noun`; it is on the wire, so renaming needs the old one in `aliases`.
    - `key`: which payload fields identify the work (one effect per key): a field, a tuple of fields, a function of the
      payload, or `EACH_ENQUEUE` where every enqueue is work of its own.
    - `group`: on a FIFO queue the payload field whose values are each processed in order.
    - `timeout`: a run is stopped after it, whole seconds; by default the queue's `job_timeout`.
    - `uses`, `sends`: the resources it touches and the jobs it sends; its worker is granted these and no others.
    - `heartbeat`: for long jobs: the claim and the message are kept for this long at a time, so that a crash is noticed
      soon; at least 15 seconds. Its queue runs one job at a time.
    - `on_dead`: on a FIFO queue, whether a dead letter halts its group until it is redriven or an operator decides, or
      is skipped.
    - `expires`: how long after it is due (its enqueue, or what `delay=` or `at=` say) a job is worth starting; later it
      ends as expired. No limit by default; `call(expires=)` overrides it.
    - `upcasters`: for each version before `version`, the function that lifts a payload, a dict, to the next one.
    - `version`: of the payload's shape. `strict`: refuse payload fields that the type does not know.

    Raises DeclarationError with everything that is wrong, NotAvailableYet for an option that this release lacks.
    """
    options = Options(
        queue=queue,
        key=key,
        group=group,
        retry=Retry() if retry is None else retry,
        timeout=timeout,
        expires=expires,
        heartbeat=heartbeat,
        rate=rate,
        exclusive=exclusive,
        uses=tuple(uses),
        sends=tuple(sends),
        on_dead=on_dead,
        version=version,
        upcasters={} if upcasters is None else upcasters,
        aliases=tuple(aliases),
        strict=strict,
    )

    def declare(fn: Callable[[P, JobContext], R], /) -> Job[P, R]:
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] the documented way to a caller's names
        nested = frame.f_locals if frame.f_locals is not frame.f_globals else None
        declared = Job(name, fn, options, local_names=dict(nested) if nested else None)
        registry = current()
        refuse([*problems(declared), *registry.clashes(declared)])
        registry.jobs[name] = declared
        return declared

    return declare
