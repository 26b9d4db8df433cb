"""A declared job: its name, its function and its options."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any, Final, Generic, Literal, TypeVar, get_type_hints

from loomjobs.core.context import JobContext
from loomjobs.core.errors import DeclarationError
from loomjobs.core.evolve import Upcaster
from loomjobs.core.key import Key
from loomjobs.core.problem import Problem
from loomjobs.core.queue import Queue
from loomjobs.core.retry import Retry
from loomjobs.core.uses import Rate, Use

P = TypeVar("P")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `@job` was given, as it was given."""

    queue: Queue
    key: Key
    group: str | None = None
    retry: Retry = field(default_factory=Retry)
    timeout: timedelta | None = None
    expires: timedelta | None = None
    heartbeat: timedelta | None = None
    rate: Rate | None = None
    exclusive: str | tuple[str, ...] | None = None
    uses: tuple[Use, ...] = ()
    sends: tuple[Job[Any, Any] | str, ...] = ()
    on_dead: Literal["halt", "skip"] = "skip"
    version: int = 1
    upcasters: Mapping[int, Upcaster] = field(default_factory=dict[int, Upcaster], hash=False)
    aliases: tuple[str, ...] = ()
    strict: bool = False


class Job(Generic[P, R_co]):
    """A declared job. Calling it calls the function; `enqueue(job, payload)` sends it."""

    __slots__ = ("__dict__", "_hints", "_locals", "function", "name", "options", "source")

    name: Final[str]

    def __init__(
        self,
        name: str,
        function: Callable[[P, JobContext], R_co],
        options: Options,
        *,
        local_names: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.function = function
        self.options = options
        self.source = _source(function)
        self._locals = local_names
        self._hints: tuple[dict[str, Any], dict[str, Any]] | None = None
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__name__ = getattr(function, "__name__", name)
        self.__qualname__ = getattr(function, "__qualname__", name)
        self.__wrapped__ = function

    def __call__(self, payload: P, ctx: JobContext, /) -> R_co:
        return self.function(payload, ctx)

    def __repr__(self) -> str:
        return f"<job {self.name}>"

    @property
    def queue(self) -> Queue:
        return self.options.queue

    @property
    def where(self) -> str:
        """For messages: the job and the line that declares it."""
        return f"job {self.name} ({self.source})"

    @property
    def timeout(self) -> timedelta:
        """Its own, or the queue's `job_timeout`."""
        own = self.options.timeout
        return self.queue.job_timeout if own is None else own

    def sends_to(self, other: Job[Any, Any]) -> bool:
        """Whether its `sends=` has the other job, by one of its names."""
        declared = {target if isinstance(target, str) else target.name for target in self.options.sends}
        return not declared.isdisjoint((other.name, *other.options.aliases))

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    @cached_property
    def payload_type(self) -> type[P]:
        """The annotation of the first parameter. Raises DeclarationError while it does not resolve."""
        hint: type[P] = self.hints()[next(iter(inspect.signature(self.function).parameters))]
        return hint

    @property
    def result_type(self) -> Any:
        return self.hints().get("return", Any)

    @property
    def summary(self) -> str:
        """The first line of the function's docstring, or of its module's."""
        text = self.__doc__ or getattr(sys.modules.get(self.__module__), "__doc__", None) or ""
        return text.strip().partition("\n")[0]

    def hints(self, *, marked: bool = False) -> dict[str, Any]:
        """The resolved annotations; looked up again until every name exists, since a module may not be complete yet.
        `marked` ones keep their `Annotated`."""
        if self._hints is None:
            local_names = self._locals or {}
            self._hints = _resolve(self, local_names), _resolve(self, local_names, include_extras=True)
            self._locals = None
        return self._hints[marked]


def _resolve(
    declared: Job[Any, Any], local_names: Mapping[str, Any], *, include_extras: bool = False
) -> dict[str, Any]:
    names = {**local_names, "JobContext": JobContext}
    try:
        return get_type_hints(declared.function, localns=names, include_extras=include_extras)
    except (NameError, AttributeError, TypeError) as error:
        cure = "Import the type at module level (not under TYPE_CHECKING), or define it above the job."
        what = f"its annotations do not resolve: {error}"
        raise DeclarationError([Problem(declared.where, what, cure)]) from None


def _source(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return "?"
    return f"{code.co_filename.rpartition('/handlers/')[2]}:{code.co_firstlineno}"
