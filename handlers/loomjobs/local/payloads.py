"""A bucket in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from loomjobs.core.errors import PayloadMissing


@dataclass
class MemoryPayloads:
    """Implements the runtime's Payloads. Nothing expires."""

    objects: dict[str, bytes] = field(default_factory=dict[str, bytes])
    reads: list[str] = field(default_factory=list[str])

    def put(self, key: str, data: bytes, /) -> None:
        self.objects[key] = data

    def get(self, key: str, /, *, most: int) -> bytes:
        self.reads.append(key)
        if key not in self.objects:
            raise PayloadMissing("no such object")
        return self.objects[key][:most]
