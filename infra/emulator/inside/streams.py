"""Event source mappings of DynamoDB streams as Lambda runs them.

Stock MiniStack polls them from the thread that `mappings` does without, and reads no `batchItemFailures`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from infra.emulator.inside.batch import Reply
from infra.emulator.inside.invocation import Invoker

IDLE_SECONDS: Final = 0.05
LOOK_SECONDS: Final = 0.2
PAUSE_SECONDS: Final = 1.0
"""Before a batch is tried again."""
FOR_EVER: Final = -1


async def serve() -> None:
    """Serve every mapping of a DynamoDB stream there is, for as long as the process lives."""
    functions: Any = import_module("ministack.services.lambda_svc")
    serving: dict[str, asyncio.Task[None]] = {}
    while True:
        for account, region, mapping in functions._iter_all_esms():
            uuid = mapping["UUID"]
            if ":dynamodb:" in mapping.get("EventSourceArn", "") and (uuid not in serving or serving[uuid].done()):
                serving[uuid] = asyncio.create_task(_Mapping(account, region, uuid).serve())
        await asyncio.sleep(LOOK_SECONDS)


class _Mapping:
    """One shard, so one batch at a time. `tries` are those of the batch that begins at `position`."""

    def __init__(self, account: str, region: str, uuid: str) -> None:
        self._scope = (account, region)
        self._uuid = uuid
        self._position: int | None = None
        self._tries = 0
        self._invoker = Invoker()
        self._tables: Any = import_module("ministack.services.dynamodb")
        self._functions: Any = import_module("ministack.services.lambda_svc")

    async def serve(self) -> None:
        """Until the mapping is deleted."""
        responses: Any = import_module("ministack.core.responses")
        with responses.request_scope(*self._scope):
            while (mapping := self._functions._esms.get(self._uuid)) is not None:
                await self._step(mapping)
        self._invoker.close()

    async def _step(self, mapping: dict[str, Any]) -> None:
        table = mapping["EventSourceArn"].split(":table/")[1].split("/")[0]
        batch = self._take(mapping, table) if mapping.get("Enabled", True) else []
        function, _ = self._functions._get_func_record_for_qualifier(mapping["FunctionName"], mapping.get("Qualifier"))
        if not batch or function is None:
            await asyncio.sleep(IDLE_SECONDS)
            return
        wanted = [record for record in batch if matches(record, mapping)]
        reply = await self._invoker.invoke(function, {"Records": wanted}) if wanted else Reply()
        done = finished(reply, batch, reports="ReportBatchItemFailures" in mapping["FunctionResponseTypes"])
        retries = int(mapping.get("MaximumRetryAttempts", FOR_EVER))
        self._tries = 1 if done else self._tries + 1
        if done < len(batch) and FOR_EVER < retries < self._tries:
            done = len(batch)  # given up
        if done == len(batch):
            self._tries = 0
        self._position = (self._position or 0) + done
        mapping["LastProcessingResult"] = f"{done} of {len(batch)} records done"
        if done < len(batch):
            await asyncio.sleep(PAUSE_SECONDS)

    def _take(self, mapping: dict[str, Any], table: str) -> list[dict[str, Any]]:
        oldest, end = self._tables.stream_start_position(table), self._tables.stream_end_position(table)
        if self._position is None:
            self._position = oldest if mapping.get("StartingPosition") == "TRIM_HORIZON" else end
        self._position = max(self._position, oldest)
        found: list[dict[str, Any]] = self._tables.stream_records_since(
            table, self._position, int(mapping.get("BatchSize", 100))
        )
        return found


def matches(record: Mapping[str, Any], mapping: Mapping[str, Any]) -> bool:
    """Of the filter language only what names the values of a member: `{"eventName": ["INSERT"]}`."""
    filters: Sequence[Mapping[str, str]] = (mapping.get("FilterCriteria") or {}).get("Filters") or ()
    patterns: list[dict[str, list[Any]]] = [json.loads(each["Pattern"]) for each in filters]
    return not patterns or any(
        all(record.get(name) in values for name, values in pattern.items()) for pattern in patterns
    )


def finished(reply: Reply, batch: Sequence[Mapping[str, Any]], *, reports: bool) -> int:
    """How many records from the start are done: those before the first that the function named.

    https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-batchfailurereporting.html
    """
    if reply.error is not None:
        return 0
    failures = reply.body.get("batchItemFailures") if reports and isinstance(reply.body, dict) else None
    if not failures:
        return len(batch)
    named = {failure.get("itemIdentifier") for failure in failures}
    places = [place for place, record in enumerate(batch) if record["dynamodb"]["SequenceNumber"] in named]
    return min(places, default=0)
