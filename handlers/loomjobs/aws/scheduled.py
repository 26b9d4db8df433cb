"""Calls that wait in one-off schedules: seen, moved, cancelled; and sent again where EventBridge Scheduler failed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from loomjobs.aws.one_off import firing
from loomjobs.core import names
from loomjobs.core.call import fifo_id
from loomjobs.core.envelope import Envelope
from loomjobs.core.errors import BadEnvelope, LoomjobsError
from loomjobs.core.later import PREFIX, moved, queue_prefix

_KEPT = ("GroupName", "Name", "Target")
"""Of a schedule that is moved; UpdateSchedule sets everything that it is not told to its default."""
_POLL_SECONDS = 1


class NotScheduled(LoomjobsError):
    """No such call waits: it was sent, cancelled, or never was."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"no call {name} waits: it was sent or cancelled, or the name is wrong (see loomjobs scheduled list)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """`name` is its queue and id; `at` its minute, UTC. `job` is empty for a body that is no envelope. A call whose
    payload is beside it may be due up to `stored_until`."""

    name: str
    at: datetime
    job: str = ""
    id: str = ""
    key: str = ""
    expires: datetime | None = None
    stored_until: datetime | None = None


class Scheduled:
    """Of one environment. `find` gives the value of a variable in `names.LATER_...`; the clients are boto3's."""

    def __init__(self, find: Callable[[str], str], *, scheduler: Any, sqs: Any) -> None:
        self._find = find
        self._scheduler = scheduler
        self._sqs = sqs

    def waiting(self, queue: str | None = None) -> Iterator[Waiting]:
        """In the order of their names, which is none of time; one request for each and one for every hundred."""
        prefix = PREFIX if queue is None else queue_prefix(queue)
        pages = self._scheduler.get_paginator("list_schedules").paginate(GroupName=self._group, NamePrefix=prefix)
        for page in pages:
            for each in page["Schedules"]:
                found = self._get(each["Name"])
                if found is not None:  # it may be sent at this moment
                    yield _waiting(found)

    def move(self, name: str, to: datetime) -> Waiting:
        """Have it sent in the minute after `to`, UTC. Raises NotScheduled, and LoomjobsError for an instant that is
        over, after its deadline, or later than a payload beside it is kept for."""
        found = self._get(PREFIX + name)
        if found is None:
            raise NotScheduled(name)
        one = _waiting(found)
        if to <= datetime.now(UTC):
            raise LoomjobsError(f"{to.isoformat()} is over; give a later instant, or cancel it and enqueue it again")
        if one.expires is not None and one.expires <= to:
            raise LoomjobsError(f"{name} expires at {one.expires.isoformat()}, so at {to.isoformat()} it would not run")
        if one.stored_until is not None and one.stored_until < to:
            raise LoomjobsError(
                f"the payload of {name} is beside its message, and kept for calls that are due by "
                f"{one.stored_until.isoformat()}; cancel it and enqueue it again"
            )
        target = found["Target"] | {"Input": moved(found["Target"]["Input"], to)}
        try:
            self._scheduler.update_schedule(**{part: found[part] for part in _KEPT} | {"Target": target}, **firing(to))
        except self._scheduler.exceptions.ResourceNotFoundException:
            raise NotScheduled(name) from None
        return _waiting(found | {"Target": target} | firing(to))

    def cancel(self, name: str) -> Waiting:
        """It will not be sent. Raises NotScheduled."""
        found = self._get(PREFIX + name)
        if found is None:
            raise NotScheduled(name)
        try:
            self._scheduler.delete_schedule(GroupName=self._group, Name=PREFIX + name)
        except self._scheduler.exceptions.ResourceNotFoundException:
            raise NotScheduled(name) from None
        return _waiting(found)

    def resend(self) -> Iterator[str]:
        """Send what EventBridge Scheduler could not to the queues that it was for: send, then delete. Yields a line for
        each. Raises botocore's errors, with what is left in the queue."""
        url = self._url(self._find(names.LATER_DLQ))
        while True:
            received = self._sqs.receive_message(
                QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=_POLL_SECONDS, MessageAttributeNames=["All"]
            ).get("Messages", [])
            if not received:
                return
            for message in received:
                target = message.get("MessageAttributes", {}).get("TARGET_ARN", {}).get("StringValue", "")
                yield self._resent(url, message, target)

    def _resent(self, url: str, message: Any, target: str) -> str:
        members = _envelope(message["Body"])
        group = members.get("group")
        if not target or (target.endswith(".fifo") and not group):
            return f"{message['MessageId']}: left, since it does not say which queue or group it was for"
        tenant = members.get("tenant")
        if not target.endswith(".fifo"):
            group = fifo_id(tenant) if isinstance(tenant, str) and tenant else None
        grouped = {"MessageGroupId": group} if group else {}
        self._sqs.send_message(QueueUrl=self._url(target), MessageBody=message["Body"], **grouped)
        self._sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return f"{message['MessageId']}: sent to {target.rsplit(':', 1)[1]}"

    def _url(self, arn: str) -> str:
        *_, account, name = arn.split(":")
        return str(self._sqs.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=account)["QueueUrl"])

    def _get(self, name: str) -> Any:
        try:
            return self._scheduler.get_schedule(GroupName=self._group, Name=name)
        except self._scheduler.exceptions.ResourceNotFoundException:
            return None

    @property
    def _group(self) -> str:
        return self._find(names.LATER_GROUP)


def _waiting(found: Mapping[str, Any]) -> Waiting:
    expression = str(found["ScheduleExpression"]).removeprefix("at(").removesuffix(")")
    one = Waiting(
        name=str(found["Name"]).removeprefix(PREFIX),
        at=datetime.fromisoformat(expression).replace(tzinfo=UTC),
    )
    try:
        envelope = Envelope.parse(found["Target"]["Input"])
    except BadEnvelope:
        return one
    return replace(
        one,
        job=envelope.job,
        id=envelope.id or "",
        key=envelope.key or "",
        expires=envelope.expires,
        stored_until=envelope.stored_until,
    )


def _envelope(body: str) -> Mapping[str, Any]:
    try:
        members = json.loads(body)
    except ValueError:
        return {}
    return members if isinstance(members, dict) else {}
