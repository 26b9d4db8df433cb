"""Commits in DynamoDB: one TransactWriteItems, and what its many errors mean."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from loomjobs.aws.expressions import to_item as plain_item
from loomjobs.aws.expressions import typed_item, update_arguments
from loomjobs.core.commit import Commit, CommitOutcome, Committed, FenceLost, ItemRefused
from loomjobs.core.ending import landed
from loomjobs.core.errors import StoreError, StoreUnavailable
from loomjobs.core.outbox import Row, to_item
from loomjobs.core.write import Item, Write

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TRIES: Final = 5
_PAUSE: Final = 0.05
_AGAIN: Final = frozenset(
    """TransactionConflict TransactionInProgressException ThrottlingError ThrottlingException
    ProvisionedThroughputExceeded ProvisionedThroughputExceededException RequestLimitExceeded
    InternalServerError""".split()
)
"""https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html"""
_AUTHORS: Final = frozenset({"ValidationException", "SerializationException", "ResourceNotFoundException"})
"""Of the request as a whole, and our part is right: two actions on one item, a wrong expression, a missing table."""


class DynamoTransactor:
    """Implements core's Transactor. `outbox` is the outbox table, None where no job of this worker sends."""

    def __init__(
        self,
        table: str,
        outbox: str | None,
        *,
        client: DynamoDBClient,
        pause: Callable[[float], None] = time.sleep,
        roll: Callable[[], float] = random.random,
    ) -> None:
        self._table = table
        self._outbox = outbox
        self._client = client
        self._pause = pause
        self._roll = roll

    def commit(self, commit: Commit, /) -> CommitOutcome:
        """Conflicts and throttling are tried again, with jitter; a lost answer is looked for in the record.

        A right that the worker does not have is raised as botocore's ClientError: it is no outage, and counts as the
        job's failure.
        """
        actions = self._actions(commit)
        for attempt in range(1, TRIES + 1):
            try:
                self._client.transact_write_items(TransactItems=actions, ClientRequestToken=commit.token)
            except ClientError as error:
                outcome = self._refused(commit, error)
                if outcome is not None:
                    return outcome
                if attempt == TRIES:
                    raise _unavailable(error) from error
            except BotoCoreError as error:  # it may have been written
                if self._landed(commit, None):
                    return Committed()
                raise _unavailable(error) from error
            else:
                return Committed()
            self._pause(_PAUSE * 2**attempt * self._roll())
        raise AssertionError("the last try returns or raises")

    def _actions(self, commit: Commit) -> Any:
        if commit.rows and self._outbox is None:
            raise StoreError("this worker was not given the outbox table: deploy the jobs' sends=")
        return [
            *commit.items,
            *(put(row, self._outbox or "") for row in commit.rows),
            completion(commit.complete, self._table),
        ]

    def _refused(self, commit: Commit, error: ClientError) -> CommitOutcome | None:
        """What DynamoDB's error says of the commit; None: try again."""
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code == "TransactionCanceledException":
            return self._cancelled(commit, error)
        if code in _AGAIN or error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500:
            return None
        if code in _AUTHORS:
            return ItemRefused(None, f"{code}: {error}")
        if "AccessDenied" in code:
            raise error
        if code == "IdempotentParameterMismatchException":
            raise StoreError(f"the commit's token stands for another transaction: {error}") from error
        raise _unavailable(error) from error

    def _cancelled(self, commit: Commit, error: ClientError) -> CommitOutcome | None:
        """The fence is read first: after a success whose answer was lost, the author's conditions fail as well."""
        response: Mapping[str, Any] = error.response
        reasons: Sequence[Mapping[str, Any]] = response.get("CancellationReasons", ())
        if len(reasons) != len(commit.items) + len(commit.rows) + 1:
            raise _unavailable(error) from error
        codes = [str(reason.get("Code") or "None") for reason in reasons]
        fence, stored = codes[len(codes) - 1], reasons[len(reasons) - 1].get("Item")
        if fence == "ConditionalCheckFailed":
            return Committed() if self._landed(commit, stored) else FenceLost()
        if fence in _AGAIN:
            return None
        for place, code in enumerate(codes[: len(commit.items)]):
            if code != "None" and code not in _AGAIN:
                reason = reasons[place]
                return ItemRefused(place, f"{code}: {reason.get('Message', '')}", reason.get("Item"))
        if any(code != "None" and code not in _AGAIN for code in codes):  # a row's: its id is taken
            raise StoreError(f"the commit's own writes were refused: {error}") from error
        return None

    def _landed(self, commit: Commit, stored: Any) -> bool:
        item = plain_item(stored) if stored else self._read(commit.record.id)
        return landed(commit.record, commit.complete, item)

    def _read(self, id: str) -> Item | None:
        try:
            answer = self._client.get_item(TableName=self._table, Key={"id": {"S": id}}, ConsistentRead=True)
        except (ClientError, BotoCoreError) as error:
            raise _unavailable(error) from error
        return plain_item(answer["Item"]) if "Item" in answer else None


def completion(write: Write, table: str) -> dict[str, Any]:
    """A write of the record as an action of a transaction, which returns no new item."""
    arguments = update_arguments(write)
    del arguments["ReturnValues"]
    return {"Update": {"TableName": table, **arguments}}


def put(row: Row, table: str) -> dict[str, Any]:
    """A new row as an action of a transaction."""
    return {
        "Put": {
            "TableName": table,
            "Item": typed_item(to_item(row)),
            "ConditionExpression": "attribute_not_exists(id)",
        }
    }


def _unavailable(error: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"commit: {type(error).__name__}: {error}")
