"""Sorting exceptions before anything is retried. By name and shape, so that no client library is imported for it."""

from __future__ import annotations

import email.utils
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from loomjobs.core.errors import (
    BadMessage,
    CommitError,
    InvalidOption,
    LoomjobsError,
    PayloadForbidden,
    PayloadMissing,
    PayloadTampered,
    PayloadTooLarge,
    QueueFull,
    UndeclaredSend,
)
from loomjobs.core.retry import Retry
from loomjobs.core.signals import Permanent, Transient


@dataclass(frozen=True, slots=True)
class Sorting:
    """`unknown` is retried within the job's attempts, `waiting` charges none. `after`: the least wait, in seconds."""

    kind: Literal["transient", "throttled", "permanent", "unknown", "waiting"]
    after: float = 0.0


def classify(error: BaseException, retry: Retry, *, now: datetime) -> Sorting:
    """Author's signals first, then the job's own table, then ours: AWS code, HTTP status, class name."""
    if isinstance(error, Permanent):
        return Sorting("permanent")
    if isinstance(error, Transient):
        return Sorting("transient", error.after.total_seconds() if error.after else 0.0)
    own = _by_job(error, retry)
    if own is not None:
        return own
    return _by_aws_code(error) or _by_status(error, now) or _by_class(error) or Sorting("unknown")


def _by_job(error: BaseException, retry: Retry) -> Sorting | None:
    """The most derived class that the job names decides."""
    for cls in type(error).__mro__:
        if cls in retry.permanent:
            return Sorting("permanent")
        if cls in retry.transient:
            return Sorting("transient")
    return None


# https://docs.aws.amazon.com/general/latest/gr/api-retries.html and botocore's retry tables
_AWS_THROTTLED: Final = frozenset(
    """Throttling ThrottlingException ThrottledException RequestThrottledException RequestThrottled
    TooManyRequestsException ProvisionedThroughputExceededException RequestLimitExceeded BandwidthLimitExceeded
    LimitExceededException SlowDown PriorRequestNotComplete EC2ThrottledException TransactionInProgressException
    OverLimit MaxSendingRateExceeded""".split()
)
_AWS_TRANSIENT: Final = frozenset(
    """RequestTimeout RequestTimeoutException InternalError InternalFailure InternalServerError ServiceUnavailable
    ServiceUnavailableException TransactionConflictException ReplicatedWriteConflictException
    ExpiredToken ExpiredTokenException RequestExpired KMSInternalException LimitExceeded""".split()
)
_AWS_PERMANENT: Final = frozenset(
    """ValidationException ValidationError InvalidParameterValue InvalidParameterCombination
    ConditionalCheckFailedException NoSuchKey NoSuchBucket ResourceNotFoundException MessageRejected
    MailFromDomainNotVerifiedException AccountSuspendedException ItemCollectionSizeLimitExceededException""".split()
)


def _by_aws_code(error: BaseException) -> Sorting | None:
    """botocore's ClientError: `response["Error"]["Code"]`; a code of neither table is left to its HTTP status."""
    response = getattr(error, "response", None)
    detail = response.get("Error") if isinstance(response, Mapping) else None
    code = detail.get("Code") if isinstance(detail, Mapping) else None
    if not isinstance(code, str):
        return None
    if code in _AWS_THROTTLED:
        return Sorting("throttled")
    if code in _AWS_TRANSIENT:
        return Sorting("transient")
    if code in _AWS_PERMANENT:
        return Sorting("permanent")
    # AccessDenied and its like are mended by a deploy, not by the message: bounded retries, not the DLQ at once.
    return Sorting("unknown") if "AccessDenied" in code or "UnrecognizedClient" in code else None


def _by_status(error: BaseException, now: datetime) -> Sorting | None:
    """An HTTP status carried by the error or its response (requests, httpx, urllib, aiohttp, botocore)."""
    for holder in _holders(error):
        status = _status(holder)
        if status is not None and status >= 400:
            return sort_status(status, after=_retry_after(holder, now))
    return None


