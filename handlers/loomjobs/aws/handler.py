"""Lambda's entry point of a worker."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from loomjobs.aws.process import WorkerProcess, deadline, worker_process
from loomjobs.core.errors import ConfigurationError

LOCAL_SECONDS = 30
"""Time an invocation is given where there is no Lambda context, which is only outside Lambda."""


def make_handler(process: WorkerProcess | None = None) -> Callable[[Any, Any], Any]:
    """The handler of this process's queue. Made once, in Lambda's init phase, where its imports are paid."""
    kept = process or worker_process(os.environ)

    def handler(event: Any, context: Any) -> Any:
        try:
            return kept.processor.answer(event, until=deadline(_remaining(context)))
        finally:
            kept.journal.flush()

    return handler


def _remaining(context: Any) -> int:
    """Milliseconds left. Without them no record could get a deadline, so in Lambda their absence is an error."""
    read = getattr(context, "get_remaining_time_in_millis", None)
    if read is not None:
        return int(read())
    if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
        raise ConfigurationError("Lambda gave no context with a remaining time; the handler must be called by Lambda")
    return LOCAL_SECONDS * 1000
