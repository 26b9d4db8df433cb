"""How full a queue is, as the embedded AWS counts it, and what a producer makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from loomjobs import Admit, Producer, Queue, QueueFull, Workload, enqueue
from loomjobs.aws import clients, connect
from loomjobs.aws.depths import SqsDepths
from loomjobs.core import names
from loomjobs.core.reading import Reading
from tests.aws.conftest import Aws
from tests.core.catalogue_fixture import Statement, declare

NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)
ONE = Statement("c1", date(2026, 1, 1))


def job(**policy: Any) -> Any:
    return declare("billing.write", Queue("billing", workload=Workload.BULK, admit=Admit(**policy)))


def depths(aws: Aws, clock: Callable[[], datetime] = lambda: NOW) -> SqsDepths:
    return SqsDepths(aws.sqs, aws.urls.__getitem__, cloudwatch=clients.cloudwatch, clock=clock)


def oldest(seconds: float, at: datetime) -> None:
    """What SQS itself would publish."""
    datum: Any = {
        "MetricName": "ApproximateAgeOfOldestMessage",
        "Dimensions": [{"Name": "QueueName", "Value": "billing"}],
        "Timestamp": at,
        "Value": seconds,
    }
    boto3.client("cloudwatch").put_metric_data(Namespace="AWS/SQS", MetricData=[datum])


def test_all_three_counts_are_read(aws: Aws) -> None:
    for delay in (0, 0, 0, 60, 60):
        aws.sqs.send_message(QueueUrl=aws.urls["billing"], MessageBody="x", DelaySeconds=delay)
    aws.sqs.receive_message(QueueUrl=aws.urls["billing"])
    assert depths(aws).read("billing", age=False) == Reading(visible=2, in_flight=1, delayed=2, at=NOW)


def test_the_age_is_the_latest_that_cloudwatch_has(aws: Aws) -> None:
    now = datetime.now(UTC)
    for minutes, seconds in ((4, 1_000), (2, 1_200), (3, 1_100), (9, 9_999)):
        oldest(seconds, now - timedelta(minutes=minutes))
    assert depths(aws, lambda: now).read("billing", age=True).age == timedelta(seconds=1_200)


def test_without_a_recent_value_the_age_is_not_known(aws: Aws) -> None:
    now = datetime.now(UTC)
    assert depths(aws, lambda: now).read("billing", age=True).age is None
    oldest(9_999, now - timedelta(minutes=9))
    assert depths(aws, lambda: now).read("billing", age=True).age is None


def test_the_question_is_about_one_queue_and_costs_one_request() -> None:
    sqs, cloudwatch = boto3.client("sqs"), boto3.client("cloudwatch")
    with Stubber(sqs) as counts, Stubber(cloudwatch) as ages:
        counts.add_response(
            "get_queue_attributes",
            {
                "Attributes": {
                    "ApproximateNumberOfMessages": "0",
                    "ApproximateNumberOfMessagesNotVisible": "5000",
                    "ApproximateNumberOfMessagesDelayed": "3000",
                }
            },
        )
        ages.add_response(
            "get_metric_statistics",
            {"Datapoints": [{"Timestamp": NOW, "Maximum": 90.0}]},
            {
                "Namespace": "AWS/SQS",
                "MetricName": "ApproximateAgeOfOldestMessage",
                "Dimensions": [{"Name": "QueueName", "Value": "books.fifo"}],
                "StartTime": NOW - timedelta(minutes=5),
                "EndTime": NOW,
                "Period": 60,
                "Statistics": ["Maximum"],
            },
        )
        url = "https://sqs.eu-west-1.amazonaws.com/123456789012/books.fifo"
        read = SqsDepths(sqs, lambda queue: url, cloudwatch=lambda: cloudwatch, clock=lambda: NOW).read(
            "books", age=True
        )
    assert (read.depth, read.age) == (8_000, timedelta(seconds=90))


def test_a_producer_is_held_back_by_what_is_in_its_queue(aws: Aws) -> None:
    producer = Producer(queues={"billing": aws.urls["billing"]})
    write = job(depth=25, on_error="closed")
    for _ in range(20):
        aws.sqs.send_message(QueueUrl=aws.urls["billing"], MessageBody="x")
    for number in range(5):
        producer.enqueue(write, ONE, key=f"{number}")
    with pytest.raises(QueueFull, match=r"25 messages of at most 25 \(20 visible.*, and 5 sent since\)") as caught:
        producer.enqueue(write, ONE, key="6")
    assert caught.value.reading is not None
    assert caught.value.reading.visible == 20
    with pytest.raises(QueueFull):
        asyncio.run(producer.aenqueue(write, ONE))
    assert depths(aws).read("billing", age=False).depth == 25


def test_an_old_message_holds_producers_back(aws: Aws) -> None:
    aws.sqs.send_message(QueueUrl=aws.urls["billing"], MessageBody="x")
    oldest(3_600, datetime.now(UTC) - timedelta(minutes=1))
    producer = Producer(queues={"billing": aws.urls["billing"]})
    with pytest.raises(QueueFull, match="its oldest message is 1:00:00 old, of at most 0:30:00"):
        producer.enqueue(job(age=timedelta(minutes=30), on_error="open"), ONE)


def test_the_producer_of_the_process_asks_and_that_of_the_scheduler_does_not(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = job(depth=1, on_error="open")
    monkeypatch.setenv(names.queue_url_key("billing"), aws.urls["billing"])
    enqueue(write, ONE)
    with pytest.raises(QueueFull):
        enqueue(write, ONE)
    monkeypatch.setenv(names.QUEUE, names.TICKS)
    connect.forget()
    for _ in range(3):
        enqueue(write, ONE)


@pytest.mark.parametrize("on_error", ["open", "closed"])
def test_a_right_that_is_missing_is_a_failed_reading(
    aws: Aws, on_error: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def denied(self: Any, queue: str, /, *, age: bool) -> Reading:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "GetQueueAttributes")

    monkeypatch.setattr(SqsDepths, "read", denied)
    producer = Producer(queues={"billing": aws.urls["billing"]})
    write = job(depth=1, on_error=on_error)
    if on_error == "open":
        assert producer.enqueue_many(write, [ONE] * 3).accepted == 3
    else:
        with pytest.raises(QueueFull, match=r"could not be read \(ClientError: .*AccessDenied"):
            producer.enqueue_many(write, [ONE] * 3)
    assert [record.levelname for record in caplog.records if "AccessDenied" in record.message] == ["WARNING"]
