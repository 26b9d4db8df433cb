"""A batch of jobs: which of its children have ended, counted once each, and what that makes of the whole.

Children are numbered and belong to pages of a hundred. A page is one item with the set of those that succeeded and the
set of those that failed: putting a number into a set a second time changes nothing, so no duplicate, retry or redrive
counts twice, and nothing has to be claimed. A page whose children have all ended is put into a set of the batch's own
item, the same way. Each write returns the new item, so whoever makes the last one sees that it was the last.

The last page's size and the number of pages are written when the batch is closed; a child may end before that.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from loomjobs.core.write import Absent, AllOf, AnyOf, Condition, Is, Item, Lacks, Write

PAGE: Final = 100
"""Children of a page: its item stays within a kilobyte, so that a mark costs one write unit. A page takes 1,000 marks
a second, DynamoDB's limit for one item."""
MOST: Final = 1_000_000
"""Children of a batch: its own item, which has the number of each page that ended, then has some 40 KB."""
_NUMBER: Final = re.compile("[0-9]{1,9}")
_WHY: Final = 300
"""Characters of a failure's text: a page has a hundred, in one item of 400 KB."""


@dataclass(frozen=True, slots=True)
class Member:
    """A child's place: batch, page, and number within all of the batch."""

    batch: str
    page: int
    number: int

    @classmethod
    def of(cls, batch: str, number: int) -> Member:
        return cls(batch, number // PAGE, number)

    @classmethod
    def parse(cls, text: str) -> Member | None:
        """As on the wire, `batch#page.number`; None for a text that is none."""
        batch, _, place = text.rpartition("#")
        page, _, number = place.partition(".")
        if not batch or not (_NUMBER.fullmatch(page) and _NUMBER.fullmatch(number)):
            return None
        return cls(batch, int(page), int(number))

    def __str__(self) -> str:
        return f"{self.batch}#{self.page}.{self.number}"

    @property
    def id(self) -> str:
        """The id of the child's enqueue: the same whenever the page is sent again."""
        return hashlib.sha256(f"{self.batch}#{self.number}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Page:
    """`failures` by number: job, key and reason."""

    done: frozenset[int]
    bad: frozenset[int]
    size: int
    failures: Mapping[int, str]

    @classmethod
    def of(cls, item: Item) -> Page:
        failures = {int(name[1:]): str(item[name]) for name in item if name[0] == "f" and name[1:].isdecimal()}
        return cls(item.get("done", frozenset()), item.get("bad", frozenset()), item.get("total", PAGE), failures)

    @property
    def is_sound(self) -> bool:
        """All of its children have succeeded."""
        return len(self.done) == self.size

    @property
    def is_over(self) -> bool:
        """All of its children have ended."""
        return len(self.done | self.bad) == self.size


@dataclass(frozen=True, slots=True)
class Whole:
    """`sent` children so far, `total` once it is closed. `completed` and `failed`: what was told of it, and when."""

    sent: int
    total: int | None
    sound: frozenset[int]
    bad: frozenset[int]
    completed: int
    failed: int

    @classmethod
    def of(cls, item: Item) -> Whole:
        sound, bad = item.get("sound", frozenset()), item.get("bad", frozenset())
        return cls(
            item.get("n", 0), item.get("total"), sound, bad - sound, item.get("completed", 0), item.get("failed", 0)
        )

    @property
    def pages(self) -> int | None:
        return None if self.total is None else ceil(self.total / PAGE)

    @property
    def is_complete(self) -> bool:
        """All children have succeeded."""
        return self.pages is not None and self.sound.issuperset(range(self.pages))

    @property
    def has_failed(self) -> bool:
        """All children have ended, and some have failed."""
        if self.pages is None or self.bad.isdisjoint(range(self.pages)):
            return False
        return (self.sound | self.bad).issuperset(range(self.pages))


def header_id(batch: str) -> str:
    """Of the batch's own item. No job's name has a colon, so it is no record's."""
    return f"batch:{batch}"


def page_id(batch: str, page: int) -> str:
    return f"batch-page:{page}:{batch}"


def calls_id(batch: str) -> str:
    """Of the item with what is sent at its end: apart, since a large item makes every write of it dear."""
    return f"batch-calls:{batch}"


def keep_write(batch: str, *, expires: int) -> Write:
    """The calls live as long as the batch shows signs of life."""
    return Write(id=calls_id(batch), condition=Is("expiration", ">", 0), sets={"expiration": expires}, wants_item=False)


def open_write(batch: str, *, expires: int) -> Write:
    return Write(id=header_id(batch), condition=Absent("id"), sets={"n": 0, "expiration": expires})


def calls_write(batch: str, calls: Mapping[str, Any], *, expires: int) -> Write:
    return Write(id=calls_id(batch), condition=Absent("id"), sets={**calls, "expiration": expires})


def advance_write(batch: str, *, since: int, to: int, expires: int) -> Write:
    """The children up to `to` are in their queues. Refused where another run of the fan-out is further."""
    condition = AllOf(Is("n", "=", since), Absent("total"))
    return Write(id=header_id(batch), condition=condition, sets={"n": to, "expiration": expires})


def done_write(batch: str, page: int, numbers: Sequence[int], *, expires: int) -> Write:
    """These children have succeeded, whatever was said of them before."""
    return Write(
        id=page_id(batch, page),
        condition=_ANY,
        sets={"expiration": expires},
        joins={"done": frozenset(numbers)},
        leaves={"bad": frozenset(numbers)},
        removes=tuple(f"f{number}" for number in numbers),
    )


def bad_write(member: Member, why: str, *, expires: int) -> Write:
    """This child has failed, unless it has succeeded: then the failure is of a double."""
    return Write(
        id=page_id(member.batch, member.page),
        condition=Lacks("done", member.number),
        sets={"expiration": expires, f"f{member.number}": why[:_WHY]},
        joins={"bad": frozenset({member.number})},
    )


def seal_write(batch: str, page: int, size: int, *, expires: int) -> Write:
    """The last page has so many children."""
    return Write(id=page_id(batch, page), condition=_ANY, sets={"total": size, "expiration": expires})


def close_write(batch: str, total: int, *, expires: int) -> Write:
    """No child comes after this. Refused where the number is another's."""
    unclosed = AnyOf(Absent("total"), Is("total", "=", total))
    condition = AllOf(Is("n", "=", total), unclosed)
    return Write(id=header_id(batch), condition=condition, sets={"total": total, "expiration": expires})


def over_write(batch: str, page: int, *, sound: bool, expires: int) -> Write:
    """All children of the page have ended, or `sound`: have succeeded."""
    joins = {"sound" if sound else "bad": frozenset({page})}
    return Write(id=header_id(batch), condition=_ANY, sets={"expiration": expires}, joins=joins)


def told_write(batch: str, what: str, *, now: int, expires: int) -> Write:
    """`what`, completed or failed, was told: its call is in its queue."""
    return Write(id=header_id(batch), condition=Absent(what), sets={what: now, "expiration": expires}, wants_item=False)


_ANY: Final[Condition] = AllOf()
