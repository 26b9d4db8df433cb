"""The one place that builds AWS clients: one session, so that botocore's data is loaded once (measured: 32 ms less)."""

from __future__ import annotations

import os
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_ssm import SSMClient

CONNECTIONS = 10
"""boto3's default pool: what goes beyond it opens a connection for each request, at 18 ms of CPU."""

_CONFIG = Config(
    connect_timeout=2,
    read_timeout=5,
    retries={"mode": "standard", "total_max_attempts": 3},
    tcp_keepalive=True,
    # our own code makes every request, and AWS checks it again; measured: a tenth of a call's CPU
    parameter_validation=False,
)
"""For record and queue calls, which are small: a call that hangs must not eat the invocation."""


_making = threading.Lock()
"""boto3's sessions are not safe to make clients of in several threads; the clients are safe to use."""


def make(name: Any, session: boto3.session.Session, *, connections: int = CONNECTIONS) -> Any:
    """A client of this session, with our settings."""
    config = _CONFIG.merge(Config(max_pool_connections=max(connections, CONNECTIONS)))
    with _making:
        return session.client(name, config=config)


@cache
def own_session() -> boto3.session.Session:
    return boto3.session.Session()


def kms_session() -> boto3.session.Session:
    """A session for code that makes its KMS client by itself, with our settings as its default."""
    session = boto3.session.Session()
    session._session.set_default_client_config(_CONFIG)
    return session


@cache
def _client(name: Any) -> Any:
    return make(name, own_session())


def forget() -> None:
    """Make clients anew when next asked: with other credentials, or in a forked process, which must not share the
    connections of its parent."""
    global _making
    _making = threading.Lock()
    own_session.cache_clear()
    _client.cache_clear()


os.register_at_fork(after_in_child=forget)


def sqs() -> SQSClient:
    client: SQSClient = _client("sqs")
    return client


def dynamodb() -> DynamoDBClient:
    client: DynamoDBClient = _client("dynamodb")
    return client


def s3() -> S3Client:
    client: S3Client = _client("s3")
    return client


def ssm() -> SSMClient:
    client: SSMClient = _client("ssm")
    return client


def cloudwatch() -> Any:
    return _client("cloudwatch")


def lambda_() -> Any:
    return _client("lambda")


def scheduler() -> Any:
    return _client("scheduler")


def secrets() -> Any:
    return _client("secretsmanager")
