"""Execution records in memory, with DynamoDB's meaning of a conditional write, and its failures on demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from loomjobs.core.errors import StoreUnavailable
from loomjobs.core.write import Item, Write, Written, apply
from loomjobs.runtime.ports import Answer

Fault = Literal["none", "refused", "reply-lost"]


class MemoryStore:
    """Implements the runtime's Store. Expired items stay, as DynamoDB's do for days.

    `faults` is consumed one per write: `refused` fails before the write, `reply-lost` after it.
    """

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.faults: list[Fault] = []

    def write(self, write: Write, /) -> Written:
        fault = self.faults.pop(0) if self.faults else "none"
        if fault == "refused":
            raise StoreUnavailable("the store refused the write (injected)")
        written = apply(write, self.items.get(write.id))
        if written.applied and written.item is not None:
            self.items[write.id] = written.item
        if fault == "reply-lost":
            raise StoreUnavailable("the store's answer was lost (injected)")
        return written

    def write_many(self, writes: Sequence[Write], /) -> Sequence[Answer]:
        return [self._one(write) for write in writes]

    def read(self, id: str, /) -> Item | None:
        return self.items.get(id)

    def _one(self, write: Write) -> Answer:
        try:
            return self.write(write)
        except StoreUnavailable as error:
            return error

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items.values())
