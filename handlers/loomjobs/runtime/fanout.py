"""`Batch`: many jobs as one piece of work, with a job for its end."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice
from types import TracebackType
from typing import Any, Final, TypeVar

from loomjobs.core.call import Call, Report, call
from loomjobs.core.defaults import RECORD_TTL
from loomjobs.core.errors import InvalidOption, PayloadTooLarge, StoreUnavailable, UndeclaredSend
from loomjobs.core.fan import (
    MOST,
    PAGE,
    Member,
    Page,
    Whole,
    advance_write,
    calls_write,
    close_write,
    header_id,
    keep_write,
    open_write,
    page_id,
    seal_write,
)
from loomjobs.core.follow import follow_of, following_id
from loomjobs.core.job import Job
from loomjobs.core.signals import Continue
from loomjobs.runtime import sending
from loomjobs.runtime.context import running
from loomjobs.runtime.gathering import Gathering
from loomjobs.runtime.ports import Store
from loomjobs.runtime.status import reader

P = TypeVar("P")

SENT: Final = 500
"""Children sent before the batch's cursor moves: fifty requests, and what a crash may send twice."""
LEAST: Final = timedelta(seconds=5)
"""Time that a run must have left for another page; twice what the slowest took, where that is longer."""


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """`total` is None until the batch is closed. `failures`: job, key and reason of each that failed."""

    key: str
    sent: int
    total: int | None
    done: int
    failures: tuple[str, ...]
    completed: bool

    @property
    def pending(self) -> int:
        """Children that have not ended."""
        return self.sent - self.done - len(self.failures)


