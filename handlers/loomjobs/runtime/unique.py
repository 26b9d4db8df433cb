"""Before a request: what is queued, runs, or counts as done is left out. After it: the record says what is queued."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from loomjobs.core.call import Call
from loomjobs.core.defaults import RECORD_TTL
from loomjobs.core.errors import StoreUnavailable
from loomjobs.core.outgoing import Outgoing, Sent
from loomjobs.core.payload import digest, parse
from loomjobs.core.record import Record, record_id
from loomjobs.core.unique import (
    Aside,
    Busy,
    Free,
    Mine,
    Reservation,
    Taken,
    confirm_write,
    judge,
    milliseconds,
    release_write,
    reserve_write,
)
from loomjobs.core.write import Item, Write, Written
from loomjobs.runtime.ports import Clock, Deliver, Delivered, Store

_LOOK_AGAIN: Final = 0.05
"""Seconds between looks at a record that another producer has reserved: that takes one request to SQS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniqueness:
    """`store` finds the records on first use; `pause` waits so many seconds; `trouble` hears what changed nothing."""

    store: Callable[[], Store]
    clock: Clock
    pause: Callable[[float], None]
    trouble: Callable[[str], None]

    def deliver(self, pack: Sequence[Outgoing], send: Deliver) -> Delivered:
        """One batch of one queue. Of two messages of a batch for one record, the second is the duplicate."""
        reservations = self._reservations(pack)
        if not reservations:
            return send(pack)
        first = {each.id: each.token for each in reversed(reservations.values())}
        held = {token: each for token, each in reservations.items() if first[each.id] == token}
        outcomes = self._reserve(held)
        held = {token: each for token, each in held.items() if token not in outcomes}
        try:
            left = [one for one in pack if one.id in held or one.id not in reservations]
            delivered = {message.id: (message, sent) for message, sent in (send(left) if left else ())}
        except Exception:
            self._write([release_write(each) for each in held.values()])
            raise
        self._record(held, delivered)
        for token, each in reservations.items():
            if token != first[each.id]:
                outcomes[token] = _behind(outcomes.get(first[each.id]) or delivered[first[each.id]][1], first[each.id])
        return [delivered.get(message.id) or (message, outcomes[message.id]) for message in pack]

    def _reservations(self, pack: Sequence[Outgoing]) -> dict[str, Reservation]:
        """By the message's id."""
        now = int(self.clock().timestamp() * 1000)
        return {one.id: _reservation(one, now) for one in pack if is_recorded(one.call)}

    def _reserve(self, wanted: Mapping[str, Reservation]) -> dict[str, Sent]:
        """What is not to be sent, with what stands in its way."""
        outcomes: dict[str, Sent] = {}
        writes = [reserve_write(each) for each in wanted.values()]
        for (token, mine), answer in zip(wanted.items(), self.store().write_many(writes), strict=True):
            try:
                stands = None if _applied(answer) else self._settle(mine, answer)
            except StoreUnavailable as error:
                outcomes[token] = Sent("again", f"nothing was sent: {error}")
            else:
                if stands is not None:
                    outcomes[token] = Sent("duplicate", stands=stands)
        return outcomes

    def _settle(self, mine: Reservation, answer: Written | StoreUnavailable) -> str | None:
        """None where it may be sent, else the id of the enqueue that stands. Raises StoreUnavailable."""
        store = self.store()
        item = _refusing(answer, store, mine.id)
        while True:
            if item is None:
                written = store.write(reserve_write(mine))
            else:
                mine = replace(mine, now=max(mine.now, int(self.clock().timestamp() * 1000)))
                match judge(Record.of(item), mine):
                    case Mine() | Aside():
                        return None
                    case Taken(token):
                        return token
                    case Busy(until):
                        self.pause(min(_LOOK_AGAIN, (until - mine.now) / 1000))
                        item = store.read(mine.id)
                        continue
                    case Free(write):
                        written = store.write(write)
            if written.applied:
                return None
            item = written.item

    def _record(self, held: Mapping[str, Reservation], delivered: Mapping[str, tuple[Outgoing, Sent]]) -> None:
        """A message without a known outcome keeps its reservation, which lapses: the next producer sends it then."""
        writes: list[Write] = []
        for token, mine in held.items():
            outcome = delivered[token][1].outcome
            if outcome == "accepted":
                writes.append(confirm_write(mine))
            elif outcome != "unknown":
                writes.append(release_write(mine))
        self._write(writes)

    def _write(self, writes: Sequence[Write]) -> None:
        """Refused ones are of records that a worker has claimed by now."""
        for answer in self.store().write_many(writes) if writes else ():
            if isinstance(answer, StoreUnavailable):
                self.trouble(f"a record does not say what became of its enqueue, and lapses: {answer}")


def is_recorded(one: Call) -> bool:
    return one.unique_for is not None or one.track


def _reservation(message: Outgoing, now: int) -> Reservation:
    due, window = now + message.delay * 1000, message.call.unique_for
    return Reservation(
        id=record_id(message.call.job.name, message.key),
        token=message.id,
        payload_hash=digest(parse(message.payload)),
        now=now,
        due=due,
        expires=due // 1000 + RECORD_TTL,
        window=None if window is None else milliseconds(window),
    )


def _behind(sent: Sent, token: str) -> Sent:
    return Sent("duplicate", stands=token) if sent.outcome == "accepted" else sent


def _applied(answer: Written | StoreUnavailable) -> bool:
    return isinstance(answer, Written) and answer.applied


def _refusing(answer: Written | StoreUnavailable, store: Store, id: str) -> Item | None:
    """The item that stands in the way; read where the answer was lost. Raises StoreUnavailable."""
    return answer.item if isinstance(answer, Written) else store.read(id)
