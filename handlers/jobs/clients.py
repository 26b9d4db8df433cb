"""The clients that jobs share, each made once per process and only when it is used. All have timeouts.

`AWS_ENDPOINT_URL` in the environment sends the AWS clients to an embedded AWS instead.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from urllib3 import PoolManager


@cache
def dynamodb() -> DynamoDBClient:
    client: DynamoDBClient = _client("dynamodb", tries=3)
    return client


@cache
def s3() -> S3Client:
    client: S3Client = _client("s3", tries=3)
    return client


@cache
def ses() -> Any:
    """Tries once: SES knows no idempotency key, so a request repeated after a lost answer is a second mail."""
    return _client("sesv2", tries=1)


@cache
def http() -> PoolManager:
    """Neither retries nor follows redirects: the queue retries, with the job's backoff and its count of attempts."""
    import urllib3

    return urllib3.PoolManager(timeout=urllib3.Timeout(connect=2, read=20), retries=False)


def _client(service: Any, *, tries: int) -> Any:
    import boto3
    from botocore.config import Config

    retries: Any = {"mode": "standard", "total_max_attempts": tries}
    return boto3.client(service, config=Config(connect_timeout=2, read_timeout=10, retries=retries))
