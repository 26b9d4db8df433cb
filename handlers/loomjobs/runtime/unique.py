"""Before a request: what is queued, runs, or counts as done is left out. After it: the record says what is queued."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

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
    restore_write,
)
from loomjobs.core.write import Item, Write, Written
from loomjobs.runtime.ports import Clock, Deliver, Delivered, Store

_LOOK_AGAIN: Final = 0.05
"""Seconds between looks at a record that another producer has reserved: that takes one request to SQS."""
_ROUNDS: Final = 4
"""Tries of one reservation: each refusal shows a newer record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniqueness:
    """`store` finds the records on first use; `pause` waits so many seconds; `trouble` hears what changed nothing."""

    store: Callable[[], Store]
    clock: Clock
    pause: Callable[[float], None]
    trouble: Callable[[str], None]

    def deliver(self, pack: Sequence[Outgoing], send: Deliver) -> Delivered:
        """One batch of one queue. Of two messages of a batch for one record, the second is the duplicate."""
        if not any(is_recorded(each.call) for each in pack):
            return send(pack)
        done: dict[str, tuple[Outgoing, Sent]] = {}
        left = list(pack)
        while left:
            before = len(left)
            left = self._round(left, send, done)
            if len(left) == before:
                self.pause(_LOOK_AGAIN)
        return [done[message.id] for message in pack]

    def _round(self, pack: Sequence[Outgoing], send: Deliver, done: _Done) -> list[Outgoing]:
        """Send what is free, and return what another producer is about to send. Nothing is held while that is waited
        for, so two producers never wait for each other. On FIFO nothing is sent before what stands ahead of it."""
        now = int(self.clock().timestamp() * 1000)
        wanted = {one.id: _reservation(one, now) for one in pack if is_recorded(one.call)}
        first = {each.id: each.token for each in reversed(wanted.values())}
        looks = self._reserve([each for token, each in wanted.items() if first[each.id] == token])
        held = {token: look for token, look in looks.items() if isinstance(look, _Held)}
        sendable, rest = _parted(pack, looks, {token: first[each.id] for token, each in wanted.items()})
        try:
            self._write([held.pop(one.id).back() for one in rest if one.id in held])
            delivered = send(sendable) if sendable else ()
        except Exception:
            self._write([each.back() for each in held.values()])
            raise
        done |= {message.id: (message, sent) for message, sent in delivered}
        self._record(held, done)
        left: list[Outgoing] = []
        for message in pack:
            outcome = _outcome(message, looks.get(message.id), wanted, first, done, rest)
            if outcome is not None:
                done[message.id] = message, outcome
            elif message.id not in done:
                left.append(message)
        return left

    def _reserve(self, wanted: Sequence[Reservation]) -> dict[str, _Look]:
        """By token, what came of it: held, busy elsewhere, or the outcome of a message that is not sent."""
        looks: dict[str, _Look] = {}
        for mine, answer in zip(wanted, self.store().write_many([reserve_write(each) for each in wanted]), strict=True):
            try:
                looks[mine.token] = _Held(mine) if _applied(answer) else self._settle(mine, answer)
            except StoreUnavailable as error:
                looks[mine.token] = Sent("again", f"nothing was sent: {error}")
        return looks

    def _settle(self, mine: Reservation, answer: Written | StoreUnavailable) -> _Look:
        """Raises StoreUnavailable."""
        store = self.store()
        item = _refusing(answer, store, mine.id)
        for _ in range(_ROUNDS):
            write, former = reserve_write(mine), item
            if item is not None:
                match judge(Record.of(item), mine):
                    case Mine() | Aside():  # what is left alone refuses our later writes by itself
                        return _Held(mine)
                    case Taken(token):
                        return Sent("duplicate", stands=token)
                    case Busy():
                        return None
                    case Free(write):
                        pass
            written = store.write(write)
            if written.applied:
                return _Held(mine, former)
            item = written.item
        return None

    def _record(self, held: Mapping[str, _Held], done: _Done) -> None:
        """A message without a known outcome keeps its reservation, which lapses: the next producer sends it then."""
        writes: list[Write] = []
        for token, each in held.items():
            outcome = done[token][1].outcome
            if outcome == "accepted":
                writes.append(confirm_write(each.mine))
            elif outcome != "unknown":
                writes.append(each.back())
        self._write(writes)

    def _write(self, writes: Sequence[Write]) -> None:
        """Refused ones are of records that a worker has claimed by now."""
        for answer in self.store().write_many(writes) if writes else ():
            if isinstance(answer, StoreUnavailable):
                self.trouble(f"a record does not say what became of its enqueue, and lapses: {answer}")


@dataclass(frozen=True, slots=True)
class _Held:
    """A reservation of ours; `former` is the record that it began anew."""

    mine: Reservation
    former: Item | None = None

    def back(self) -> Write:
        """Nothing was sent: the record is as it was before."""
        return release_write(self.mine) if self.former is None else restore_write(self.mine, self.former)


_Look: TypeAlias = "_Held | Sent | None"
"""None: another producer is about to send it."""
_Done: TypeAlias = "dict[str, tuple[Outgoing, Sent]]"


def _parted(
    pack: Sequence[Outgoing], looks: Mapping[str, _Look], first: Mapping[str, str]
) -> tuple[list[Outgoing], list[Outgoing]]:
    """What is sent now, and on FIFO what is not, since it stands behind something that is not. `first` has for each
    recorded message the first one of the pack with its record."""
    sendable: list[Outgoing] = []
    rest: list[Outgoing] = []
    for message in pack:
        if rest:
            rest.append(message)
            continue
        is_first = first.get(message.id, message.id) == message.id
        look = looks.get(message.id)
        if message.id not in first or isinstance(look, _Held):
            sendable.append(message)
        elif is_first and message.dedup is not None and not (isinstance(look, Sent) and look.outcome == "duplicate"):
            rest.append(message)
    return sendable, rest


def _outcome(
    message: Outgoing,
    look: _Look,
    wanted: Mapping[str, Reservation],
    first: Mapping[str, str],
    done: _Done,
    rest: Sequence[Outgoing],
) -> Sent | None:
    """Of a message that was not sent in this round; None for one that was, or that is tried in the next."""
    if message.id in done:
        return None
    if isinstance(look, Sent) and (not rest or message is rest[0] or look.outcome == "duplicate"):
        return look
    if rest and message in rest:
        head = done.get(rest[0].id)
        return Sent("again", "not sent behind another") if head is not None and head[1].outcome == "again" else None
    mine = wanted.get(message.id)
    if mine is not None and first[mine.id] != message.id and first[mine.id] in done:
        return _behind(done[first[mine.id]][1], first[mine.id])
    return None


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
