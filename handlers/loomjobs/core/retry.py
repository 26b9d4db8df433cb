"""How often and how long after a failure a job runs again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from loomjobs.core import defaults
from loomjobs.core.problem import Problem, refuse

_Errors = tuple[type[Exception], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """`attempts` counts the first run. The wait is drawn between 0 and min(cap, base * 2**failures): full jitter.

    `permanent` and `transient` sort exceptions of this job before the built-in table does; the most derived class wins.
    """

    attempts: int = defaults.ATTEMPTS
    base: timedelta = defaults.BACKOFF_BASE
    cap: timedelta = defaults.BACKOFF_CAP
    permanent: _Errors = ()
    transient: _Errors = ()

    def __post_init__(self) -> None:
        refuse(_problems(self))

    def delay(self, failures: int, roll: float, *, least: float = 0.0, pace: float = 1.0) -> float:
        """Seconds to wait after the `failures`-th failure (1 or more).

        `roll` is uniform in [0, 1). `least` is what the other side asked for (Retry-After): the jitter comes on top of
        it. `pace` scales base and cap, so that a local run need not wait as long as production does.
        """
        cap = self.cap.total_seconds()
        doublings = min(max(failures - 1, 0), 62)
        return least + pace * min(cap, self.base.total_seconds() * float(2**doublings)) * roll


def _problems(retry: Retry) -> list[Problem]:
    where = "Retry"
    found: list[Problem] = []
    if retry.attempts < 1:
        found.append(Problem(where, f"attempts={retry.attempts}", "It counts the first run, so it is at least 1."))
    if not timedelta(0) < retry.base <= retry.cap:
        cure = "base= is above 0 and no longer than cap=."
        found.append(Problem(where, f"base={retry.base} and cap={retry.cap} do not go together", cure))
    for name, classes in (("permanent", retry.permanent), ("transient", retry.transient)):
        wrong = [each for each in classes if not (isinstance(each, type) and issubclass(each, Exception))]
        if wrong:
            cure = "Name exception classes. SystemExit and its like cannot be sorted; they are always transient."
            found.append(Problem(where, f"{name}= holds {wrong!r}", cure))
    both = set(retry.permanent) & set(retry.transient)
    if both:
        names = ", ".join(sorted(each.__name__ for each in both))
        found.append(Problem(where, f"{names} stand in permanent= and in transient=", "Keep one of the two."))
    return found
