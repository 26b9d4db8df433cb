"""A commit: the author's items, the calls that follow and the completion of the record, all or nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, TypeAlias

from loomjobs.core import limits
from loomjobs.core.ending import complete_write
from loomjobs.core.errors import CommitRefused, CommitTooLarge, InvalidCommit, LostClaim, PayloadTooLarge
from loomjobs.core.outbox import Row, row_of, to_item
from loomjobs.core.outgoing import Outgoing
from loomjobs.core.record import Record
from loomjobs.core.write import Write

Action: TypeAlias = Mapping[str, Any]
"""One entry of boto3's `client.transact_write_items(TransactItems=[...])`, such as `{"Put": {"TableName": ...}}`."""

KINDS: Final = {"Put": "Item", "Update": "Key", "Delete": "Key", "ConditionCheck": "Key"}
"""The actions that there are, and the member that says which item."""
TOKEN: Final = 36
"""Characters of a ClientRequestToken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """In this order: `items`, a Put for each of `rows`, and `complete`, which is fenced by the claim of `record`.

    `token` is the same for the same content under the same claim: a request that botocore repeats counts once.
    """

    record: Record
    items: tuple[Action, ...]
    rows: tuple[Row, ...]
    complete: Write
    token: str


@dataclass(frozen=True, slots=True)
class Committed:
    """Everything is written, now or by an earlier try whose answer was lost."""


@dataclass(frozen=True, slots=True)
class ItemRefused:
    """DynamoDB refused an item of the author's; the fields are those of CommitRefused."""

    place: int | None
    reason: str
    item: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class FenceLost:
    """The record is no longer this claim's to complete."""


CommitOutcome: TypeAlias = Committed | ItemRefused | FenceLost


class Transactor(Protocol):
    def commit(self, commit: Commit, /) -> CommitOutcome:
        """Carry it out. Raises StoreUnavailable when it is not known to be written; the same commit may be tried again,
        and an earlier success is then recognised."""
        ...


def make_commit(
    record: Record,
    *,
    items: Iterable[Action] = (),
    messages: Iterable[Outgoing] = (),
    result: str | None = None,
    now: datetime,
    expires: int,
) -> Commit:
    """`result` is JSON text, `expires` the record's new TTL. Raises CommitTooLarge, InvalidCommit, PayloadTooLarge."""
    actions, sent = tuple(items), tuple(messages)
    count = len(actions) + len(sent) + 1
    if count > limits.TRANSACTION_ACTIONS:
        parts = f"{len(actions)} items, {len(sent)} calls and the job's own record"
        raise CommitTooLarge(f"actions in the commit ({parts})", count, limits.TRANSACTION_ACTIONS)
    sizes = [_checked(place, action) for place, action in enumerate(actions)]
    rows = tuple(_row(message, now) for message in sent)
    size = sum(sizes) + sum(_row_size(row) for row in rows)
    if size > limits.TRANSACTION_BYTES:
        raise CommitTooLarge(f"bytes in the {count} actions of the commit", size, limits.TRANSACTION_BYTES)
    complete = complete_write(record, now=round(now.timestamp() * 1000), expires=expires, result=result)
    token = _token(record.owner, actions, rows, result)
    return Commit(record=record, items=actions, rows=rows, complete=complete, token=token)


def settle(outcome: CommitOutcome, *, job: str) -> None:
    """Return where it is committed. Raises CommitRefused, LostClaim."""
    match outcome:
        case Committed():
            return
        case ItemRefused(place, reason, item):
            raise CommitRefused(place, reason, item)
        case FenceLost():
            raise LostClaim(f"{job}: another worker has taken this job over; nothing of the commit was written")


def _checked(place: int, action: Action) -> int:
    """The action's size. Its form is checked here, since boto3 is told not to, and a mistake has its place in items."""
    where = f"items[{place}]"
    if not isinstance(action, Mapping) or len(action) != 1 or next(iter(action)) not in KINDS:
        raise InvalidCommit(f"{where}: one of {', '.join(KINDS)} is wanted, such as {{'Put': {{'TableName': ...}}}}")
    (kind, body), *_ = action.items()
    for member in ("TableName", KINDS[kind]):
        if not isinstance(body, Mapping) or not body.get(member):
            raise InvalidCommit(f"{where}: {kind} has no {member}")
    if kind in ("Update", "ConditionCheck"):
        wanted = "UpdateExpression" if kind == "Update" else "ConditionExpression"
        if not body.get(wanted):
            raise InvalidCommit(f"{where}: {kind} has no {wanted}")
    _attributes(where, body[KINDS[kind]])
    try:
        return _size(body[KINDS[kind]]) + _size(body.get("ExpressionAttributeValues", {}))
    except TypeError as error:
        raise InvalidCommit(f"{where}: a value does not have its type's form: {error}") from error


def _attributes(where: str, item: Any) -> None:
    """DynamoDB's JSON, as the client takes it; plain Python values are the resource's."""
    if not isinstance(item, Mapping):
        raise InvalidCommit(f"{where}: its item is no mapping of attributes")
    for name, value in item.items():
        if not isinstance(value, Mapping) or len(value) != 1:
            raise InvalidCommit(f"{where}: attribute {name!r} has no type; write {{'S': 'text'}}, {{'N': '1'}}, ...")


def _size(attributes: Any) -> int:
    """DynamoDB's size of typed attributes: names and values, lists and maps with their overhead."""
    if not isinstance(attributes, Mapping):
        return 0
    return sum(len(str(name).encode("utf-8", "surrogatepass")) + _value(value) for name, value in attributes.items())


def _value(value: Any) -> int:
    if not isinstance(value, Mapping):
        return 0
    total = 0
    for kind, held in value.items():
        match kind:
            case "L":
                total += 3 + sum(1 + _value(each) for each in held)
            case "M":
                total += 3 + _size(held) + len(held)
            case "SS" | "NS" | "BS":
                total += sum(_length(each) for each in held)
            case "BOOL" | "NULL":
                total += 1
            case "N":
                total += len(str(held)) // 2 + 1
            case _:
                total += _length(held)
    return total


def _length(held: Any) -> int:
    return len(held.encode("utf-8", "surrogatepass")) if isinstance(held, str) else len(bytes(held))


def _row(message: Outgoing, now: datetime) -> Row:
    """A row is an item: it holds less than a message of SQS."""
    row = row_of(message, now=now)
    size = _row_size(row)
    if size > limits.DYNAMODB_ITEM_BYTES:
        raise PayloadTooLarge(message.call.job.name, size, limits.DYNAMODB_ITEM_BYTES)
    return row


def _row_size(row: Row) -> int:
    stored = to_item(row).items()
    return sum(len(name) + (len(value.encode()) if isinstance(value, str) else 21) for name, value in stored)


def _token(owner: str, items: Sequence[Action], rows: Sequence[Row], result: str | None) -> str:
    """Of the claim and the content: a commit that was refused may be followed by another one under the same claim.
    The fence, not this, keeps two of them from both being written."""
    content = repr((owner, items, [(row.id, row.queue, row.body) for row in rows], result))
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:TOKEN]