class Batch:
    """Children are counted once each, whatever is delivered twice, retried, or redriven later.

    - `key` names the batch for as long as records are kept, 30 days after its last sign of life: a run that is repeated
      with the same key goes on where the last one came to, and a closed one does nothing.
    - `on_complete` is sent once, when all children have succeeded; where some had failed and were redriven, then.
    - `on_failure` is sent once, when all have ended and some have failed; `batch_status(key)` has those.

    The jobs of both stand in the `sends=` of each child's job, whose worker sends them, and of the job that closes the
    batch, where one does. `with` closes it, unless something is raised. AWS is asked nothing before `add` or `close`.
    """

    def __init__(self, key: str, *, on_complete: Call | None = None, on_failure: Call | None = None) -> None:
        """Raises InvalidOption."""
        if not key or len(key.encode("utf-8", "surrogatepass")) > _KEY:
            raise InvalidOption(f"Batch: its key has {len(key)} characters; give a text of 1 to {_KEY} bytes")
        self.key = key
        calls = {"completed": on_complete, "failed": on_failure}
        self._calls = {name: one for name, one in calls.items() if one is not None}
        self._is_open = False
        self._is_broken = False
        self._has_added = False
        self._sent_now = 0
        self._offered = 0
        self._slowest = timedelta(0)

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self.close()

    def add(self, job: Job[P, Any], payloads: Iterable[P], /, *, cap: int) -> Report:
        """Send a child for each payload, 500 at a time, and remember after each page how far it came.

        A run that is repeated passes over what was sent, so `payloads` must come in the same order each time. Inside a
        job it raises Continue when the time runs out: the job goes on in its next run. More than `cap` payloads are an
        error, after the whole pages before it were sent, and the batch stays open: a query that went wrong must not fan
        out without end. The report counts what was passed over as duplicate. Raises as `enqueue_many`, InvalidOption,
        StoreUnavailable.
        """
        if not 0 < cap <= MOST:
            raise InvalidOption(f"batch {self.key}: cap={cap} is not a number from 1 to {MOST:,}")
        self._check_sends(job)
        with self._unbroken():
            return self._add(job, payloads, cap)

    def _add(self, job: Job[P, Any], payloads: Iterable[P], cap: int) -> Report:
        whole = self._read()
        self._has_added = True
        start = self._offered
        source = self._numbered(payloads, job, start + cap)
        passed = sum(1 for _ in islice(source, max(0, whole.sent - start)))
        accepted = 0
        while page := list(islice(source, SENT)):
            if whole.total is not None:
                raise InvalidOption(f"batch {self.key} is closed with {whole.total} children; use another key for more")
            self._stop_in_time()
            accepted += self._send(job, page)
            self._sent_now += len(page)
        return Report(accepted=accepted, duplicate=passed)

    def close(self) -> None:
        """No more children: from here the batch can end. Again, it does nothing. Raises StoreUnavailable, NotSent."""
        self._check_sends()
        with self._unbroken():
            self._close()

    def _close(self) -> None:
        """The number of all first: no later run can add to a page that is sealed after it."""
        whole, gathering = self._read(), self._gathering()
        total = whole.total if whole.total is not None else self._offered if self._has_added else whole.sent
        if total < whole.sent:
            raise InvalidOption(
                f"batch {self.key}: {whole.sent} children were sent before, and this run has offered {total}. "
                "A repeated run must offer the same payloads in the same order."
            )
        gathering.store.write(keep_write(self.key, expires=gathering.expires()))
        closed = gathering.whole(self.key, close_write(self.key, total, expires=gathering.expires()))
        if closed.total != total:
            raise StoreUnavailable(f"batch {self.key}: another run is adding to it; close it again")
        if total % PAGE:
            last = total // PAGE
            gathering.page(self.key, last, seal_write(self.key, last, total % PAGE, expires=gathering.expires()))

    @contextmanager
    def _unbroken(self) -> Generator[None]:
        """After an error nobody knows which payload has which number: a new Batch with the key does, from the start."""
        if self._is_broken:
            raise InvalidOption(f"batch {self.key}: this Batch broke off before; go on with a new one of the same key")
        try:
            yield
        except BaseException:
            self._is_broken = True
            raise

    def _check_sends(self, *jobs: Job[Any, Any]) -> None:
        """Whoever makes the last mark sends the call of the end: a child's worker, or that of the job that closes."""
        run = running.get()
        for job in (*jobs, *([run.work.job] if run is not None else [])):
            for one in self._calls.values():
                if not job.sends_to(one.job):
                    raise UndeclaredSend(job.name, one.job.name)

    def _numbered(self, payloads: Iterable[P], job: Job[P, Any], most: int) -> Iterator[tuple[int, P]]:
        for number, payload in enumerate(payloads, self._offered):
            if number == most:
                cure = "raise cap=, or mend the query"
                raise InvalidOption(f"batch {self.key}: more than {most} children with those of {job.name}; {cure}")
            self._offered = number + 1
            yield number, payload

    def _send(self, job: Job[P, Any], page: Sequence[tuple[int, P]]) -> int:
        """One page, and then the cursor. Where another run of the same fan-out was first, its word counts."""
        began = time.monotonic()
        _enqueue_many(self._child(job, number, payload) for number, payload in page)
        gathering, since, to = self._gathering(), page[0][0], page[-1][0] + 1
        written = gathering.store.write(advance_write(self.key, since=since, to=to, expires=gathering.expires()))
        if not written.applied and (written.item is None or written.item.get("n", 0) < to):
            raise StoreUnavailable(f"batch {self.key}: its cursor is not where this run left it; run it again")
        self._slowest = max(self._slowest, timedelta(seconds=time.monotonic() - began))
        return len(page)

    def _child(self, job: Job[P, Any], number: int, payload: P) -> Call:
        member = Member.of(self.key, number)
        return replace(call(job, payload), batch=str(member), id=member.id)

    def _stop_in_time(self) -> None:
        """Each run sends a page at least, so that it comes further however short it is."""
        run = running.get()
        if self._sent_now and run is not None and run.time_left < max(LEAST, 2 * self._slowest):
            raise Continue

    def _read(self) -> Whole:
        """The batch's own item as it is, made where there is none, and before it what is sent at its end."""
        gathering = self._gathering()
        if self._is_open:
            item = gathering.store.read(header_id(self.key))
        else:
            self._keep_calls(gathering)
            item = gathering.store.write(open_write(self.key, expires=gathering.expires())).item
            self._is_open = True
        return Whole.of(item or {})

    def _keep_calls(self, gathering: Gathering) -> None:
        run = running.get()
        origin = (run.origin() if run is not None else gathering.producer.caller()).deeper()
        kept: dict[str, str] = {}
        for name, one in self._calls.items():
            cipher = gathering.producer.cipher
            follow = follow_of(one, cipher=cipher, id=following_id(f"batch:{self.key} {name}", one), origin=origin)
            kept[name] = follow.text()
        size = sum(len(text) for text in kept.values())
        if size > _CALLS:
            raise PayloadTooLarge(f"batch {self.key}: on_complete= and on_failure=", size, _CALLS)
        if kept and not gathering.store.write(calls_write(self.key, kept, expires=gathering.expires())).applied:
            gathering.store.write(keep_write(self.key, expires=gathering.expires()))

    def _gathering(self) -> Gathering:
        run = running.get()
        producer = run.producer if run is not None else sending.producer()
        store = run.effects.ledger.store if run is not None else reader()
        return Gathering(store=store, producer=producer, clock=producer.clock, ttl=RECORD_TTL)


_KEY: Final = 512
_CALLS: Final = 256 * 1024
"""Bytes of the calls of the end, in one item of 400 KB."""


def batch_status(key: str, /) -> BatchStatus:
    """How far a batch is. Reads its item, and each page that is not wholly done: a request for each hundred children.
    Raises InvalidOption where there is no such batch."""
    store = reader()
    item = store.read(header_id(key))
    if item is None:
        raise InvalidOption(f"there is no batch {key!r}, or its records are gone")
    whole = Whole.of(item)
    pages = [_page(store, key, page) for page in range(-(-whole.sent // PAGE)) if page not in whole.sound]
    done = sum(min(PAGE, whole.sent - page * PAGE) for page in whole.sound) + sum(len(each.done) for each in pages)
    failures = tuple(why for page in pages for _, why in sorted(page.failures.items()))
    return BatchStatus(key, whole.sent, whole.total, done, failures, whole.is_complete)


def _page(store: Store, key: str, page: int) -> Page:
    return Page.of(store.read(page_id(key, page)) or {})


def _enqueue_many(calls: Iterable[Call]) -> Report:
    run = running.get()
    return run.send_many(calls) if run is not None else sending.producer().enqueue_many(calls)
