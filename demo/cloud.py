"""What the demo does to the deployed application, and reads from it, through its public names only."""

from __future__ import annotations

import json
import re
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import cached_property
from io import BytesIO
from typing import Any

import boto3

from demo.proof import Found
from jobs.billing_items import purchase_item, statement_of
from jobs.statement import Purchase
from loomjobs.core import names
from loomjobs.core.breaker import breaker_id

_TOTAL = re.compile(r"Total\D*([\d.]+) USD")


class Cloud:
    """`endpoint` is the embedded AWS; addresses come from the parameters that the stacks publish."""

    def __init__(self, endpoint: str, *, environment: str = "local") -> None:
        self.endpoint = endpoint
        self._environment = environment
        self._session = boto3.session.Session()

    def client(self, service: Any) -> Any:
        return self._session.client(service, endpoint_url=self.endpoint)

    @cached_property
    def sqs(self) -> Any:
        return self.client("sqs")

    def parameter(self, *path: str) -> str:
        name = names.parameter("loomjobs", self._environment, *path)
        return str(self.client("ssm").get_parameter(Name=name)["Parameter"]["Value"])

    def load(self, purchases: Iterable[Purchase]) -> int:
        """Write purchases to the billing table; returns how many."""
        table = self._session.resource("dynamodb", endpoint_url=self.endpoint).Table(
            self.parameter("resources", "billing", "address")
        )
        items = [{"PutRequest": {"Item": purchase_item(each)}} for each in purchases]
        raw = self.client("dynamodb")
        for start in range(0, len(items), 25):
            left: Any = {table.name: items[start : start + 25]}
            while left:
                left = raw.batch_write_item(RequestItems=left).get("UnprocessedItems")
        return len(items)

    def send(self, queue: str, *bodies: str) -> None:
        url = self.parameter("queues", queue, "url")
        for body in bodies:
            self.sqs.send_message(QueueUrl=url, MessageBody=body)

    def waiting(self, queues: Iterable[str]) -> Counter[str]:
        """Messages not yet done by queue, where there are any: visible, in flight and delayed; and committed calls
        that are not sent yet."""
        kinds = ("", "NotVisible", "Delayed")
        wanted = [f"ApproximateNumberOfMessages{kind}" for kind in kinds]
        found: Counter[str] = Counter()
        for queue in queues:
            url = self.parameter("queues", queue, "url")
            reply = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=wanted)
            found[queue] = sum(int(value) for value in reply["Attributes"].values())
        found["outbox"] = len(self._items("outbox", "table", "name"))
        return +found

    def records(self) -> list[dict[str, Any]]:
        """Every execution record, as plain values; not the brakes' items, which lie beside them."""
        return [item for item in self._items("foundation", "executions", "name") if not item["id"].startswith("~")]

    def breaker(self, service: str) -> str:
        """State of a service's circuit."""
        found = [item for item in self._items("foundation", "executions", "name") if item["id"] == breaker_id(service)]
        return str(found[0]["state"]) if found else "CLOSED"

    def _items(self, *path: str) -> list[dict[str, Any]]:
        table = self._session.resource("dynamodb", endpoint_url=self.endpoint).Table(self.parameter(*path))
        return list(_scan(table))

    def dead_letters(self, queue: str) -> list[dict[str, Any]]:
        """The failure reports of a dead-letter queue's messages, with their customers; they stay in the queue."""
        url = self.parameter("queues", queue, "dlq", "url")
        found: dict[str, dict[str, Any]] = {}
        while True:
            reply = self.sqs.receive_message(
                QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=30, MessageAttributeNames=["All"]
            )
            fresh = [each for each in reply.get("Messages", []) if each["MessageId"] not in found]
            if not fresh:
                return list(found.values())
            found |= {each["MessageId"]: _letter(each) for each in fresh}

    def effects(self) -> Iterator[Found]:
        """Statements, PDFs (their total read from the page) and mails."""
        table = self._session.resource("dynamodb", endpoint_url=self.endpoint).Table(
            self.parameter("resources", "billing", "address")
        )
        raw = self.client("dynamodb")
        for page in raw.get_paginator("scan").paginate(TableName=table.name):
            for item in page["Items"]:
                if item["sk"]["S"].startswith("statement#"):
                    statement = statement_of(item)
                    yield Found("statement", statement.id.customer_id, statement.total)
        yield from self._pdfs()
        for mail in self._mails():
            (address,) = mail["To"]
            total = _TOTAL.search(mail["BodyText"])
            yield Found("mail", address.partition("+")[2].partition("@")[0], Decimal(total[1]) if total else None)

    def _pdfs(self) -> Iterator[Found]:
        bucket, s3 = self.parameter("resources", "statements", "address"), self.client("s3")
        keys = [
            each["Key"]
            for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
            for each in page.get("Contents", [])
        ]

        def read(key: str) -> Found:
            body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
            return Found("PDF", key.rpartition("/")[2].removesuffix(".pdf"), pdf_total(body))

        with ThreadPoolExecutor(2) as pool:
            yield from pool.map(read, keys)

    def _mails(self) -> list[Mapping[str, Any]]:
        with urllib.request.urlopen(f"{self.endpoint}/_ministack/ses/messages") as reply:
            return [mail for mails in json.load(reply)["messages"].values() for mail in mails]

    def outcomes(self) -> Counter[str]:
        """How deliveries ended, from the workers' logs."""
        logs = self.client("logs")
        counted: Counter[str] = Counter()
        groups = [
            each["logGroupName"]
            for page in logs.get_paginator("describe_log_groups").paginate()
            for each in page["logGroups"]
        ]
        for group in groups:
            for page in logs.get_paginator("filter_log_events").paginate(logGroupName=group):
                # the embedded AWS keeps all lines of an invocation in one event
                lines = (line for event in page["events"] for line in event["message"].splitlines())
                counted.update(map(_outcome, lines))
        del counted[""]
        return counted


def pdf_total(body: bytes) -> Decimal | None:
    """The total printed on a statement."""
    from pypdf import PdfReader

    text = "\n".join(page.extract_text() for page in PdfReader(BytesIO(body)).pages)
    match = _TOTAL.search(text)
    return Decimal(match[1]) if match else None


def accounting_entries(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/entries") as reply:
        found: dict[str, Any] = json.load(reply)
        return found


def _scan(table: Any) -> Iterator[dict[str, Any]]:
    start: dict[str, Any] = {}
    while True:
        page = table.scan(**start)
        yield from page["Items"]
        if "LastEvaluatedKey" not in page:
            return
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}


def _letter(message: Any) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(message.get("MessageAttributes", {}).get("loom", {}).get("StringValue", "{}"))
    payload = json.loads(message["Body"]).get("payload", {})
    return report | {"customer": payload.get("customer_id", "?")}


def _outcome(line: str) -> str:
    if '"outcome"' not in line:
        return ""
    try:
        return str(json.loads(line).get("outcome", ""))
    except ValueError:
        return ""
