"""Work that is sent when other work has ended: what `then=` carries along, and what a batch keeps for its end.

It is rendered when it is sent, and not before: its times count from then. Its id is given from the start, so that
sending it again makes no other work of it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from loomjobs.core import defaults, limits
from loomjobs.core.call import Call, fifo_id
from loomjobs.core.envelope import render, stamp, wire_text
from loomjobs.core.errors import BadEnvelope, InvalidOption, PayloadTooLarge
from loomjobs.core.outbox import Row
from loomjobs.core.outgoing import Origin, is_far
from loomjobs.core.sealed import Cipher, seal

_ENVELOPE = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """`envelope` is JSON text and lacks what is known only when it is sent. `delay` and `lasts` are seconds; `at` and
    `until` instants, UTC."""

    id: str
    queue: str
    envelope: str
    group: str | None = None
    dedup: str | None = None
    delay: int = 0
    at: datetime | None = None
    lasts: float | None = None
    until: datetime | None = None

    def row(self, now: datetime) -> Row:
        """As it is sent `now`. A deadline that is over travels along: the worker then says so."""
        delay = self.delay if self.at is None else max(0, round((self.at - now).total_seconds()))
        due = now + timedelta(seconds=delay)
        members = _ENVELOPE.decode(self.envelope) | {"enqueued_at": _raw(stamp(now))}
        if delay:
            members["due"] = _raw(stamp(due))
        expires = self.until if self.lasts is None else due + timedelta(seconds=self.lasts)
        if expires is not None:
            members["expires"] = _raw(stamp(expires))
        body = wire_text(members)
        at = round(now.timestamp() * 1000)
        return Row(id=self.id, queue=self.queue, body=body, group=self.group, dedup=self.dedup, delay=delay, at=at)

    def wire(self) -> dict[str, Any]:
        """As an envelope carries it, and a batch keeps it."""
        moments = {"at": self.at and stamp(self.at), "until": self.until and stamp(self.until)}
        optional = {"group": self.group, "dedup": self.dedup, "delay": self.delay, "lasts": self.lasts, **moments}
        given = {name: value for name, value in optional.items() if value is not None and value != 0}
        return {"id": self.id, "queue": self.queue, "envelope": msgspec.Raw(self.envelope.encode())} | given

    def text(self) -> str:
        return msgspec.json.encode(self.wire()).decode()

    @classmethod
    def of(cls, member: object) -> Follow:
        """From the member of a decoded envelope. Raises BadEnvelope."""
        return cls.parse(msgspec.json.encode(member))

    @classmethod
    def parse(cls, text: bytes | str) -> Follow:
        """From its wire form. Raises BadEnvelope."""
        try:
            found = msgspec.json.decode(text, type=_Wire)
        except msgspec.MsgspecError as error:
            raise BadEnvelope(f"what is to follow cannot be read: {error}") from None
        return cls(
            id=found.id,
            queue=found.queue,
            envelope=bytes(found.envelope).decode(),
            group=found.group,
            dedup=found.dedup,
            delay=found.delay,
            at=found.at,
            lasts=found.lasts,
            until=found.until,
        )


class _Wire(msgspec.Struct, kw_only=True):
    id: str
    queue: str
    envelope: msgspec.Raw
    group: str | None = None
    dedup: str | None = None
    delay: int = 0
    at: datetime | None = None
    lasts: float | None = None
    until: datetime | None = None


def follow_of(call: Call, *, id: str, origin: Origin, cipher: Cipher | None = None) -> Follow:
    """Raises InvalidOption for what a follower cannot have, PayloadTooLarge; for encrypted fields as `seal`."""
    if call.unique_for is not None or call.track:
        why = "leave unique_for= and track= out; its key suppresses a second effect"
        raise InvalidOption(f"{call.job.name}: what follows other work is sent without a look at its record: {why}")
    if origin.hops > defaults.HOPS:
        why = f"more than {defaults.HOPS} jobs in a chain, which Lambda's loop guard drops"
        raise InvalidOption(f"{call.job.name}: {why}")
    key = call.key if call.key is not None else id
    tenant = call.tenant if call.tenant is not None else origin.tenant
    sealed = seal(call.job, call.encoded, id=id, cipher=cipher)
    then = after(call, id=id, key=key, origin=origin, cipher=cipher)
    fifo = call.job.queue.fifo
    envelope = render(
        job=call.job.name,
        payload=sealed.payload,
        sealed=sealed.ciphertext,
        id=id,
        key=key,
        payload_version=call.job.options.version,
        enqueued_at=None,
        tenant=tenant,
        trace=origin.trace,
        correlation=origin.correlation,
        hops=origin.hops,
        group=call.group,
        then=None if then is None else then.wire(),
    )
    dedup = fifo_id(hashlib.sha256(f"{call.job.name}#{id}".encode()).hexdigest()) if fifo else None
    made = Follow(
        id=id,
        queue=call.job.queue.name,
        envelope=envelope,
        group=call.group if fifo else tenant and fifo_id(tenant),
        dedup=dedup,
        delay=call.delay,
        at=call.at,
        lasts=call.expires.total_seconds() if isinstance(call.expires, timedelta) else None,
        until=call.expires if isinstance(call.expires, datetime) else None,
    )
    row = made.row(_SOME_DAY)
    limit = call.job.queue.body_limit
    most = min(limit, limits.SCHEDULE_INPUT_BYTES) if is_far(row) else limit
    if row.size > most:
        raise PayloadTooLarge(call.job.name, row.size, most)
    return made


def after(one: Call, *, id: str, key: str, origin: Origin, cipher: Cipher | None = None) -> Follow | None:
    """What follows a call with this id and key, and inherits from `origin`. Raises as `follow_of`.

    It follows the work, so that its double has the same id; or the enqueue, where that may run the same work anew.
    """
    if one.then is None:
        return None
    first = f"{one.job.name}#{key}" if one.unique_for is None else id
    id = following_id(first, one.then)
    inherited = origin if one.tenant is None else replace(origin, tenant=one.tenant)
    return follow_of(one.then, id=id, origin=inherited.deeper(), cipher=cipher)


def following_id(first: str, then: Call) -> str:
    """The same for the same work after the same work: sent twice, it is one."""
    told = f"{first}#{then.job.name}#".encode("utf-8", "surrogatepass") + then.encoded
    return hashlib.sha256(told).hexdigest()[:32]


_SOME_DAY = datetime(2026, 1, 1, tzinfo=UTC)


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(text))
