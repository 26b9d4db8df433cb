"""Trace contexts: W3C's traceparent, which the envelope has, and the header of X-Ray, which SQS knows.

https://www.w3.org/TR/trace-context/#traceparent-header
https://docs.aws.amazon.com/xray/latest/devguide/xray-concepts.html#xray-concepts-tracingheader
"""

from __future__ import annotations

import re
from typing import Final

_TRACEPARENT: Final = re.compile("(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
_ROOT: Final = re.compile("1-([0-9a-f]{8})-([0-9a-f]{24})")
_LINEAGE: Final = re.compile("(?:^|;) *(Lineage=[0-9A-Za-z:|]+) *(?:;|$)")
_SAMPLED: Final = 1


def is_traceparent(text: str) -> bool:
    return _TRACEPARENT.fullmatch(text) is not None


def trace_id(traceparent: str) -> str:
    """What all spans of a trace share."""
    return traceparent[3:35]


def of_span(trace: int, span: int, flags: int) -> str:
    """The traceparent of a span, as OpenTelemetry counts."""
    return f"00-{trace:032x}-{span:016x}-{flags & 0xFF:02x}"


def of_xray(header: str) -> str | None:
    """The traceparent of X-Ray's header; None where it names no parent. Raises ValueError for what is no header."""
    split = (part.strip().partition("=") for part in header.split(";"))
    fields = {name: value for name, _, value in split}
    root = _ROOT.fullmatch(fields.get("Root", "").lower())
    if root is None:
        raise ValueError(f"{header[:100]!r} is no trace header of X-Ray")
    if "Parent" not in fields:
        return None
    flags = _SAMPLED if fields.get("Sampled") == "1" else 0
    made = f"00-{root[1]}{root[2]}-{fields['Parent'].lower()}-{flags:02x}"
    if not is_traceparent(made):
        raise ValueError(f"{header[:100]!r} has no parent that is a segment of X-Ray")
    return made


def is_xray(header: str) -> bool:
    try:
        of_xray(header)
    except ValueError:
        return False
    return True


def to_xray(traceparent: str, *, beside: str = "") -> str | None:
    """X-Ray's header of a traceparent, for the system attribute `AWSTraceHeader`; None for what is none.

    `beside` is the header of the invocation that sends: its Lineage is taken over, by which Lambda counts the hops of a
    chain, since the attribute stands in for the request's own header.
    https://docs.aws.amazon.com/xray/latest/devguide/xray-services-sqs.html
    """
    parts = _TRACEPARENT.fullmatch(traceparent)
    if parts is None:
        return None
    trace, parent, flags = parts.groups()
    lineage = _LINEAGE.search(beside)
    made = f"Root=1-{trace[:8]}-{trace[8:]};Parent={parent};Sampled={int(flags, 16) & _SAMPLED}"
    return made if lineage is None else f"{made};{lineage[1]}"
