"""A message as a worker received it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal


@dataclass(frozen=True, slots=True)
class Attribute:
    """A user attribute of a message, kept as it came so that a hand-off passes it on unchanged."""

    type: str
    text: str | None = None
    binary: bytes | None = None

    def size(self, name: str) -> int:
        """Bytes that count against SQS's limit: name, type and value."""
        value = self.binary if self.binary is not None else (self.text or "").encode("utf-8", "surrogatepass")
        return len(name.encode()) + len(self.type.encode()) + len(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """`sent_at` and `received_at` are UTC; `receives` is SQS's approximate receive count, which is not an attempt."""

    message_id: str
    body: str = field(repr=False)
    receipt: str
    queue: str
    sent_at: datetime
    received_at: datetime
    receives: int = 1
    group: str | None = None
    dedup: str | None = None
    trace_header: str | None = None
    attributes: Mapping[str, Attribute] = field(default_factory=dict[str, Attribute])
    kind: Literal["standard", "fifo"] = "standard"
