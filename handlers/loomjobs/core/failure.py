"""What is kept of an exception: enough to group and to find it, bounded in size."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Iterable
from dataclasses import replace
from types import TracebackType

from loomjobs.core.decision import Failure
from loomjobs.core.redact import SCRUBBED_CHARACTERS, redact, scrub
from loomjobs.core.sensitive import Leaf

MESSAGE_CHARACTERS = 1_000
STACK_CHARACTERS = 4_000


def failure_of(error: BaseException, *, secrets: Iterable[Leaf] = ()) -> Failure:
    """The failure with its fingerprint: equal for the same class raised from the same place, whatever the values.

    `secrets` are scrubbed from its texts, those of its causes and notes too, before anything is cut.
    """
    secrets = list(secrets)
    kind = _kind(error)
    place = _place(error.__traceback__)
    fingerprint = hashlib.sha256(f"{kind}@{place}".encode()).hexdigest()[:12]
    stack = scrub("".join(traceback.format_exception(error)), secrets)[-STACK_CHARACTERS:]
    return Failure(kind, scrub(_text(error)[:SCRUBBED_CHARACTERS], secrets)[:MESSAGE_CHARACTERS], fingerprint, stack)


def redacted(failure: Failure, payload: object, *, key: str = "") -> Failure:
    """The failure without the payload's texts and what looks like a credential (see `redact`)."""
    return replace(
        failure,
        message=redact(failure.message, payload, key=key),
        stack=redact(failure.stack, payload, key=key),
    )


def _kind(error: BaseException) -> str:
    cls = type(error)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 an author's __str__ must not hide the failure itself
        return "(its text could not be made)"


def _place(trace: TracebackType | None) -> str:
    """Module and function where it was raised; not the line, so that an edit above does not split a group."""
    if trace is None:
        return "?"
    while trace.tb_next is not None:
        trace = trace.tb_next
    frame = trace.tb_frame
    return f"{frame.f_globals.get('__name__', '?')}:{frame.f_code.co_qualname}"
