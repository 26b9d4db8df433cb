"""One SQS queue in memory, standard or FIFO, with what the runtime depends on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from loomjobs.core import limits
from loomjobs.core.delivery import Attribute

DEDUPLICATION = timedelta(minutes=5)
_ALLOWED = re.compile("[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")
_ID = re.compile(f"[!-~]{{1,{limits.SQS_FIFO_ID}}}")
"""https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html"""


class Refused(ValueError):
    """SQS would not take this message."""


@dataclass(slots=True)
class Message:
    id: str
    body: str
    sent_at: datetime
    visible_at: datetime
    group: str | None = None
    dedup: str | None = None
    attributes: Mapping[str, Attribute] = field(default_factory=dict[str, Attribute])
    receives: int = 0
    received_at: datetime | None = None

    @property
    def receipt(self) -> str:
        """Of the latest receive; older ones no longer count."""
        return f"{self.id}/{self.receives}"


@dataclass
class MemoryQueue:
    """`dead_letters` gets what was received more than `max_receives` times. Durations are SQS's seconds."""

    name: str
    fifo: bool = False
    visibility: int = 30
    retention: timedelta = timedelta(days=7)
    max_receives: int = 1_000
    dead_letters: MemoryQueue | None = None
    messages: list[Message] = field(default_factory=list[Message])
    _seen: dict[tuple[str, str], datetime] = field(default_factory=dict[tuple[str, str], datetime])
    _count: int = 0

    def send(
        self,
        body: str,
        *,
        now: datetime,
        group: str | None = None,
        dedup: str | None = None,
        delay: int = 0,
        attributes: Mapping[str, Attribute] | None = None,
        later: timedelta = timedelta(0),
    ) -> str | None:
        """The new message's id, or None for one that FIFO deduplication swallowed. Raises Refused as SQS would.

        `later` stands for a one-off schedule that sends it then.
        """
        self._check(body, group, dedup, delay, attributes or {})
        if self.fifo and self._is_repeat(group or "", dedup or "", now):
            return None
        self._count += 1
        id = f"{self.name}-{self._count}"
        visible = now + later + timedelta(seconds=delay)
        self.messages.append(Message(id, body, now + later, visible, group, dedup, dict(attributes or {})))
        return id

    def receive(self, most: int, *, now: datetime) -> list[Message]:
        """Up to `most` visible messages, in order. A FIFO group with one in flight gives none."""
        self._expire(now)
        taken: list[Message] = []
        blocked = self._blocked(now)
        for message in list(self.messages):
            if len(taken) == most or message.visible_at > now or message.group in blocked:
                continue
            if message.receives >= self.max_receives and self.dead_letters is not None:
                self._move(message, self.dead_letters, now)
                continue
            message.receives += 1
            message.received_at = now
            message.visible_at = now + timedelta(seconds=self.visibility)
            taken.append(message)
        return taken

    def delete(self, receipt: str) -> None:
        self.messages = [each for each in self.messages if each.receipt != receipt]

    def change_visibility(self, receipt: str, seconds: int, *, now: datetime) -> None:
        """Raises Refused for a receipt that no longer counts, and beyond 12 hours from the receive."""
        message = next((each for each in self.messages if each.receipt == receipt), None)
        if message is None or message.received_at is None:
            raise Refused("ReceiptHandleIsInvalid")
        visible = now + timedelta(seconds=seconds)
        if visible - message.received_at > timedelta(seconds=limits.SQS_VISIBILITY_SECONDS):
            raise Refused("InvalidParameterValue: more than 12 hours in total")
        message.visible_at = visible

    def next_visible(self, now: datetime) -> datetime | None:
        """When the next message can be received; behind one in flight its FIFO group waits."""
        blocked = self._blocked(now)
        free = [each for each in self.messages if each.visible_at > now or each.group not in blocked]
        return min((each.visible_at for each in free), default=None)

    def _blocked(self, now: datetime) -> set[str | None]:
        """The FIFO groups with a message in flight."""
        return {each.group for each in self.messages if self.fifo and each.visible_at > now and each.receives}

    def _move(self, message: Message, target: MemoryQueue, now: datetime) -> None:
        """SQS's own redrive: same id and body; on standard queues the age goes on, on FIFO it starts anew."""
        self.messages.remove(message)
        message.visible_at = now
        message.receives = 0
        if self.fifo:
            message.sent_at = now
        target.messages.append(message)

    def _expire(self, now: datetime) -> None:
        self.messages = [each for each in self.messages if now - each.sent_at < self.retention]

    def _is_repeat(self, group: str, dedup: str, now: datetime) -> bool:
        """Tracked for five minutes, also after the message was deleted; per group, as high throughput has it."""
        self._seen = {key: at for key, at in self._seen.items() if now - at < DEDUPLICATION}
        if (group, dedup) in self._seen:
            return True
        self._seen[group, dedup] = now
        return False

    def _check(
        self, body: str, group: str | None, dedup: str | None, delay: int, attributes: Mapping[str, Attribute]
    ) -> None:
        size = len(body.encode("utf-8", "surrogatepass")) + sum(each.size(name) for name, each in attributes.items())
        rules: Sequence[tuple[bool, str]] = [
            (0 < size <= limits.SQS_MESSAGE_BYTES, f"a message of {size:,} bytes"),
            (_ALLOWED.fullmatch(body) is not None, "InvalidMessageContents"),
            (len(attributes) <= limits.SQS_ATTRIBUTES, "more than ten attributes"),
            (0 <= delay <= limits.SQS_DELAY_SECONDS, f"DelaySeconds {delay}"),
            (not (self.fifo and delay), "DelaySeconds on a FIFO queue"),
            (all(_ID.fullmatch(each) for each in (group, dedup) if each is not None), "InvalidParameterValue: an id"),
            (not self.fifo or bool(group and dedup), "a FIFO message without group or deduplication id"),
        ]
        for holds, what in rules:
            if not holds:
                raise Refused(what)
