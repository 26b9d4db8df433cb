"""Payloads beside messages on the embedded AWS's S3, what S3's errors mean, and the page on them."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError
from botocore.response import StreamingBody

import loomjobs
from loomjobs import JobContext, Producer, Queue, Workload, call, enqueue, job
from loomjobs.aws.payloads import S3Payloads
from loomjobs.aws.places import Places
from loomjobs.aws.scheduled import Scheduled
from loomjobs.core import names
from loomjobs.core.address import address
from loomjobs.core.errors import (
    ConfigurationError,
    LoomjobsError,
    PayloadForbidden,
    PayloadMissing,
    PayloadUnavailable,
)
from loomjobs.core.later import moved
from loomjobs.core.outgoing import Origin
from loomjobs.core.payload import digest, parse
from loomjobs.core.registry import isolated
from tests.aws.conftest import Aws, Context, failed

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "send-large-payloads.md").read_text()
REPORTS = Queue("reports", workload=Workload.BULK, body_limit=4_096, oversized="offload")


@dataclass(frozen=True)
class Report:
    id: str
    lines: list[str]


with isolated():

    @job("reports.render", queue=REPORTS, key="id")
    def render(report: Report, ctx: JobContext) -> None: ...


RENDER, LARGE = render, Report("r1", ["x" * 5_000])


@pytest.fixture
def bucket(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> str:
    """The environment's bucket and a queue that offloads, known to this process and its workers."""
    name = f"payloads-{aws.urls['billing'].split('/')[-2]}"
    boto3.client("s3").create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    for queue in ("reports", "reports-dlq"):
        aws.queue(queue)
    monkeypatch.setenv(names.queue_url_key("reports"), aws.urls["reports"])
    monkeypatch.setenv(names.PAYLOADS, name)
    monkeypatch.setattr(Aws, "environment", _with_bucket(Aws.environment, name))
    return name


def _with_bucket(environment: Any, name: str) -> Any:
    return lambda self, queue: environment(self, queue) | {names.PAYLOADS: name}


def keys(bucket: str) -> list[str]:
    return [each["Key"] for each in boto3.client("s3").list_objects_v2(Bucket=bucket).get("Contents", [])]


def test_a_large_payload_goes_through_s3_to_its_job(aws: Aws, bucket: str) -> None:
    sent = enqueue(RENDER, LARGE)
    event = aws.receive("reports")
    ref = json.loads(event["Records"][0]["body"])["payload_ref"]
    assert keys(bucket) == [f"payloads/reports/{ref['sha256']}"]
    stored = boto3.client("s3").get_object(Bucket=bucket, Key=keys(bucket)[0])
    data = stored["Body"].read()
    assert (stored["ContentType"], len(data)) == ("application/json", ref["size"])
    assert hashlib.sha256(data).hexdigest() == ref["sha256"]
    assert digest(parse(data)) == ref["sha256"][:32]
    assert failed(aws.handler(RENDER, queue="reports")(event, Context())) == []
    record = aws.item(f"reports.render#{sent.key}")
    assert record is not None
    assert record["status"] == {"S": "COMPLETED"}


def test_an_explicit_producer_stores_with_its_own_session(aws: Aws, bucket: str) -> None:
    ssm = boto3.client("ssm")
    ssm.put_parameter(Name="/loomjobs/prod/foundation/payloads/name", Value=bucket, Type="String")
    ssm.put_parameter(Name="/loomjobs/prod/queues/reports/url", Value=aws.urls["reports"], Type="String")
    Producer("prod", session=boto3.session.Session()).enqueue(RENDER, LARGE)
    assert len(keys(bucket)) == 1


def test_an_object_that_is_gone_is_a_dead_letter_with_the_same_body(aws: Aws, bucket: str) -> None:
    enqueue(RENDER, LARGE)
    boto3.client("s3").delete_object(Bucket=bucket, Key=keys(bucket)[0])
    event = aws.receive("reports")
    assert failed(aws.handler(RENDER, queue="reports")(event, Context())) == []
    (letter,) = aws.receive("reports-dlq")["Records"]
    assert letter["body"] == event["Records"][0]["body"]
    assert json.loads(letter["messageAttributes"]["loom"]["stringValue"])["reason"] == "payload-missing"


def test_a_worker_without_the_bucket_says_what_to_declare() -> None:
    with pytest.raises(ConfigurationError, match='declared with oversized="offload"'):
        Places({names.QUEUE: "billing"}).payloads()


# -- S3's errors ------------------------------------------------------------------------------------
class Client:
    """boto3's S3 client, which answers with an error, or with a body that breaks off."""

    def __init__(self, error: Exception | None = None, body: bytes = b"", *, length: int | None = None) -> None:
        self.error, self.body, self.length = error, body, length
        self.asked: list[dict[str, Any]] = []

    def put_object(self, **asked: Any) -> None:
        self.asked.append(asked)
        if self.error is not None:
            raise self.error

    def get_object(self, **asked: Any) -> Any:
        self.put_object(**asked)
        return {"Body": StreamingBody(io.BytesIO(self.body), self.length or len(self.body))}


def s3(client: Client) -> S3Payloads:
    return S3Payloads(lambda: client, lambda: "b")  # type: ignore[arg-type, return-value]


