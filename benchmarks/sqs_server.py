"""An SQS server for benchmarks: the sending half of the JSON protocol, on loopback, in memory, one asyncio process.

`GET /counters` says how many requests of each action came and how many messages each queue has. It checks no
signatures, knows no FIFO, and keeps messages only to count them: nothing here says how fast AWS is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from hashlib import md5
from itertools import count
from typing import Any
from urllib.request import urlopen

ACCOUNT = "000000000000"
_HEAD_END = b"\r\n\r\n"


@contextmanager
def serving(*, answer_ms: float) -> Generator[str]:
    """A server in a process of its own for the block; its URL. Each answer comes so many milliseconds late."""
    command = [sys.executable, "-m", "benchmarks.sqs_server", "--answer-ms", str(answer_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def counters(url: str) -> dict[str, dict[str, int]]:
    """`requests` by action; by queue, `messages`, and `bodies`: how many of them differ."""
    with urlopen(f"{url}/counters") as answer:
        result: dict[str, dict[str, int]] = json.load(answer)
        return result


def queue_url(url: str, name: str) -> str:
    return f"{url}/{ACCOUNT}/{name}"


class Sqs:
    """The queues, and what each action answers."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ids = count()
        self._requests: Counter[str] = Counter()
        self._bodies: dict[str, list[str]] = {}
        self._actions: Mapping[str, Callable[[Any], dict[str, Any]]] = {
            "SendMessage": lambda asked: self._accept(asked["QueueUrl"], asked),
            "SendMessageBatch": self._send_batch,
            "GetQueueUrl": lambda asked: self._queue(asked["QueueName"]),
            "CreateQueue": lambda asked: self._queue(asked["QueueName"]),
            "ListQueues": lambda _: {"QueueUrls": [queue_url(self._url, name) for name in self._bodies]},
            "GetQueueAttributes": lambda _: {"Attributes": {"ApproximateNumberOfMessages": "0"}},
        }

    def answer(self, action: str, body: bytes) -> dict[str, Any]:
        self._requests[action] += 1
        return self._actions[action](json.loads(body))

    def counters(self) -> dict[str, dict[str, int]]:
        return {
            "requests": dict(self._requests),
            "messages": {name: len(bodies) for name, bodies in self._bodies.items()},
            "bodies": {name: len(set(bodies)) for name, bodies in self._bodies.items()},
        }

    def _queue(self, name: str) -> dict[str, Any]:
        self._bodies.setdefault(name, [])
        return {"QueueUrl": queue_url(self._url, name)}

    def _send_batch(self, asked: Any) -> dict[str, Any]:
        url = asked["QueueUrl"]
        return {"Successful": [{"Id": each["Id"], **self._accept(url, each)} for each in asked["Entries"]]}

    def _accept(self, url: str, message: Any) -> dict[str, Any]:
        body = message["MessageBody"]
        self._bodies.setdefault(url.rsplit("/", 1)[1], []).append(body)
        answer = {"MessageId": f"{next(self._ids):032x}", "MD5OfMessageBody": md5(body.encode()).hexdigest()}
        if message.get("MessageAttributes"):
            answer["MD5OfMessageAttributes"] = _digest(message["MessageAttributes"])
        return answer


class Connection(asyncio.Protocol):
    """HTTP/1.1 with keep-alive, as far as boto3 speaks it: lengths, no chunks, one request at a time."""

    def __init__(self, sqs: Sqs, answer_seconds: float) -> None:
        self._sqs = sqs
        self._answer_seconds = answer_seconds
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, rest = self._received.partition(_HEAD_END)
        if not found:
            return
        request, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if len(rest) < int(headers.get("content-length", 0)):
            return
        self._received = b""
        if request.startswith("GET /counters "):
            self._write(self._sqs.counters())
        else:
            self._later(self._sqs.answer(headers["x-amz-target"].removeprefix("AmazonSQS."), rest))

    def _later(self, answer: Mapping[str, Any]) -> None:
        if self._answer_seconds:
            asyncio.get_running_loop().call_later(self._answer_seconds, self._write, answer)
        else:
            self._write(answer)

    def _write(self, answer: Mapping[str, Any]) -> None:
        body = json.dumps(answer).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)


def _digest(attributes: Mapping[str, Any]) -> str:
    """Name, type and value of each attribute, sorted, with their lengths:
    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html"""
    digest = md5()
    for name, value in sorted(attributes.items()):
        for part in (name, value["DataType"]):
            digest.update(len(part.encode()).to_bytes(4, "big") + part.encode())
        text = value["StringValue"].encode()  # none of those measured here sends bytes
        digest.update(b"\x01" + len(text).to_bytes(4, "big") + text)
    return digest.hexdigest()


async def _serve(answer_ms: float) -> None:
    """Print the port, and serve until killed."""
    loop = asyncio.get_running_loop()
    made: list[Sqs] = []
    server = await loop.create_server(lambda: Connection(made[0], answer_ms / 1000), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    made.append(Sqs(f"http://127.0.0.1:{port}"))
    print(port, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answer-ms", type=float, default=0.0)
    asyncio.run(_serve(parser.parse_args().answer_ms))
