"""The message of a call: its envelope, and what SQS is told beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from loomjobs.core import defaults, limits
from loomjobs.core.call import Call, fifo_id
from loomjobs.core.envelope import render
from loomjobs.core.errors import InvalidOption, PayloadTooLarge
from loomjobs.core.follow import Follow, after
from loomjobs.core.offload import pack
from loomjobs.core.outgoing import Origin, Outgoing, is_far
from loomjobs.core.sealed import Cipher, seal
from loomjobs.core.timing import expiry, wait


def address(
    call: Call,
    *,
    id: str,
    now: datetime,
    origin: Origin,
    cipher: Cipher | None = None,
    room: int = limits.SQS_MESSAGE_BYTES,
) -> Outgoing:
    """The message of a call. Raises PayloadTooLarge, saying by how much; InvalidOption for a deadline in the past, and
    for a payload that would not live until its call is due.

    `room` is what its carrier takes, where that is less than SQS: beyond it a payload is offloaded too, if it may be.
    It expires when its call says, and no later than the run that sends it, unless it is due only after that.
    `cipher` is needed for encrypted fields: ConfigurationError without one, CipherUnavailable.
    """
    id = call.id or id
    key = call.key if call.key is not None else id
    tenant = call.tenant if call.tenant is not None else origin.tenant
    delay = wait(call, now)
    due = now + timedelta(seconds=delay)
    inherited = origin.expires if origin.expires is not None and (not delay or due < origin.expires) else None
    sealed = seal(call.job, call.encoded, id=id, cipher=cipher)
    then = after(call, id=id, key=key, origin=origin, cipher=cipher)
    written = partial(
        render,
        job=call.job.name,
        sealed=sealed.ciphertext,
        id=id,
        key=key,
        payload_version=call.job.options.version,
        enqueued_at=now,
        due=due if delay else None,
        tenant=tenant,
        trace=origin.trace,
        correlation=origin.correlation,
        hops=origin.hops,
        expires=_sooner(expiry(call, due), inherited),
        group=call.group if delay else None,
        batch=call.batch,
        then=None if then is None else then.wire(),
    )
    message = Outgoing(
        call=call,
        id=id,
        key=key,
        body=written(payload=sealed.payload),
        payload=sealed.payload,
        group=call.group if call.job.queue.fifo else tenant and fifo_id(tenant),
        dedup=_dedup(call, key, id, sealed.payload, then) if call.job.queue.fifo else None,
        delay=delay,
        tenant=tenant,
        trace=origin.trace,
        correlation=origin.correlation,
    )
    queue = call.job.queue
    if message.size > min(_most(message), room) and queue.oversized == "offload":
        message = _offloaded(message, written)
    if message.size > _most(message):
        cure = "" if queue.oversized == "offload" else f', or give queue {queue.name} oversized="offload"'
        raise PayloadTooLarge(call.job.name, message.size, _most(message), cure=cure)
    return message


def _most(message: Outgoing) -> int:
    limit = message.call.job.queue.body_limit
    return min(limit, limits.SCHEDULE_INPUT_BYTES) if is_far(message) else limit


def _offloaded(message: Outgoing, written: Callable[..., str]) -> Outgoing:
    """Its payload beside it; `written` makes its body."""
    job, queue = message.call.job, message.call.job.queue
    if message.delay > defaults.PAYLOAD_DELAY:
        days, size = defaults.PAYLOAD_DELAY // 86_400, message.size
        raise InvalidOption(
            f"{job.name}: with {size:,} bytes its payload is stored beside the message, and kept for {days} days until "
            "the call is due. Give it a shorter delay, or pass an address of your own."
        )
    ref, parcel = pack(queue.name, message.payload)
    if ref.size > defaults.PAYLOAD_BYTES:
        raise PayloadTooLarge(job.name, ref.size, defaults.PAYLOAD_BYTES)
    return replace(message, body=written(payload=ref), parcel=parcel)


def _sooner(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _dedup(call: Call, key: str, id: str, payload: bytes, then: Follow | None) -> str:
    """Equal for the same job, key and payload: SQS drops a repeat within five minutes; another payload gets through,
    so that the worker can report the conflict. Where the record decides what is a repeat, SQS
    must not; nor may it swallow a child of a batch, or what something follows, for a message that is none."""
    digest = hashlib.sha256(payload).hexdigest()[:32]
    if call.unique_for is not None or call.batch is not None or then is not None:
        digest += f"#{id}" if then is None else f"#{then.id}"
    return fifo_id(hashlib.sha256(f"{call.job.name}#{key}#{digest}".encode("utf-8", "surrogatepass")).hexdigest())
