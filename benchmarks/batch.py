"""A batch of 50,000 children on the embedded AWS, with messages delivered twice and acknowledgements lost.

One process fans out, two work it off through the Lambda handler, as fast as they can; each has its own memory and calls
counted. A run proves itself: every child has one effect, the end is told once.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.invocation import Context, event_of
from benchmarks.table import Table

CHILDREN = (5_000, 50_000)
WORKERS = 2
DOUBLED, UNACKNOWLEDGED = 10, 2
"""Of a hundred messages, so many are sent a second time; of a hundred deliveries, so many are not deleted."""
VISIBILITY = 20


@dataclass(frozen=True)
class Child:
    number: int


def measure() -> Sequence[Table]:
    runs = {f"Loomjobs Batch, {many:,} children": _run(many) for many in CHILDREN}
    measures = {
        "children a second, fan-out alone": "fanned",
        "children a second, from the first send to the end's job": "rate",
        "peak memory of the fan-out, MB": "fan_memory",
        "peak memory of a worker, MB": "work_memory",
        "DynamoDB writes for counting, of each child": "marks",
        "messages delivered, of each child": "delivered",
    }
    return [Table.of(what, {name: [run[key]] for name, run in runs.items()}) for what, key in measures.items()]


def _run(many: int) -> Mapping[str, float]:
    from infra.emulator import start

    with tempfile.TemporaryDirectory() as folder, start(Path(folder)) as emulator:
        environment = dict(os.environ) | dict(emulator.environment()) | _prepare(emulator.environment(), Path(folder))
        began = time.monotonic()
        workers = [_spawn(environment, "work", str(place)) for place in range(WORKERS)]
        fan = _spawn(environment, "fan", str(many))
        fanned = json.loads(fan.communicate()[0])
        told = Path(folder) / "told"
        while not told.exists():
            if any(worker.poll() for worker in workers):
                raise SystemExit("a worker broke")
            time.sleep(0.2)
        seconds = time.monotonic() - began
        time.sleep(VISIBILITY + 5)  # what was not acknowledged comes back
        (Path(folder) / "stop").touch()
        worked = [json.loads(worker.communicate()[0]) for worker in workers]
        _prove(Path(folder), many)
    delivered, marks = (sum(one[key] for one in worked) for key in ("delivered", "marks"))
    return {
        "fanned": many / fanned["seconds"],
        "rate": many / seconds,
        "fan_memory": fanned["memory"],
        "work_memory": max(one["memory"] for one in worked),
        "marks": marks / many,
        "delivered": delivered / many,
    }


def _prove(folder: Path, many: int) -> None:
    effects = Counter(line for file in folder.glob("effects-*") for line in file.read_text().split())
    assert len(effects) == many, f"{many - len(effects)} children are lost"
    assert set(effects.values()) == {1}, f"{sum(effects.values()) - many} effects are doubled"
    told = (folder / "told").read_text().split()
    assert told == ["completed"], told


def _prepare(given: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The queues and the table, and where they are."""
    import boto3

    from loomjobs.core import names

    session = boto3.session.Session(
        given["AWS_ACCESS_KEY_ID"], given["AWS_SECRET_ACCESS_KEY"], region_name=given["AWS_REGION"]
    )
    sqs = session.client("sqs", endpoint_url=given["AWS_ENDPOINT_URL"])
    attributes = {"VisibilityTimeout": str(VISIBILITY)}
    url = sqs.create_queue(QueueName="batch", Attributes=attributes)["QueueUrl"]
    session.client("dynamodb", endpoint_url=given["AWS_ENDPOINT_URL"]).create_table(
        TableName="executions",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return {
        "POWERTOOLS_SERVICE_NAME": "bench",
        "POWERTOOLS_METRICS_NAMESPACE": "bench",
        "POWERTOOLS_LOG_LEVEL": "CRITICAL",
        "BENCH_FOLDER": str(folder),
        names.TABLE: "executions",
        names.SOURCE_URL: url,
        names.DLQ_URL: sqs.create_queue(QueueName="batch-dlq")["QueueUrl"],
        names.queue_url_key("batch"): url,
    }


def _spawn(environment: Mapping[str, str], *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.batch", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def _jobs(place: str = "none") -> tuple[Any, Any]:
    from loomjobs import JobContext, Queue, Workload, job

    folder = Path(os.environ["BENCH_FOLDER"])
    queue = Queue("batch", workload=Workload.BULK, job_timeout=timedelta(seconds=5))

    @job("bench.end", queue=queue, key="number")
    def end(payload: Child, ctx: JobContext) -> None:
        with (folder / "told").open("a") as file:
            file.write("completed\n" if payload.number else "failed\n")

    @job("bench.child", queue=queue, key="number", sends=[end])
    def child(payload: Child, ctx: JobContext) -> None:
        with (folder / f"effects-{place}").open("a") as file:
            file.write(f"{payload.number}\n")

    return child, end


def fan(many: int) -> Mapping[str, float]:
    from loomjobs import Batch, call

    child, end = _jobs()
    began = time.monotonic()
    with Batch("bench", on_complete=call(end, Child(1)), on_failure=call(end, Child(0))) as batch:
        batch.add(child, (Child(number) for number in range(many)), cap=many)
    return {"seconds": time.monotonic() - began, "memory": _peak()}


def work(place: str) -> Mapping[str, float]:
    from loomjobs.aws import clients
    from loomjobs.aws.handler import make_handler
    from loomjobs.aws.process import worker_process
    from loomjobs.core import names
    from loomjobs.core.catalogue import Catalogue

    extra = {names.QUEUE: "batch", names.MODULES: "none", names.RECORD_TTL: "86400", names.RECEIVES: "200"}
    handler = make_handler(worker_process(dict(os.environ) | extra, Catalogue(_jobs(place))))
    sqs, url, counts = clients.sqs(), os.environ[names.SOURCE_URL], Counter[str]()
    clients.dynamodb().meta.events.register("provide-client-params.dynamodb.UpdateItem", _counting(counts))
    stop = Path(os.environ["BENCH_FOLDER"]) / "stop"
    while not stop.exists():
        messages: Any = sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"], MessageAttributeNames=["All"]
        ).get("Messages", [])
        if not messages:
            time.sleep(0.05)
            continue
        counts["delivered"] += len(messages)
        _double(sqs, url, messages)
        with redirect_stdout(io.StringIO()):
            left = {each["itemIdentifier"] for each in handler(event_of(messages), Context())["batchItemFailures"]}
        done = [each for each in messages if each["MessageId"] not in left and _share(each, "ack") >= UNACKNOWLEDGED]
        _delete(sqs, url, done)
    return {"memory": _peak(), "delivered": counts["delivered"], "marks": counts["marks"]}


def _counting(counts: Counter[str]) -> Any:
    def count(params: Any, **_: Any) -> None:
        counts["marks"] += params["Key"]["id"]["S"].startswith("batch")

    return count


def _double(sqs: Any, url: str, messages: Sequence[Any]) -> None:
    """Send some a second time, marked, so that a double is not doubled."""
    marked = {"double": {"DataType": "String", "StringValue": "yes"}}
    again = [each for each in messages if "MessageAttributes" not in each and _share(each, "send") < DOUBLED]
    entries = [
        {"Id": str(place), "MessageBody": each["Body"], "MessageAttributes": marked} for place, each in enumerate(again)
    ]
    if entries:
        sqs.send_message_batch(QueueUrl=url, Entries=entries)


def _share(message: Any, what: str) -> int:
    """0 to 99: the same for a message's first delivery whenever it is asked, and all of them later."""
    if int(message["Attributes"]["ApproximateReceiveCount"]) > 1:
        return 99
    return int(hashlib.sha256(f"{what}{message['MessageId']}".encode()).hexdigest(), 16) % 100


def _delete(sqs: Any, url: str, messages: Sequence[Any]) -> None:
    entries = [{"Id": str(place), "ReceiptHandle": each["ReceiptHandle"]} for place, each in enumerate(messages)]
    if entries:
        sqs.delete_message_batch(QueueUrl=url, Entries=entries)


def _peak() -> float:
    """Most memory that this process had, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    kind, argument = sys.argv[1:]
    print(json.dumps(fan(int(argument)) if kind == "fan" else work(argument)))
