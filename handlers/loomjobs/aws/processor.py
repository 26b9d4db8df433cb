"""Powertools' batch processor, driven by decisions: it answers Lambda with the ids that stay in the queue."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from aws_lambda_powertools.utilities.batch import BasePartialBatchProcessor, EventType
from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from loomjobs.aws.event import check_event, delivery_of
from loomjobs.core.decision import is_gone
from loomjobs.runtime.batch import Batch
from loomjobs.runtime.worker import Worker


class DecidingProcessor(BasePartialBatchProcessor):
    """One per process. A failed job is an answer, never a Lambda error: `Errors` then means a broken runtime."""

    def __init__(self, worker: Worker, *, queue: str, longest: timedelta) -> None:
        super().__init__(EventType.SQS, raise_on_entire_batch_failure=False)
        self._worker = worker
        self._queue = queue
        self._longest = longest

    def answer(self, event: Any, *, until: datetime) -> PartialItemFailureResponse:
        """Process the event's records; `until` is when Lambda stops this invocation."""
        records = check_event(event)
        self._until = until
        with self(records, _unused):
            self.process()
        return self.response()

    def response(self) -> PartialItemFailureResponse:
        """The ids that stay in the queue: only ids of this batch, each once, never empty ones."""
        ids = dict.fromkeys(each["itemIdentifier"] for each in self.batch_response["batchItemFailures"])
        return {"batchItemFailures": [{"itemIdentifier": each} for each in ids]}

    def _prepare(self) -> None:
        """Decide on all records at once: they run side by side, and what ended is recorded together."""
        super()._prepare()  # type: ignore[no-untyped-call]
        now = self._worker.clock()
        typed = [SQSRecord(record) for record in self.records]
        deliveries = [delivery_of(record, queue=self._queue, now=now) for record in typed]
        batch = Batch(self._worker, deliveries, until=self._until, longest=self._longest)
        self._decisions = iter(zip(typed, (decision for _, decision in batch.decide()), strict=True))

    def _process_record(self, record: dict[str, Any]) -> Any:
        typed, decision = next(self._decisions)
        if is_gone(decision):
            return self.success_handler(typed, decision)
        return self.failure_handler(typed, (None, None, None))

    async def _async_process_record(self, record: dict[str, Any]) -> Any:
        return self._process_record(record)


def _unused(record: SQSRecord) -> None:
    """Powertools asks for a record handler; decisions take its place."""
