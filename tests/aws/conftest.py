"""A worker of a small catalogue on the embedded AWS's SQS and DynamoDB."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import boto3
import pytest

from loomjobs.aws import clients, connect, process
from loomjobs.aws.handler import make_handler
from loomjobs.core import names
from loomjobs.core.job import Job
from tests.core.catalogue_fixture import catalogue


@dataclass
class Context:
    """Lambda's context, as far as it is used."""

    seconds: float = 60.0

    def get_remaining_time_in_millis(self) -> int:
        return int(self.seconds * 1000)


@dataclass
class Aws:
    """Queues, a table, and a worker made from environment variables, as in Lambda."""

    sqs: Any
    dynamodb: Any
    urls: dict[str, str] = field(default_factory=dict)
    arns: dict[str, str] = field(default_factory=dict)

    def queue(self, name: str, *, fifo: bool = False) -> str:
        suffix, attributes = (".fifo", {"FifoQueue": "true"}) if fifo else ("", {})
        url = self.sqs.create_queue(QueueName=name + suffix, Attributes=attributes)["QueueUrl"]
        self.urls[name] = url
        reply = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        self.arns[name] = reply["Attributes"]["QueueArn"]
        return str(url)

    def environment(self, queue: str) -> dict[str, str]:
        return {
            names.QUEUE: queue,
            names.MODULES: "tests.core.catalogue_fixture",
            names.TABLE: "executions",
            names.SOURCE_URL: self.urls[queue],
            names.DLQ_URL: self.urls[f"{queue}-dlq"],
            names.RECORD_TTL: "2592000",
            names.RECEIVES: "200",
            names.SOURCE_ARN: self.arns[queue],
            names.LATER_GROUP: "default",
            names.LATER_ROLE: "arn:aws:iam::123456789012:role/later",
            names.PACE: "0.01",
            names.RELEASE: "r1",
        } | {names.queue_url_key(name): url for name, url in self.urls.items()}

    def handler(self, *jobs: Job[Any, Any], queue: str = "billing") -> Any:
        return make_handler(process.worker_process(self.environment(queue), catalogue(*jobs)))

    def receive(self, queue: str) -> dict[str, Any]:
        """What Lambda would hand to the worker: up to ten messages as an event."""
        reply = self.sqs.receive_message(
            QueueUrl=self.urls[queue],
            MaxNumberOfMessages=10,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
            VisibilityTimeout=1_000,
        )
        return {"Records": [self.record(queue, message) for message in reply.get("Messages", [])]}

    def record(self, queue: str, message: Any) -> dict[str, Any]:
        return {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": message["Attributes"],
            "messageAttributes": {
                name: {"dataType": value["DataType"], "stringValue": value.get("StringValue")}
                for name, value in message.get("MessageAttributes", {}).items()
            },
            "eventSource": "aws:sqs",
            "eventSourceARN": self.arns[queue],
            "awsRegion": "eu-central-1",
        }

    def item(self, id: str) -> dict[str, Any] | None:
        return self.dynamodb.get_item(TableName="executions", Key={"id": {"S": id}}).get("Item")


def body(job: str = "billing.write", customer: str = "c1", **members: Any) -> str:
    payload = {"customer_id": customer, "period": date(2026, 1, 1).isoformat()}
    return json.dumps({"job": job, "payload": payload} | members)


def event(*bodies: str, arn: str = "arn:aws:sqs:eu-central-1:123456789012:billing") -> dict[str, Any]:
    """An event with made-up messages, for what never touches the queue."""
    sent = str(int((datetime.now(UTC) - timedelta(seconds=3)).timestamp() * 1000))
    return {"Records": [_record(place, text, arn, sent) for place, text in enumerate(bodies)]}


def _record(place: int, text: str, arn: str, sent: str) -> dict[str, Any]:
    return {
        "messageId": f"m{place}",
        "receiptHandle": f"r{place}",
        "body": text,
        "attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": sent},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": arn,
        "awsRegion": "eu-central-1",
    }


def failed(answer: Any) -> Sequence[str]:
    return [each["itemIdentifier"] for each in answer["batchItemFailures"]]


@pytest.fixture
def aws(account: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    # a new name each time: Powertools keeps one logger a service, with the stream it had when it was made
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", f"loomjobs-{secrets.token_hex(4)}")
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "loomjobs")
    _forget()
    dynamodb = boto3.client("dynamodb")
    dynamodb.create_table(
        TableName="executions",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    system = Aws(boto3.client("sqs"), dynamodb)
    for name in ("billing", "billing-dlq", "mail"):
        system.queue(name)
    for name in ("ledger", "ledger-dlq"):
        system.queue(name, fifo=True)
    yield system
    _forget()


def _forget() -> None:
    """Clients are kept per process; these are of one test."""
    clients.forget()
    connect.forget()
    process._secret.cache_clear()
