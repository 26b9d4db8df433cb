"""Powertools' BatchProcessor with idempotent_function, and our worker, on SQS and DynamoDB of the embedded AWS."""

from __future__ import annotations

import io
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.invocation import Context, event_of
from benchmarks.table import Samples, Table

ROUNDS, BATCHES = 7, 10


@dataclass(frozen=True)
class Order:
    id: str


def measure() -> Sequence[Table]:
    """Client CPU of one message, in milliseconds: batches of 10 new messages, jobs that do nothing."""
    from infra.emulator import start

    with tempfile.TemporaryDirectory() as folder, start(Path(folder)) as emulator:
        os.environ.update({name: value for name, value in emulator.environment().items() if name.startswith("AWS_")})
        os.environ |= {"POWERTOOLS_SERVICE_NAME": "bench", "POWERTOOLS_METRICS_NAMESPACE": "bench"}
        bench = _Bench()
        variants = {
            "Powertools batch + idempotency + Logger + Metrics": bench.peer(),
            "Loomjobs worker, one job after the other": bench.ours(),
            "Loomjobs worker, parallel=10": bench.ours(parallel=10),
        }
        samples = _interleaved(variants, lambda handle: bench.round(handle, time.process_time))
        return [Table.of(measure.__doc__, samples)]


def measure_waiting() -> Sequence[Table]:
    """Wall time of one message, in milliseconds: batches of 10 jobs that wait 100 ms each."""
    from infra.emulator import start

    with tempfile.TemporaryDirectory() as folder, start(Path(folder)) as emulator:
        os.environ.update({name: value for name, value in emulator.environment().items() if name.startswith("AWS_")})
        os.environ |= {"POWERTOOLS_SERVICE_NAME": "bench", "POWERTOOLS_METRICS_NAMESPACE": "bench"}
        bench = _Bench(wait=0.1)
        variants = {
            "Powertools batch + idempotency + Logger + Metrics": bench.peer(),
            "Loomjobs worker, parallel=10": bench.ours(parallel=10),
        }
        samples = _interleaved(variants, lambda handle: bench.round(handle, time.perf_counter, batches=2))
        return [Table.of(measure_waiting.__doc__, samples)]


def _interleaved(
    variants: Mapping[str, Callable[[Any], Any]], once: Callable[[Callable[[Any], Any]], float]
) -> Samples:
    samples: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(ROUNDS):
        for name, handle in variants.items():
            samples[name].append(once(handle))
    return {name: values[1:] for name, values in samples.items()}  # the first warms connections


class _Bench:
    """`wait`: seconds that each job sleeps."""

    def __init__(self, *, wait: float = 0.0) -> None:
        import boto3

        from loomjobs.aws import clients

        clients.forget()  # an earlier measurement's emulator is gone, and its clients with it
        boto3.setup_default_session()
        self.wait = wait

        self.sqs = boto3.client("sqs")
        self.url = self.sqs.create_queue(QueueName="bench")["QueueUrl"]
        self.dlq = self.sqs.create_queue(QueueName="bench-dlq")["QueueUrl"]
        self.dynamodb = boto3.client("dynamodb")
        for table in ("ours", "peer"):
            self.dynamodb.create_table(
                TableName=table,
                KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        self._next = 0

    def round(self, handle: Callable[[Any], Any], clock: Callable[[], float], *, batches: int = BATCHES) -> float:
        events = [self._event() for _ in range(batches)]
        with redirect_stdout(io.StringIO()):
            began = clock()
            for event in events:
                assert handle(event) == {"batchItemFailures": []}
            return (clock() - began) / (batches * 10) * 1000

    def ours(self, *, parallel: int = 1) -> Callable[[Any], Any]:
        from loomjobs import JobContext, Queue, Workload, job
        from loomjobs.aws.handler import make_handler
        from loomjobs.aws.process import worker_process
        from loomjobs.core import names
        from loomjobs.core.catalogue import Catalogue
        from loomjobs.core.registry import isolated

        queue = Queue("bench", workload=Workload.BULK, parallel=parallel, job_timeout=timedelta(seconds=5))
        with isolated() as registry:

            @job("bench.order", queue=queue, key="id")
            def order(payload: Order, ctx: JobContext) -> str:
                time.sleep(self.wait)
                return payload.id

        environment = {
            names.QUEUE: "bench",
            names.MODULES: "none",
            names.TABLE: "ours",
            names.SOURCE_URL: self.url,
            names.DLQ_URL: self.dlq,
            names.RECORD_TTL: "86400",
            names.RECEIVES: "200",
        }
        handler = make_handler(worker_process(environment, Catalogue(tuple(registry.jobs.values()))))
        return lambda event: handler(event, Context())

    def peer(self) -> Callable[[Any], Any]:
        from aws_lambda_powertools import Logger, Metrics
        from aws_lambda_powertools.metrics import MetricUnit
        from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
        from aws_lambda_powertools.utilities.idempotency import (
            DynamoDBPersistenceLayer,
            IdempotencyConfig,
            idempotent_function,
        )

        processor, logger, metrics = (
            BatchProcessor(EventType.SQS),
            Logger(service="peer", stream=io.StringIO()),
            Metrics(),
        )
        config = IdempotencyConfig(event_key_jmespath="payload.id")
        store = DynamoDBPersistenceLayer("peer", boto3_client=self.dynamodb)

        @idempotent_function(data_keyword_argument="order", persistence_store=store, config=config)
        def run(order: Any) -> str:
            time.sleep(self.wait)
            return str(order["payload"]["id"])

        def handle_record(record: Any) -> None:
            run(order=json.loads(record.body))
            logger.info("ended", extra={"message_id": record.message_id})
            metrics.add_metric("Succeeded", MetricUnit.Count, 1)

        def handle(event: Any) -> Any:
            context: Any = Context()
            config.register_lambda_context(context)
            answer = process_partial_response(
                event=event, record_handler=handle_record, processor=processor, context=context
            )
            metrics.flush_metrics()
            return answer

        return handle

    def _event(self) -> dict[str, Any]:
        for start in (0, 5):
            entries: Any = [self._entry(start + place) for place in range(5)]
            self.sqs.send_message_batch(QueueUrl=self.url, Entries=entries)
        received = self.sqs.receive_message(
            QueueUrl=self.url, MaxNumberOfMessages=10, VisibilityTimeout=600, AttributeNames=["All"]
        )
        return event_of(received["Messages"])

    def _entry(self, place: int) -> dict[str, Any]:
        self._next += 1
        return {"Id": str(place), "MessageBody": json.dumps({"job": "bench.order", "payload": {"id": str(self._next)}})}
