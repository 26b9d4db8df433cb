"""SQS event source mappings as Lambda runs them.

Stock MiniStack has one thread for all mappings, which waits for each invocation: one slow job holds up every queue,
`MaximumConcurrency` and the batching window mean nothing, and an idle queue is looked at once a second.
"""

from __future__ import annotations

import asyncio
import os
import time
from importlib import import_module
from typing import Any, Final

from infra.emulator.inside.batch import records, unfinished
from infra.emulator.inside.invocation import Invoker

IDLE_SECONDS: Final = 0.05
LOOK_SECONDS: Final = 0.2
PAUSE_SECONDS: Final = 1.0
"""After an invocation that failed as a whole, so that a handler that cannot start does not take the machine."""
DEFAULT_CONCURRENCY: Final = 5
"""Concurrent batches with which Lambda starts on a standard queue."""
MOST: Final = max(2, os.cpu_count() or 2)
"""Concurrent invocations of a mapping here, whatever it asks for: each is a process of this machine."""


def correct() -> None:
    functions: Any = import_module("ministack.services.lambda_svc")
    functions._ensure_poller = lambda: None


async def serve() -> None:
    """Serve every SQS mapping there is, for as long as the process lives."""
    functions: Any = import_module("ministack.services.lambda_svc")
    serving: dict[str, asyncio.Task[None]] = {}
    while True:
        for account, region, mapping in functions._iter_all_esms():
            uuid = mapping["UUID"]
            if ":sqs:" in mapping.get("EventSourceArn", "") and (uuid not in serving or serving[uuid].done()):
                serving[uuid] = asyncio.create_task(_Mapping(account, region, uuid).serve())
        await asyncio.sleep(LOOK_SECONDS)


class _Mapping:
    def __init__(self, account: str, region: str, uuid: str) -> None:
        self._scope = (account, region)
        self._uuid = uuid
        self._running: set[asyncio.Task[None]] = set()
        self._invoker = Invoker()
        self._sqs: Any = import_module("ministack.services.sqs")
        self._functions: Any = import_module("ministack.services.lambda_svc")

    async def serve(self) -> None:
        """Until the mapping is deleted."""
        responses: Any = import_module("ministack.core.responses")
        # Held by the context of this task; what it awaits and starts inherits it.
        with responses.request_scope(*self._scope):
            while (mapping := self._functions._esms.get(self._uuid)) is not None:
                await self._step(mapping)
            if self._running:
                await asyncio.wait(self._running)
        self._invoker.close()

    async def _step(self, mapping: dict[str, Any]) -> None:
        if len(self._running) >= concurrency(mapping):
            await asyncio.wait(self._running, timeout=IDLE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            return
        batch = await self._fill(mapping) if mapping.get("Enabled", True) else []
        if not batch:
            await asyncio.sleep(IDLE_SECONDS)
            return
        task = asyncio.create_task(self._process(mapping, batch))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _fill(self, mapping: dict[str, Any]) -> list[dict[str, Any]]:
        """A batch: what is there now, and, with a batching window, what comes until it is full or the window ends."""
        size = int(mapping.get("BatchSize", 10))
        batch = self._take(mapping, size)
        until = time.monotonic() + int(mapping.get("MaximumBatchingWindowInSeconds", 0))
        while batch and len(batch) < size and time.monotonic() < until:
            await asyncio.sleep(IDLE_SECONDS)
            batch += self._take(mapping, size - len(batch))
        return batch

    def _take(self, mapping: dict[str, Any], size: int) -> list[dict[str, Any]]:
        """Up to `size` records, ten at most from a receive. They are copies: a message changes when it is received
        again."""
        arn, found = mapping["EventSourceArn"], list[dict[str, Any]]()
        queue = self._sqs._queue_by_arn(arn)
        while queue and len(found) < size:
            messages = self._sqs._receive_messages_for_esm(queue["url"], size - len(found))
            if not messages:
                break
            found += records(messages, arn)
        return found

    async def _process(self, mapping: dict[str, Any], batch: list[dict[str, Any]]) -> None:
        function, _ = self._functions._get_func_record_for_qualifier(mapping["FunctionName"], mapping.get("Qualifier"))
        if function is None:
            return
        reply = await self._invoker.invoke(function, {"Records": batch})
        failed = unfinished(reply, batch, reports="ReportBatchItemFailures" in mapping["FunctionResponseTypes"])
        self._delete(mapping["EventSourceArn"], [record for record in batch if record["messageId"] not in failed])
        mapping["LastProcessingResult"] = f"{len(batch) - len(failed)} of {len(batch)} records succeeded"
        if reply.error:
            await asyncio.sleep(PAUSE_SECONDS)

    def _delete(self, arn: str, done: list[dict[str, Any]]) -> None:
        queue = self._sqs._queue_by_arn(arn)
        if queue:
            self._sqs._delete_messages_for_esm(queue["url"], {record["receiptHandle"] for record in done})


def concurrency(mapping: dict[str, Any]) -> int:
    """Invocations of this mapping at a time."""
    asked = (mapping.get("ScalingConfig") or {}).get("MaximumConcurrency") or DEFAULT_CONCURRENCY
    return min(int(asked), MOST)
