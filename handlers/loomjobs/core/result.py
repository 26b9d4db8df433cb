"""What is kept of a job's return value."""

from __future__ import annotations

from typing import Any

from loomjobs.core.errors import BadPayload
from loomjobs.core.job import Job
from loomjobs.core.payload import decode, encode, parse

LIMIT = 256
"""Bytes of JSON; a record stays within one write unit (1 KB) with it."""


def encode_result(value: object, job: Job[Any, Any]) -> tuple[str | None, str]:
    """The JSON to store, or None with the reason. The effect is done by now, so a result never fails a job."""
    if value is None:
        return None, ""
    try:
        text = encode(value, job.result_type).decode()
    except BadPayload as error:
        return None, f"its result was not kept: {error}"
    if len(text.encode()) > LIMIT:
        return None, f"its result was not kept: {len(text.encode())} bytes of JSON, more than {LIMIT}"
    return text, ""


def decode_result(text: str | None, job: Job[Any, Any]) -> Any:
    """The stored result, typed as the job declares it."""
    return None if text is None else decode(parse(text), job.result_type)
