"""The environment's bucket of payloads that go beside their messages."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from loomjobs.core.errors import (
    ConfigurationError,
    PayloadError,
    PayloadForbidden,
    PayloadMissing,
    PayloadUnavailable,
)

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3 import S3Client

_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "RequestTimeTooSkewed"})
"""Answered with 403 or 400, and nothing that a deploy would mend."""


class S3Payloads:
    """Implements the runtime's Payloads. `client` and `bucket` are asked for when an object is first used, since most
    processes never do: making the client takes longer than sending a message."""

    def __init__(self, client: Callable[[], S3Client], bucket: Callable[[], str]) -> None:
        self._client = client
        self._bucket = bucket

    def put(self, key: str, data: bytes, /) -> None:
        """S3 compares the checksum with what arrived."""
        checksum = base64.b64encode(hashlib.sha256(data).digest()).decode()
        try:
            self._client().put_object(
                Bucket=self._bucket(), Key=key, Body=data, ContentType="application/json", ChecksumSHA256=checksum
            )
        except (ClientError, BotoCoreError) as error:
            raise _sorted(error) from error

    def get(self, key: str, /, *, most: int) -> bytes:
        try:
            body = self._client().get_object(Bucket=self._bucket(), Key=key)["Body"]
            with body:
                return _read(body, most)
        except (ClientError, BotoCoreError) as error:
            raise _sorted(error) from error


def _read(body: StreamingBody, most: int) -> bytes:
    """Up to `most` bytes, read until none come: only then botocore notices a body that broke off."""
    data = b""
    while len(data) < most and (chunk := body.read(most - len(data))):
        data += chunk
    return data


def _sorted(error: ClientError | BotoCoreError) -> PayloadError | ConfigurationError:
    """S3 answers 404 for an object that is not there only to those who may list it; to others, 403:
    https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html"""
    answer: Any = error.response if isinstance(error, ClientError) else {}
    code = str(answer.get("Error", {}).get("Code", type(error).__name__))
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code == "NoSuchBucket":
        return ConfigurationError(f"the bucket of payloads is not there: {error}")
    if code == "NoSuchKey" or status == 404:
        return PayloadMissing(f"there is no such object: {error}")
    if status == 403 and code not in _EXPIRED:
        return PayloadForbidden(
            f'S3 refused: {error}. Is its queue declared with oversized="offload", and the job that sends to it with '
            "sends=, as deployed?"
        )
    return PayloadUnavailable(f"{code}: {error}")
