"""From spawn to a handler that is ready, in milliseconds: fresh processes on a warm page cache, without a sandbox."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.table import Table

ROUNDS = 9

_OURS = "import worker"
_PEER = """
import boto3
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType
from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig
from aws_lambda_powertools.utilities.parser.models import SqsModel
Logger(), Metrics(), BatchProcessor(EventType.SQS), boto3.client("sqs")
DynamoDBPersistenceLayer("t"), IdempotencyConfig()
"""


def measure() -> Sequence[Table]:
    """From spawn to a handler that is ready, in milliseconds: a typical Powertools handler of this environment, and our
    billing worker from its asset: whole, without its bytecode, and with botocore's data unpruned."""
    from infra.asset import Target, build

    root = Path(__file__).resolve().parents[1]
    asset = build(Target.host(), root=root).path
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "bare"
        shutil.copytree(asset, bare, ignore=shutil.ignore_patterns("__pycache__"))
        variants = {
            "Powertools, typical (pydantic parser)": ([sys.executable, "-c", _PEER], None),
            "Loomjobs billing worker": ([sys.executable, "-S", "-c", _OURS], asset),
            "Loomjobs billing worker, no bytecode": ([sys.executable, "-S", "-c", _OURS], bare),
        }
        # the peer's packages have their bytecode too: set-up installs them without
        subprocess.run([sys.executable, "-c", _PEER], check=True, env=os.environ | {"PYTHONDONTWRITEBYTECODE": ""})
        samples: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(ROUNDS):
            for name, (command, path) in variants.items():
                samples[name].append(_spawn(command, path))
        return [Table.of(measure.__doc__, {name: values[1:] for name, values in samples.items()})]


def _spawn(command: Sequence[str], path: Path | None) -> float:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONDONTWRITEBYTECODE": "1",
        "AWS_REGION": "eu-central-1",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "POWERTOOLS_SERVICE_NAME": "bench",
        "POWERTOOLS_METRICS_NAMESPACE": "bench",
        "LOOMJOBS_QUEUE": "billing",
        "LOOMJOBS_MODULES": "jobs.close_month,jobs.close_page,jobs.write_statement",
        "LOOMJOBS_TABLE": "executions",
        "LOOMJOBS_SOURCE_URL": "https://queue/1",
        "LOOMJOBS_DLQ_URL": "https://queue/2",
        "LOOMJOBS_RECORD_TTL": "86400",
        "LOOMJOBS_RECEIVES": "200",
    }
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    began = time.perf_counter()
    subprocess.run(command, env=environment, check=True, cwd=path or "/")
    return (time.perf_counter() - began) * 1000