def answer(code: str, status: int) -> ClientError:
    told: Any = {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(told, "GetObject")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (answer("NoSuchKey", 404), PayloadMissing),
        (answer("404", 404), PayloadMissing),
        (answer("AccessDenied", 403), PayloadForbidden),
        (answer("AllAccessDisabled", 403), PayloadForbidden),
        (answer("KMS.AccessDeniedException", 403), PayloadForbidden),
        (answer("InvalidAccessKeyId", 403), PayloadForbidden),
        (answer("ExpiredToken", 403), PayloadUnavailable),
        (answer("ExpiredToken", 400), PayloadUnavailable),
        (answer("SlowDown", 503), PayloadUnavailable),
        (answer("InternalError", 500), PayloadUnavailable),
        (answer("BadDigest", 400), PayloadUnavailable),
        (answer("NoSuchBucket", 404), ConfigurationError),
        (ConnectTimeoutError(endpoint_url="u"), PayloadUnavailable),
        (ReadTimeoutError(endpoint_url="u"), PayloadUnavailable),
        (EndpointConnectionError(endpoint_url="u"), PayloadUnavailable),
    ],
)
def test_missing_forbidden_and_unavailable_are_told_apart(error: Exception, kind: type[LoomjobsError]) -> None:
    with pytest.raises(kind):
        s3(Client(error)).get("k", most=1)
    with pytest.raises(kind):
        s3(Client(error)).put("k", b"x")


def test_an_object_that_lies_about_its_size_is_not_read_to_its_end() -> None:
    client = Client(body=b"x" * 10_000)
    assert s3(client).get("payloads/q/k", most=11) == b"x" * 11
    assert client.asked == [{"Bucket": "b", "Key": "payloads/q/k"}]


def test_a_body_that_breaks_off_is_read_again_another_time() -> None:
    with pytest.raises(PayloadUnavailable):
        s3(Client(body=b"x" * 10, length=20)).get("k", most=21)


def test_s3_compares_what_arrives_with_its_checksum() -> None:
    client = Client()
    s3(client).put("k", b"x")
    checksum = base64.b64encode(hashlib.sha256(b"x").digest()).decode()
    assert client.asked[0]["ChecksumSHA256"] == checksum
    assert "ACL" not in client.asked[0]


# -- one-off schedules --------------------------------------------------------------------------------
def test_a_call_is_not_moved_beyond_what_its_payload_is_kept_for() -> None:
    now = datetime.now(UTC)
    one = call(RENDER, LARGE, delay=timedelta(days=2))
    body = address(one, id="i", now=now, origin=Origin()).body

    class Scheduler:
        exceptions = boto3.client("scheduler").exceptions

        def get_schedule(self, **_: str) -> Any:
            return {
                "Name": "send-reports-i",
                "ScheduleExpression": "at(2026-01-01T00:00:00)",
                "Target": {"Input": body},
            }

    waiting = Scheduled(lambda key: key, scheduler=Scheduler(), sqs=None)
    with pytest.raises(LoomjobsError, match="kept for calls that are due by"):
        waiting.move("reports-i", now + timedelta(days=31))
    assert "payload_ref" in json.loads(moved(body, now))


# -- the page -----------------------------------------------------------------------------------------
def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def declared() -> Any:
    known: dict[str, Any] = {name: getattr(loomjobs, name) for name in ("Queue", "Workload", "JobContext", "job")}
    known |= {"Report": Report, "enqueue": enqueue}
    with isolated():
        exec(blocks("python")[0], known)
    return known


def test_the_page_does_what_it_says(aws: Aws, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    known = declared()
    exec(blocks("python")[1], known)
    assert capsys.readouterr().out.splitlines()[-1] == "accepted"
    assert len(keys(bucket)) == 1
    assert failed(aws.handler(known["render"], queue="reports")(aws.receive("reports"), Context())) == []
    record = aws.item("reports.render#r1")
    assert record is not None
    assert record["data"] == {"S": "20000"}


def test_what_it_shows_for_other_languages_is_read_by_the_worker(aws: Aws, bucket: str, tmp_path: Path) -> None:
    (shown,) = blocks("shell")
    stand_in = 'aws() { if [ "$1" = s3 ]; then cat > object; printf %s "$4" > url; else printf %s "$6" > body; fi; }'
    given = {"BUCKET": bucket, "QUEUE_URL": "q", "PATH": os.environ["PATH"]}
    subprocess.run(["bash", "-ec", f"{stand_in}\n{shown}"], check=True, cwd=tmp_path, env=given)
    url, body = (tmp_path / "url").read_text(), (tmp_path / "body").read_text()
    key = url.removeprefix(f"s3://{bucket}/")
    boto3.client("s3").put_object(Bucket=bucket, Key=key, Body=(tmp_path / "object").read_bytes())
    aws.sqs.send_message(QueueUrl=aws.urls["reports"], MessageBody=body)
    render = declared()["render"]
    inline = call(render, Report("r2", ["one line"])).encoded
    assert digest(parse(inline)) == json.loads(body)["payload_ref"]["sha256"][:32]  # the same work
    assert failed(aws.handler(render, queue="reports")(aws.receive("reports"), Context())) == []
    record = aws.item("reports.render#r2")
    assert record is not None
    assert record["data"] == {"S": "1"}
