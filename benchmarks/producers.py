"""Ours and three peers send orders to a local server that speaks SQS's protocol: not AWS, and without TLS.

Every sample is a fresh process and a fresh server. A round has one of each variant, one after the other, first with
instant answers and then with answers after 10 ms; the peers have an environment of their own, with the same boto3.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.senders import QUEUE, WARM_UP
from benchmarks.sqs_server import counters, queue_url, serving
from benchmarks.table import Table

ROUNDS = 7
ANSWER_MS = 10.0
PEERS = Path(".build/peers/bin/python")
"""`make bench` installs locks/peers.txt there."""


@dataclass(frozen=True)
class Variant:
    """`sender` is one of benchmarks.senders. Messages are enough for about a second, with `instant` answers and with
    `late` ones."""

    name: str
    sender: str
    instant: int
    late: int

    @property
    def python(self) -> str:
        return sys.executable if self.sender.startswith("ours") else str(PEERS)


VARIANTS = (
    Variant("boto3 send_message loop", "loop", 1_500, 120),
    Variant("Celery apply_async, kombu SQS", "celery", 1_000, 120),
    Variant("dramatiq_sqs send", "dramatiq", 1_500, 120),
    Variant("Loomjobs enqueue_many, 1 sender", "ours-1", 8_000, 1_000),
    Variant("Loomjobs enqueue_many, 8 senders (the default)", "ours-8", 8_000, 8_000),
    Variant("Loomjobs enqueue_many, 16 senders", "ours-16", 8_000, 12_000),
)


@dataclass(frozen=True)
class Sample:
    """Of one message: microseconds of the client's CPU, and requests."""

    rate: float
    cpu: float
    requests: float


def measure() -> Sequence[Table]:
    if not PEERS.exists():
        raise SystemExit(f"{PEERS} is not there: `make bench` installs the peers")
    rounds = [(_round(0.0), _round(ANSWER_MS)) for _ in range(ROUNDS)]
    return [
        *_tables("instant answers", [one for one, _ in rounds]),
        *_tables("answers after 10 ms", [two for _, two in rounds]),
    ]


def _tables(answers: str, rounds: Sequence[Sequence[Sample]]) -> Iterator[Table]:
    by_variant = {variant.name: samples for variant, samples in zip(VARIANTS, zip(*rounds, strict=True), strict=True)}
    for what, field in (
        ("messages a second", "rate"),
        ("client CPU a message, microseconds", "cpu"),
        ("requests a message", "requests"),
    ):
        values = {name: [getattr(one, field) for one in samples] for name, samples in by_variant.items()}
        yield Table.of(f"{what}; {answers}", values)


def _round(answer_ms: float) -> Sequence[Sample]:
    return [_sample(each, each.late if answer_ms else each.instant, answer_ms) for each in VARIANTS]


def _sample(variant: Variant, messages: int, answer_ms: float) -> Sample:
    """Raises AssertionError unless every message arrived, once. Requests are all of the process, set-up included."""
    with serving(answer_ms=answer_ms) as url:
        spent = _send(variant, url, messages)
        seen = counters(url)
    sent = WARM_UP + messages
    assert seen["messages"] == seen["bodies"] == {QUEUE: sent}, f"{variant.name} sent {sent}, the server has {seen}"
    return Sample(messages / spent["seconds"], spent["cpu"] / messages * 1e6, sum(seen["requests"].values()) / sent)


def _send(variant: Variant, url: str, messages: int) -> dict[str, float]:
    command = [variant.python, "-m", "benchmarks.senders", variant.sender, queue_url(url, QUEUE), str(messages)]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ENDPOINT_URL_SQS": url,
    }
    printed = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    spent: dict[str, float] = json.loads(printed)
    return spent