def sort_status(status: int, *, after: float = 0.0) -> Sorting:
    """429 and 503 are the server's wish to wait; 408, 425 and other 5xx are transient; other 4xx never change."""
    if status == 429:
        return Sorting("throttled", after)
    if status in (408, 425) or status >= 500:
        # 501 and 505 name something the server will never do
        return Sorting("permanent") if status in (501, 505) else Sorting("transient", after)
    if status in (401, 403, 409, 423):
        return Sorting("unknown", after)  # credentials, locks and conflicts may clear
    return Sorting("permanent")


def _holders(error: BaseException) -> Iterator[Any]:
    yield getattr(error, "response", None)
    yield error


def _status(holder: Any) -> int | None:
    if isinstance(holder, Mapping):
        metadata = holder.get("ResponseMetadata")
        value = metadata.get("HTTPStatusCode") if isinstance(metadata, Mapping) else None
    else:
        values = (getattr(holder, name, None) for name in ("status_code", "status", "code"))
        value = next((each for each in values if isinstance(each, int) and not isinstance(each, bool)), None)
    return value if isinstance(value, int) and 100 <= value <= 599 else None


def _retry_after(holder: Any, now: datetime) -> float:
    read = getattr(getattr(holder, "headers", None), "get", None)
    text = read("Retry-After") if callable(read) else None
    return retry_after(text, now) if isinstance(text, str) else 0.0


def retry_after(text: str, now: datetime) -> float:
    """Seconds of a Retry-After header, as a number or an HTTP date; 0 for one that is neither or lies in the past."""
    text = text.strip()
    if re.fullmatch("[0-9]+", text):
        digits = text.lstrip("0")
        return 86_400.0 if len(digits) > 5 else float(min(int(digits or "0"), 86_400))
    try:
        moment = email.utils.parsedate_to_datetime(text[:64])
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max(0.0, min((aware - now).total_seconds(), 86_400.0))
    except (TypeError, ValueError, OverflowError):
        return 0.0


_TRANSIENT_CLASSES: Final = frozenset(
    """builtins.ConnectionError builtins.TimeoutError builtins.MemoryError builtins.BlockingIOError
    builtins.SystemExit builtins.KeyboardInterrupt asyncio.exceptions.CancelledError
    concurrent.futures._base.CancelledError ssl.SSLError socket.gaierror http.client.HTTPException
    botocore.exceptions.HTTPClientError botocore.exceptions.ConnectionError botocore.exceptions.IncompleteReadError
    botocore.exceptions.CredentialRetrievalError
    urllib3.exceptions.TimeoutError urllib3.exceptions.ProtocolError urllib3.exceptions.NewConnectionError
    urllib3.exceptions.MaxRetryError urllib3.exceptions.SSLError
    requests.exceptions.ConnectionError requests.exceptions.Timeout requests.exceptions.ChunkedEncodingError
    httpx.TransportError httpx.TimeoutException httpx._exceptions.TransportError httpcore.NetworkError
    aiohttp.client_exceptions.ClientConnectionError psycopg.OperationalError psycopg2.OperationalError
    redis.exceptions.ConnectionError""".split()
)
_PERMANENT_CLASSES: Final = frozenset(
    """msgspec.ValidationError pydantic_core._pydantic_core.ValidationError botocore.exceptions.ParamValidationError
    json.decoder.JSONDecodeError""".split()
)


def _by_class(error: BaseException) -> Sorting | None:
    if isinstance(error, QueueFull):
        return Sorting("waiting", error.retry_after.total_seconds())
    if isinstance(error, PayloadForbidden):
        return Sorting("unknown")  # as AWS's AccessDenied above
    if isinstance(error, LoomjobsError):
        return Sorting("permanent" if isinstance(error, _OURS_PERMANENT) else "transient")
    for cls in type(error).__mro__:
        name = f"{cls.__module__}.{cls.__qualname__}"
        if name in _PERMANENT_CLASSES:
            return Sorting("permanent")
        if name in _TRANSIENT_CLASSES:
            return Sorting("transient")
    # BaseException outside Exception ends a process, not a job: another worker may well run it.
    return None if isinstance(error, Exception) else Sorting("transient")


_OURS_PERMANENT: Final = (
    BadMessage,
    CommitError,
    InvalidOption,
    PayloadMissing,
    PayloadTampered,
    PayloadTooLarge,
    UndeclaredSend,
)
