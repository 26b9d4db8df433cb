"""Execution records in DynamoDB: carries out the writes that core makes."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from loomjobs.aws.expressions import to_item, update_arguments
from loomjobs.aws.partiql import Statement, statement
from loomjobs.core import limits
from loomjobs.core.errors import StoreUnavailable
from loomjobs.core.write import Item, Write, Written
from loomjobs.runtime.ports import Answer

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_ROUNDS = 3
"""Calls for one statement while DynamoDB throttles it: that comes inside a 200, which botocore does not retry."""
_PAUSE = 0.05
_REFUSED = frozenset({"ConditionalCheckFailed", "DuplicateItem"})
_AGAIN = frozenset(
    "ProvisionedThroughputExceeded RequestLimitExceeded ThrottlingError TransactionConflict InternalServerError".split()
)


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

    def write_many(self, writes: Sequence[Write], /) -> Sequence[Answer]:
        """Many in as few calls as DynamoDB allows (25 statements each); one alone is an UpdateItem, which costs the
        same and answers with the item."""
        rendered = {place: statement(write, self.table_name) for place, write in enumerate(writes)}
        batched = {place: each for place, each in rendered.items() if each is not None} if len(writes) > 1 else {}
        answers: dict[int, Answer] = {}
        places = list(batched)
        for start in range(0, len(places), limits.PARTIQL_BATCH_STATEMENTS):
            part = places[start : start + limits.PARTIQL_BATCH_STATEMENTS]
            answers |= self._batch({place: (writes[place], batched[place]) for place in part})
        for place, write in enumerate(writes):
            if place not in answers:
                answers[place] = self._one(write)
        return [answers[place] for place in range(len(writes))]

    def read(self, id: str, /) -> Item | None:
        """The item, strongly consistent."""
        try:
            answer = self.client.get_item(TableName=self.table_name, Key={"id": {"S": id}}, ConsistentRead=True)
        except (ClientError, BotoCoreError) as error:
            raise _unavailable(self.table_name, error) from error
        return to_item(answer["Item"]) if "Item" in answer else None

    def _one(self, write: Write) -> Answer:
        try:
            return self.write(write)
        except StoreUnavailable as error:
            return error

    def _batch(self, part: dict[int, tuple[Write, Statement]]) -> dict[int, Answer]:
        """Each statement's own outcome; those that DynamoDB could not take now are asked again."""
        answers: dict[int, Answer] = {}
        for round_ in range(1, _ROUNDS + 1):
            asked = [place for place in part if place not in answers]
            try:
                statements: Any = [part[place][1] for place in asked]
                reply = self.client.batch_execute_statement(Statements=statements)
            except (ClientError, BotoCoreError) as error:
                # what it had written by then is seen when each is asked for: a claim of ours, an ending that landed
                return answers | dict.fromkeys(asked, _unavailable(self.table_name, error))
            responses = reply.get("Responses") or []
            if len(responses) != len(asked):
                lost = StoreUnavailable(
                    f"table {self.table_name}: {len(responses)} answers for {len(asked)} statements"
                )
                return answers | dict.fromkeys(asked, lost)
            final = round_ == _ROUNDS
            for place, outcome in zip(asked, responses, strict=True):
                answer = self._answer(part[place][0], outcome, final=final)
                if answer is not None:
                    answers[place] = answer
            if len(answers) == len(part):
                break
            time.sleep(_PAUSE * 2**round_ * random.random())  # noqa: S311 jitter is no secret
        return answers

    def _answer(self, write: Write, outcome: Any, *, final: bool) -> Answer | None:
        error = outcome.get("Error")
        if error is None:
            return Written(True, None)
        code = error.get("Code", "")
        if code in _REFUSED:
            return self._refused(write.id, error.get("Item"))
        if code in _AGAIN and not final:
            return None
        return StoreUnavailable(f"table {self.table_name}: {code}: {error.get('Message', '')}")

    def _refused(self, id: str, item: Any) -> Answer:
        try:
            return Written(False, to_item(item) if item else self.read(id))
        except StoreUnavailable as error:
            return error

    def _refusing(self, id: str, refusal: ClientError) -> Item | None:
        """The item that refused; DynamoDB returns it with the error, some emulators need a read."""
        item: Any = refusal.response.get("Item")
        return to_item(item) if item else self.read(id)


def _unavailable(table: str, error: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"table {table}: {type(error).__name__}: {error}")
