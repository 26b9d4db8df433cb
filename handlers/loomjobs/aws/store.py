"""Execution records in DynamoDB: carries out the writes that core makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from loomjobs.aws.expressions import to_item, update_arguments
from loomjobs.core.errors import StoreUnavailable
from loomjobs.core.write import Item, Write, Written

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoStore:
    """Implements the runtime's Store on one table with the key `id` (S)."""

    def __init__(self, table_name: str, *, client: DynamoDBClient) -> None:
        self.table_name = table_name
        self.client = client

    def write(self, write: Write, /) -> Written:
        """Carry out one conditional write. Raises StoreUnavailable when the outcome is not known."""
        try:
            answer = self.client.update_item(TableName=self.table_name, **update_arguments(write))
        except self.client.exceptions.ConditionalCheckFailedException as refusal:
            return Written(False, self._refusing(write.id, refusal))
        except (ClientError, BotoCoreError) as error:
            raise _unavailable(self.table_name, error) from error
        return Written(True, to_item(answer.get("Attributes", {})) or None)

    def read(self, id: str, /) -> Item | None:
        """The item, strongly consistent."""
        try:
            answer = self.client.get_item(TableName=self.table_name, Key={"id": {"S": id}}, ConsistentRead=True)
        except (ClientError, BotoCoreError) as error:
            raise _unavailable(self.table_name, error) from error
        return to_item(answer["Item"]) if "Item" in answer else None

    def _refusing(self, id: str, refusal: ClientError) -> Item | None:
        """The item that refused; DynamoDB returns it with the error, some emulators need a read."""
        item: Any = refusal.response.get("Item")
        return to_item(item) if item else self.read(id)


def _unavailable(table: str, error: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"table {table}: {type(error).__name__}: {error}")
