"""The outbox table: reading rows, and deleting those that were sent."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from loomjobs.aws.expressions import to_item
from loomjobs.core import limits
from loomjobs.core.errors import StoreUnavailable
from loomjobs.core.outbox import BadRow, Row, of_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TRIES: Final = 3
_PAUSE: Final = 0.05


class DynamoOutbox:
    """Implements the relay's Outbox. What could not be deleted is reported to `trouble`."""

    def __init__(
        self,
        table: str,
        *,
        client: DynamoDBClient,
        trouble: Callable[[str], None],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._table = table
        self._client = client
        self._trouble = trouble
        self._pause = pause

    def delete(self, rows: Sequence[Row], /) -> None:
        for start in range(0, len(rows), limits.DYNAMODB_BATCH_WRITES):
            self._delete([row.id for row in rows[start : start + limits.DYNAMODB_BATCH_WRITES]])

    def written_before(self, at: int, /) -> Iterator[Row | BadRow]:
        """The whole table, a page (1 MB) at a time: it holds little more than what is on its way."""
        arguments: dict[str, Any] = {
            "TableName": self._table,
            "FilterExpression": "#at <= :at OR attribute_not_exists(#at)",
            "ExpressionAttributeNames": {"#at": "at"},
            "ExpressionAttributeValues": {":at": {"N": str(at)}},
            "ConsistentRead": True,
        }
        while True:
            try:
                page = self._client.scan(**arguments)
            except (ClientError, BotoCoreError) as error:
                raise StoreUnavailable(f"table {self._table}: {type(error).__name__}: {error}") from error
            for stored in page["Items"]:
                yield read_row(stored)
            if "LastEvaluatedKey" not in page:
                return
            arguments["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def _delete(self, ids: Sequence[str]) -> None:
        """One BatchWriteItem, and again for what it did not get to."""
        left: Any = [{"DeleteRequest": {"Key": {"id": {"S": id}}}} for id in dict.fromkeys(ids)]
        reason = "throttled"
        for attempt in range(1, TRIES + 1):
            try:
                answer = self._client.batch_write_item(RequestItems={self._table: left})
            except (ClientError, BotoCoreError) as error:
                reason = f"{type(error).__name__}: {error}"
                break
            left = answer.get("UnprocessedItems", {}).get(self._table, [])
            if not left:
                return
            if attempt < TRIES:
                self._pause(_PAUSE * 2**attempt * random.random())  # noqa: S311 jitter is no secret
        self._trouble(f"{len(left)} sent rows of the outbox were not deleted and will be sent again: {reason}")


def read_row(stored: Mapping[str, Any]) -> Row | BadRow:
    """A row in DynamoDB's JSON."""
    try:
        return of_item(to_item(dict(stored)))
    except BadRow as bad:
        return bad
    except (TypeError, ValueError, AttributeError) as error:  # attributes that nothing of ours has written
        return BadRow("", f"{type(error).__name__}: {error}")
