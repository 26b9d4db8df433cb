"""Before a request: payloads that go beside their messages are stored, so that no message is ahead of its payload.

A crash in between leaves an object that nothing asks for, which the bucket's lifecycle removes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loomjobs.core.errors import ConfigurationError, PayloadForbidden, PayloadUnavailable
from loomjobs.core.offload import Parcel
from loomjobs.core.outgoing import Outgoing, Sent
from loomjobs.runtime.ports import Deliver, Delivered, Payloads


@dataclass(frozen=True, slots=True)
class Storing:
    """Of one producer; without `payloads` it sends nothing that needs them."""

    payloads: Payloads | None

    def deliver(self, pack: Sequence[Outgoing], send: Deliver) -> Delivered:
        """One batch of one queue, without the messages whose payload was not stored. On FIFO nothing is sent behind
        one of those."""
        unstored: dict[str, Sent] = {}
        for message in pack:
            sent = Sent("again", "not sent behind another") if unstored and message.dedup else self._tried(message)
            if sent is not None:
                unstored[message.id] = sent
        left = [message for message in pack if message.id not in unstored]
        delivered = {message.id: (message, sent) for message, sent in (send(left) if left else ())}
        return [delivered.get(message.id) or (message, unstored[message.id]) for message in pack]

    def store(self, messages: Iterable[Outgoing]) -> None:
        """All of them, for messages that somebody else sends. Raises PayloadForbidden, PayloadUnavailable,
        ConfigurationError."""
        for message in messages:
            if message.parcel is not None:
                self._put(message.parcel)

    def _tried(self, message: Outgoing) -> Sent | None:
        """None where its message may be sent."""
        try:
            self.store([message])
        except PayloadForbidden as error:
            return Sent("refused", f"its payload was not stored: {error}")
        except PayloadUnavailable as error:
            return Sent("again", f"its payload was not stored: {error}")
        return None

    def _put(self, parcel: Parcel) -> None:
        if self.payloads is None:
            raise ConfigurationError(f"this producer was not told where payloads are stored ({parcel.key})")
        self.payloads.put(parcel.key, parcel.data)
