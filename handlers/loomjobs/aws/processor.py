"""Powertools' batch processor, driven by decisions: it answers Lambda with the ids that stay in the queue."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from aws_lambda_powertools.utilities.batch import BasePartialBatchProcessor, EventType
from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from loomjobs.aws.event import check_event, delivery_of
from loomjobs.aws.queues import Visibilities
from loomjobs.core.decision import Acknowledge, DeadLetter
from loomjobs.core.delivery import Delivery
from loomjobs.core.visibility import visibility_timeout, wait_of
from loomjobs.runtime.batch import decide_all
from loomjobs.runtime.worker import Worker

_RETURN_MARGIN = 5
"""Seconds after the end of an invocation at which the messages of a killed one are visible again."""


class DecidingProcessor(BasePartialBatchProcessor):
    """One per process. A failed job is an answer, never a Lambda error: `Errors` then means a broken runtime."""

    def __init__(self, worker: Worker, visibilities: Visibilities, *, queue: str, longest: timedelta) -> None:
        super().__init__(EventType.SQS, raise_on_entire_batch_failure=False)
        self._worker = worker
        self._visibilities = visibilities
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
        """A killed invocation's messages come back soon after it, not after six of its timeouts."""
        super()._prepare()  # type: ignore[no-untyped-call]
        now = self._worker.clock()
        self._typed = [SQSRecord(record) for record in self.records]
        deliveries = [delivery_of(record, queue=self._queue, now=now) for record in self._typed]
        soon = (self._until - now).total_seconds() + _RETURN_MARGIN
        self._visibilities.change({each.receipt: visibility_timeout(soon, each, now) for each in deliveries})
        self._decisions = decide_all(self._worker, deliveries, until=self._until, longest=self._longest)
        self._stays: list[tuple[Delivery, float]] = []

    def _process_record(self, record: dict[str, Any]) -> Any:
        delivery, decision = next(self._decisions)
        typed = self._typed[len(self.success_messages) + len(self.fail_messages)]
        if isinstance(decision, (Acknowledge, DeadLetter)):
            return self.success_handler(typed, decision)
        wait = wait_of(decision)
        if wait is not None:
            back_at = self._worker.clock().timestamp() + wait
            self._stays.append((delivery, back_at))
        return self.failure_handler(typed, (None, None, None))

    async def _async_process_record(self, record: dict[str, Any]) -> Any:
        return self._process_record(record)

    def _clean(self) -> None:
        """Set when the messages that stay come back: measured from each decision, asked in one call for ten."""
        now = self._worker.clock()
        waits = ((delivery, back_at - now.timestamp()) for delivery, back_at in self._stays)
        self._visibilities.change({each.receipt: visibility_timeout(wait, each, now) for each, wait in waits})
        super()._clean()  # type: ignore[no-untyped-call]


def _unused(record: SQSRecord) -> None:
    """Powertools asks for a record handler; decisions take its place."""
