"""Sorting exceptions: one row for each that the table knows."""

from __future__ import annotations

import asyncio
import email.message
import http.client
import socket
import ssl
import urllib.error
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import botocore.exceptions
import msgspec
import pydantic
import pytest
import requests
import urllib3.exceptions

from loomjobs.core import errors
from loomjobs.core.call import Report
from loomjobs.core.classify import Sorting, classify, retry_after, sort_status
from loomjobs.core.retry import Retry
from loomjobs.core.signals import Permanent, Transient

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def sort(error: BaseException, retry: Retry | None = None) -> Sorting:
    return classify(error, retry or Retry(), now=NOW)


def aws(code: str, status: int = 400) -> botocore.exceptions.ClientError:
    reply: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return botocore.exceptions.ClientError(reply, "Operation")


def pydantic_error() -> Exception:
    try:
        pydantic.TypeAdapter(int).validate_python("x")
    except pydantic.ValidationError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    "code",
    [
        "ThrottlingException",
        "Throttling",
        "ProvisionedThroughputExceededException",
        "SlowDown",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "TransactionInProgressException",
    ],
)
def test_aws_throttling_is_throttled_whatever_its_status(code: str) -> None:
    assert sort(aws(code)).kind == "throttled"


@pytest.mark.parametrize(
    "code",
    [
        "InternalServerError",
        "ServiceUnavailable",
        "RequestTimeout",
        "TransactionConflictException",
        "ExpiredToken",
    ],
)
def test_aws_trouble_that_passes_is_transient(code: str) -> None:
    assert sort(aws(code)).kind == "transient"


@pytest.mark.parametrize("code", ["ValidationException", "ResourceNotFoundException", "NoSuchKey", "MessageRejected"])
def test_aws_refusals_that_do_not_pass_are_permanent(code: str) -> None:
    assert sort(aws(code)).kind == "permanent"


def test_a_missing_right_is_mended_by_a_deploy_so_it_is_retried_within_bounds() -> None:
    assert sort(aws("AccessDeniedException", 403)).kind == "unknown"


@pytest.mark.parametrize(
    ("status", "kind"), [(500, "transient"), (503, "transient"), (429, "throttled"), (400, "permanent")]
)
def test_an_unlisted_aws_code_is_sorted_by_its_http_status(status: int, kind: str) -> None:
    assert sort(aws("SomethingNew", status)).kind == kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "permanent"),
        (401, "unknown"),
        (403, "unknown"),
        (404, "permanent"),
        (408, "transient"),
        (409, "unknown"),
        (410, "permanent"),
        (422, "permanent"),
        (423, "unknown"),
        (425, "transient"),
        (429, "throttled"),
        (500, "transient"),
        (501, "permanent"),
        (502, "transient"),
        (503, "transient"),
        (504, "transient"),
        (505, "permanent"),
        (529, "transient"),
    ],
)
def test_each_http_status_has_its_row(status: int, kind: str) -> None:
    assert sort_status(status).kind == kind


def http_errors(status: int) -> list[Exception]:
    headers = email.message.Message()
    headers["Retry-After"] = "17"
    reply = requests.Response()
    reply.status_code = status
    reply.headers["Retry-After"] = "17"
    like_httpx = Exception("status")
    like_httpx.response = SimpleNamespace(status_code=status, headers={"Retry-After": "17"})  # type: ignore[attr-defined]
    return [
        urllib.error.HTTPError("http://x", status, "", headers, None),
        requests.HTTPError(response=reply),
        like_httpx,
    ]


@pytest.mark.parametrize("error", http_errors(503), ids=lambda error: type(error).__module__)
def test_a_status_and_its_retry_after_are_found_on_each_clients_error(error: Exception) -> None:
    assert sort(error) == Sorting("transient", 17.0)


