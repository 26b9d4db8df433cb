"""Who enqueues, seen from outside a job: the trace and the correlation id of the calling thread or task.

Nothing is imported for it: a program that traces has OpenTelemetry loaded, one that logs with Powertools its Logger.
What cannot be used is dropped with one warning for each reason; it never keeps a job from being sent.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from loomjobs.core import limits
from loomjobs.core.label import checked_label
from loomjobs.core.outgoing import Origin
from loomjobs.core.trace import is_traceparent, of_span, of_xray

XRAY: Final = "_X_AMZN_TRACE_ID"
"""Lambda sets it for each invocation."""
_FORMATTER: Final = "aws_lambda_powertools.logging.formatter"

_correlation: ContextVar[str | None] = ContextVar("correlation")
"""Set by a block and in every run; None in a run that has none, which takes no other job's out of a Logger."""
_log = logging.getLogger("loomjobs")
_warned: set[str] = set()


def caller() -> Origin:
    """What a call inherits that is not sent by a job."""
    try:
        id = _correlation.get()
    except LookupError:
        id = _tried("the correlation id of Powertools' Logger", _logged)
    return Origin(trace=current_trace(), correlation=id)


@contextmanager
def correlation(id: str, /) -> Generator[None]:
    """For the block, what this thread or task enqueues carries this correlation id, and Powertools' log lines have it.

    It travels with the job to whatever that sends: `ctx.correlation_id`, and the field `correlation_id` of log lines.
    Without it, the id that Powertools' Logger has is taken. Up to 256 characters; raises InvalidOption.
    """
    checked_label("correlation", "id", id, most=limits.CORRELATION)
    with correlated(id):
        yield


@contextmanager
def correlated(id: str | None) -> Generator[None]:
    """As `correlation`; with None, without one of this context."""
    token = _correlation.set(id)
    try:
        with _in_log_lines(id):
            yield
    finally:
        _correlation.reset(token)


@contextmanager
def _in_log_lines(id: str | None) -> Generator[None]:
    """Powertools' keys of this thread or task, which go before those of a Logger; they are put back behind it."""
    keys: ContextVar[dict[str, Any]] | None = getattr(sys.modules.get(_FORMATTER), "THREAD_LOCAL_KEYS", None)
    if keys is None:
        yield
        return
    others = {name: value for name, value in keys.get().items() if name != "correlation_id"}
    before = keys.set(others if id is None else others | {"correlation_id": id})
    try:
        yield
    finally:
        keys.reset(before)


def current_correlation() -> str | None:
    """That of the block, or of the job, which is on."""
    return _correlation.get(None)


def current_trace() -> str | None:
    """W3C's traceparent of OpenTelemetry's current span, else of Lambda's invocation."""
    return _tried("the span of OpenTelemetry", _of_span) or _tried(f"the variable {XRAY}", _of_lambda)


def _of_span() -> str | None:
    otel: Any = sys.modules.get("opentelemetry.trace")
    if otel is None:
        return None
    span = otel.get_current_span().get_span_context()
    if not span.is_valid:
        return None
    made = of_span(span.trace_id, span.span_id, int(span.trace_flags))
    if not is_traceparent(made):
        raise ValueError(f"{made} is no traceparent")
    return made


def _of_lambda() -> str | None:
    header = os.environ.get(XRAY)
    return of_xray(header) if header else None


def _logged() -> str | None:
    """Of this context if it was given there, else of the first Logger that has one. Its loggers are those of the
    standard library with a handler of its own."""
    formatter: Any = sys.modules.get(_FORMATTER)
    if formatter is None:
        return None
    found = formatter.THREAD_LOCAL_KEYS.get().get("correlation_id") or next(_shared(), None)
    if found is None:
        return None
    return checked_label("Logger", "correlation_id", str(found), most=limits.CORRELATION)


def _shared() -> Generator[object]:
    for logger in list(logging.root.manager.loggerDict.values()):
        handler = getattr(logger, "powertools_handler", None)
        keys = getattr(getattr(handler, "formatter", None), "log_format", None)
        if isinstance(keys, dict) and keys.get("correlation_id"):
            yield keys["correlation_id"]


def _tried(what: str, find: Callable[[], str | None]) -> str | None:
    try:
        return find()
    except Exception as error:  # noqa: BLE001 whatever others' code raises, the job is sent
        drop(what, str(error))
        return None


def drop(what: str, why: str) -> None:
    """Say that it does not travel, once a process for each thing."""
    if what not in _warned:
        _warned.add(what)
        _log.warning(f"{what} is not sent along: {why}")
