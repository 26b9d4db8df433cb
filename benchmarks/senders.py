"""One way to send orders, run in a process of its own: `python -m benchmarks.senders NAME URL MESSAGES`.

Prints, as JSON, the seconds and the CPU seconds (all threads, user and system) of sending so many messages, after
WARM_UP of them: connections are open, service models loaded. The server is another process, so its CPU is not counted.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TypeAlias

QUEUE = "bench"
WARM_UP = 20


@dataclass(frozen=True)
class Order:
    """About 130 bytes as JSON, each another one."""

    id: str
    customer_id: str
    period: str
    amount: str
    currency: str
    reference: str


Send: TypeAlias = Callable[[Iterable[Order]], object]
"""Sends all of them; when it returns, the server has answered for each."""


def orders(start: int, count: int) -> Iterator[Order]:
    for number in range(start, start + count):
        yield Order(f"{number:06}", f"c{number % 7846:05}", "1997-01", "129.90", "EUR", f"billing/1997/{number:06}")


def loop(url: str) -> Send:
    """boto3's `send_message`, one after the other."""
    import boto3

    send = boto3.client("sqs").send_message
    return _one_by_one(lambda order: send(QueueUrl=url, MessageBody=json.dumps(asdict(order))))


def celery(url: str) -> Send:
    """`apply_async` over kombu's SQS transport; the queue is predefined, so that it is not asked for."""
    from celery import Celery

    app = Celery("bench", broker="sqs://")
    app.conf.task_default_queue = QUEUE
    app.conf.broker_transport_options = {"predefined_queues": {QUEUE: {"url": url}}}
    task = app.task(_job, name="bench.order", ignore_result=True)
    return _one_by_one(lambda order: task.apply_async(kwargs=asdict(order)))


def dramatiq(url: str) -> Send:
    """An actor's `send` over dramatiq_sqs."""
    import dramatiq as peer
    from dramatiq_sqs import SQSBroker

    peer.set_broker(SQSBroker())
    actor = peer.actor(_job, actor_name="bench.order", queue_name=QUEUE)
    return _one_by_one(lambda order: actor.send(**asdict(order)))


def ours(url: str, *, senders: int) -> Send:
    """`enqueue_many` of a Producer that is told the queue's URL."""
    from loomjobs import JobContext, Producer, Queue, Workload, job
    from loomjobs.core.registry import isolated

    with isolated():

        @job("bench.order", queue=Queue(QUEUE, workload=Workload.BULK), key="id")
        def order(payload: Order, ctx: JobContext) -> None: ...

    producer = Producer(queues={QUEUE: url}, senders=senders)
    return lambda many: producer.enqueue_many(order, many)


SENDERS: dict[str, Callable[[str], Send]] = {
    "loop": loop,
    "celery": celery,
    "dramatiq": dramatiq,
    "ours-1": lambda url: ours(url, senders=1),
    "ours-8": lambda url: ours(url, senders=8),
    "ours-16": lambda url: ours(url, senders=16),
}


def _job(**order: str) -> None:
    """What is never run here."""


def _one_by_one(send: Callable[[Order], object]) -> Send:
    def send_all(many: Iterable[Order]) -> None:
        for order in many:
            send(order)

    return send_all


def main(name: str, url: str, messages: int) -> None:
    send = SENDERS[name](url)
    send(orders(0, WARM_UP))
    began, cpu = time.perf_counter(), time.process_time()
    send(orders(WARM_UP, messages))
    print(json.dumps({"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