@pytest.mark.parametrize("error", http_errors(422), ids=lambda error: type(error).__module__)
def test_an_unprocessable_request_is_permanent_on_each_client(error: Exception) -> None:
    assert sort(error).kind == "permanent"


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError(),
        BrokenPipeError(),
        TimeoutError(),
        asyncio.CancelledError(),
        socket.gaierror(),
        ssl.SSLError(),
        http.client.RemoteDisconnected(),
        http.client.IncompleteRead(b""),
        MemoryError(),
        SystemExit(1),
        KeyboardInterrupt(),
        GeneratorExit(),
        botocore.exceptions.EndpointConnectionError(endpoint_url="x"),
        botocore.exceptions.ReadTimeoutError(endpoint_url="x"),
        botocore.exceptions.ConnectTimeoutError(endpoint_url="x"),
        botocore.exceptions.ConnectionClosedError(endpoint_url="x"),
        urllib3.exceptions.ReadTimeoutError(None, "", ""),  # type: ignore[arg-type]
        urllib3.exceptions.NewConnectionError(None, ""),  # type: ignore[arg-type]
        urllib3.exceptions.MaxRetryError(None, ""),  # type: ignore[arg-type]
        urllib3.exceptions.ProtocolError(),
        requests.ConnectionError(),
        requests.ReadTimeout(),
        errors.NotSent(Report(accepted=0), "throttled"),
        errors.StoreUnavailable("table"),
        Transient("busy"),
    ],
    ids=lambda error: type(error).__qualname__,
)
def test_connections_timeouts_and_ends_of_the_process_are_transient(error: BaseException) -> None:
    assert sort(error).kind == "transient"


@pytest.mark.parametrize(
    "error",
    [
        Permanent("no"),
        msgspec.ValidationError("no"),
        pydantic_error(),
        botocore.exceptions.ParamValidationError(report="no"),
        errors.BadPayload("$", "no"),
        errors.InvalidOption("no"),
        errors.UndeclaredSend("a.b", "c.d"),
        errors.PayloadTooLarge("a.b", 2, 1),
    ],
    ids=lambda error: type(error).__qualname__,
)
def test_what_fails_the_same_way_every_time_is_permanent(error: Exception) -> None:
    assert sort(error).kind == "permanent"


@pytest.mark.parametrize("error", [ValueError(), KeyError(), RuntimeError(), AssertionError(), ZeroDivisionError()])
def test_anything_else_is_unknown_and_so_retried_within_bounds(error: Exception) -> None:
    assert sort(error).kind == "unknown"


def test_the_jobs_own_table_comes_first_and_its_most_derived_class_wins() -> None:
    retry = Retry(permanent=(LookupError,), transient=(KeyError,))
    assert sort(KeyError(), retry).kind == "transient"
    assert sort(IndexError(), retry).kind == "permanent"
    assert sort(TimeoutError(), Retry(permanent=(TimeoutError,))).kind == "permanent"


def test_an_authors_wait_is_kept() -> None:
    assert sort(Transient(after=timedelta(seconds=90))) == Sorting("transient", 90.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        (" 5 ", 5.0),
        ("Thu, 01 Jan 2026 00:01:00 GMT", 60.0),
        ("Wed, 31 Dec 2025 23:59:00 GMT", 0.0),
        ("soon", 0.0),
        ("-5", 0.0),
        ("9" * 30, 86_400.0),
        ("Thu, 99 Jan 2026 00:01:00 GMT", 0.0),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date_and_bounded(text: str, seconds: float) -> None:
    assert retry_after(text, NOW) == seconds


def test_an_error_whose_attributes_are_not_what_they_seem_is_still_sorted() -> None:
    odd = ValueError("odd")
    odd.response = {"Error": "text"}  # type: ignore[attr-defined]
    odd.code = True  # type: ignore[attr-defined]
    assert sort(odd).kind == "unknown"


def test_a_full_queue_is_waited_for_unless_the_job_says_otherwise() -> None:
    from loomjobs.core.backpressure import Reject

    full = errors.QueueFull(Report(accepted=0), "mail", Reject(timedelta(seconds=14), "it is"))
    assert sort(full) == Sorting("waiting", 14.0)
    assert sort(full, Retry(permanent=(errors.QueueFull,))) == Sorting("permanent")
    assert sort(full, Retry(transient=(errors.NotSent,))) == Sorting("transient")
