"""The execution table: the store of the runtime, and a persistence layer for Powertools' own idempotency decorators.

It keeps Powertools' attributes (`status`, `data`, `expiration`, `in_progress_expiration`) with their meaning, and adds
what Powertools lacks: a fence (the claim's random owner on every later write), and failures that update the record
instead of deleting it. So `@idempotent_function(persistence_store=...)` on this table gets the fence too.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyItemAlreadyExistsError,
    IdempotencyItemNotFoundError,
)
from aws_lambda_powertools.utilities.idempotency.persistence.datarecord import DataRecord

from loomjobs.aws.store import DynamoStore
from loomjobs.core.claim import Claim, Lapsed, Replace, claim_write, judge, replace_write, takeover_write
from loomjobs.core.decision import Failure
from loomjobs.core.ending import complete_write, fail_write, landed
from loomjobs.core.errors import ConfigurationError, LostClaim
from loomjobs.core.record import Record
from loomjobs.core.write import Item, Write, Written
from loomjobs.runtime.ports import Answer

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig
    from mypy_boto3_dynamodb import DynamoDBClient

_UNBOUNDED = 1_000_000
"""Attempts of a Powertools function: it has no budget of its own."""


class ExecutionTable(DynamoDBPersistenceLayer):
    """One DynamoDB table, key `id` (S), TTL attribute `expiration`."""

    def __init__(self, table_name: str, *, client: DynamoDBClient) -> None:
        super().__init__(table_name, boto3_client=client, validation_key_attr="ph")
        self._store = DynamoStore(table_name, client=client)
        self._claims: dict[str, Record] = {}
        self._serves: tuple[object, ...] | None = None

    def configure(
        self, config: IdempotencyConfig, function_name: str | None = None, key_prefix: str | None = None
    ) -> None:
        """Of one function only: a second one would silently get the first one's key."""
        asks = (key_prefix or function_name, config.event_key_jmespath, config.payload_validation_jmespath)
        if self._serves not in (None, asks):
            assert self._serves is not None
            raise ConfigurationError(f"this ExecutionTable serves {self._serves[0]}; make another one for {asks[0]}")
        self._serves = asks
        super().configure(config, function_name, key_prefix)
        self.raise_on_no_idempotency_key = True

    @staticmethod
    def is_missing_idempotency_key(data: Any) -> bool:
        """A key with a missing part is no key: different work would be taken for the same."""
        parts = data.values() if isinstance(data, dict) else data if isinstance(data, (list, tuple)) else [data]
        return not parts or any(part is None or part == "" for part in parts)

    def write(self, write: Write, /) -> Written:
        return self._store.write(write)

    def write_many(self, writes: Sequence[Write], /) -> Sequence[Answer]:
        return self._store.write_many(writes)

    def read(self, id: str, /) -> Item | None:
        return self._store.read(id)

    def _put_record(self, data_record: DataRecord) -> None:
        claim = _claim_of(data_record)
        written = self.write(claim_write(claim))
        if not written.applied and written.item is not None:
            old = Record.of(written.item)
            verdict = judge(old, claim)
            if isinstance(verdict, Replace):
                written = self.write(replace_write(claim, old))
            elif isinstance(verdict, Lapsed):
                written = self.write(takeover_write(claim, old, attempts=_UNBOUNDED))
        if not written.applied:
            raise self._exists(data_record, written.item)
        assert written.item is not None
        self._claims[data_record.idempotency_key] = Record.of(written.item)

    def _exists(self, data_record: DataRecord, item: Item | None) -> IdempotencyItemAlreadyExistsError:
        """Powertools' refusal; raises its validation error instead when the payload is another."""
        error = IdempotencyItemAlreadyExistsError(f"{data_record.idempotency_key} exists")
        if item is not None:
            error.old_data_record = _data_record(item)
            self._validate_payload(data_payload=data_record, stored_data_record=error.old_data_record)
        return error

    def _update_record(self, data_record: DataRecord) -> None:
        record = self._claims.pop(data_record.idempotency_key)
        expires = data_record.expiry_timestamp or 0
        write = complete_write(record, now=_now(), expires=expires, result=data_record.response_data)
        self._fenced(record, write)

    def _delete_record(self, data_record: DataRecord) -> None:
        record = self._claims.pop(data_record.idempotency_key, None)
        if record is None:
            return  # never ours, so not ours to release
        failure = Failure("Raised", "the function raised", "powertools")
        self._fenced(record, fail_write(record, failure, now=_now(), not_before=0, expires=record.expires))

    def _get_record(self, idempotency_key: str) -> DataRecord:
        item = self.read(idempotency_key)
        if item is None:
            raise IdempotencyItemNotFoundError(idempotency_key)
        return _data_record(item)

    def _fenced(self, record: Record, write: Write) -> None:
        written = self.write(write)
        if not written.applied and not landed(record, write, written.item):
            raise LostClaim(f"{record.id}: another invocation holds it now")


def _claim_of(data_record: DataRecord) -> Claim:
    now = _now()
    return Claim(
        id=data_record.idempotency_key,
        owner=secrets.token_hex(8),
        now=now,
        lease=data_record.in_progress_expiry_timestamp or now + 900_000,
        payload_hash=data_record.payload_hash,
        message="",
        sent=now,
        expires=data_record.expiry_timestamp or now // 1000 + 3_600,
        version="",
    )


def _data_record(item: Item) -> DataRecord:
    return DataRecord(
        idempotency_key=item["id"],
        status=item["status"] if item["status"] in ("INPROGRESS", "COMPLETED") else "INPROGRESS",
        expiry_timestamp=item.get("expiration"),
        in_progress_expiry_timestamp=item.get("in_progress_expiration"),
        response_data=item.get("data", ""),
        payload_hash=item.get("ph", ""),
    )


def _now() -> int:
    return int(time.time() * 1000)
