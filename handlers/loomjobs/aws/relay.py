"""Lambda's entry point of the relay: new rows from the table's stream, and a sweep from EventBridge Scheduler."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import IO, Any, Final, cast

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from loomjobs.aws import clients
from loomjobs.aws.connect import utc_now
from loomjobs.aws.later import AnytimeSender
from loomjobs.aws.one_off import OneOffSchedules
from loomjobs.aws.outbox import DynamoOutbox, read_row
from loomjobs.aws.places import given
from loomjobs.core import names
from loomjobs.core.errors import ConfigurationError
from loomjobs.core.outbox import BadRow, Row, age
from loomjobs.runtime.relay import Relay

RESERVE_MS: Final = 10_000
"""A sweep starts no more rows below this: the ones at hand take two calls of seconds at worst."""


def make_relay_handler(environment: Mapping[str, str] = os.environ) -> Callable[[Any, Any], Any]:
    """The handler of the relay, made once, in Lambda's init phase. Raises ConfigurationError."""
    table = environment.get(names.OUTBOX)
    if not table:
        raise ConfigurationError(f"the environment variable {names.OUTBOX} is missing; the stack of the relay sets it")
    journal = PowertoolsRelayJournal(environment.get(names.ENV, ""))
    relay = Relay(
        outbox=DynamoOutbox(table, client=clients.dynamodb(), trouble=journal.trouble),
        outlet=AnytimeSender(
            clients.sqs(),
            QueuesSentTo(environment).find,
            OneOffSchedules(lambda key: given(environment, key)),
            clock=utc_now,
        ),
        journal=journal,
        clock=utc_now,
    )

    def handler(event: Any, context: Any) -> Any:
        try:
            if event == names.SWEEP:
                return {"sent": relay.sweep(enough_time=lambda: context.get_remaining_time_in_millis() > RESERVE_MS)}
            return {"batchItemFailures": _forward(relay, journal, event["Records"])}
        finally:
            journal.flush()

    return handler


def _forward(relay: Relay, journal: PowertoolsRelayJournal, records: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The first record that has to be tried again: Lambda goes on from there, and repeats what comes behind it.

    https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-batchfailurereporting.html
    """
    rows: list[Row] = []
    sequence: dict[str, str] = {}
    for record in records:
        if record.get("eventName") != "INSERT":  # the mapping lets no others through
            continue
        row = read_row(record["dynamodb"].get("NewImage", {}))
        if isinstance(row, BadRow):
            journal.refused(row.id, "", str(row))
            continue
        rows.append(row)
        sequence[row.id] = record["dynamodb"]["SequenceNumber"]
    left = {row.id for row in relay.forward(rows).left}
    first = next((number for id, number in sequence.items() if id in left), None)
    return [] if first is None else [{"itemIdentifier": first}]


class QueuesSentTo:
    """Queue URLs from the relay's environment, which has every queue that some job sends to."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def find(self, queue: str) -> str:
        url = self._environment.get(names.queue_url_key(queue))
        if not url:
            raise ConfigurationError(f"the relay was not given queue {queue!r}: no job that is deployed sends to it")
        return url


class PowertoolsRelayJournal:
    """Implements the relay's journal: a JSON line for what was sent or not, and metrics by environment."""

    def __init__(self, environment: str) -> None:
        self._log = Logger(utc=True, location=None, stream=cast("IO[str]", _Stdout()))
        self._environment = environment
        self._counts: dict[str, int] = defaultdict(int)
        self._lag: int | None = None

    def sent(self, rows: Sequence[Row], /, *, now: datetime) -> None:
        for row in rows:
            self._log.info("relayed", extra={"id": row.id, "to_queue": row.queue, "age_ms": age(row, now=now)})
        self._counts["OutboxSent"] += len(rows)

    def refused(self, id: str, queue: str, reason: str, /) -> None:
        self._log.error("not relayed", extra={"id": id, "to_queue": queue, "reason": reason})
        self._counts["OutboxRefused"] += 1

    def postponed(self, rows: Sequence[Row], reason: str, /) -> None:
        ids = [row.id for row in rows]
        self._log.warning("relay postponed", extra={"ids": ids, "to_queue": rows[0].queue, "reason": reason})

    def lag(self, milliseconds: int, /) -> None:
        self._lag = milliseconds

    def trouble(self, what: str) -> None:
        """Something that changed no outcome but should be seen."""
        self._log.warning(what)

    def flush(self) -> None:
        """Write the invocation's metrics; nothing is carried into the next one."""
        counts, self._counts = self._counts, defaultdict(int)
        lag, self._lag = self._lag, None
        if not counts and lag is None:
            return
        metrics = EphemeralMetrics()
        metrics.add_dimension(name="environment", value=self._environment)
        for name, count in counts.items():
            metrics.add_metric(name=name, unit=MetricUnit.Count, value=count)
        if lag is not None:
            metrics.add_metric(name=names.OUTBOX_LAG, unit=MetricUnit.Milliseconds, value=lag)
        metrics.flush_metrics()


class _Stdout:
    """Whatever is standard output at the time: some hosts of a function change it for each invocation."""

    def write(self, text: str) -> int:
        return sys.stdout.write(text)

    def flush(self) -> None:
        sys.stdout.flush()
