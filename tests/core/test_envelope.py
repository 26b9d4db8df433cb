"""The envelope: what is rendered is read back, what is not one is refused with the member's name."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomjobs.core.envelope import Envelope, render, schema
from loomjobs.core.errors import BadEnvelope
from loomjobs.core.job_name import check_job_name
from loomjobs.local.queue import _ALLOWED

NOW = datetime(2026, 1, 31, 2, 0, 0, 123_456, tzinfo=UTC)
TRACE = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


@given(st.dictionaries(st.text(), st.none() | st.text() | st.integers(-(2**53), 2**53)), st.integers(0, 9))
def test_what_is_rendered_is_read_back_and_made_of_characters_that_sqs_takes(payload: Any, hops: int) -> None:
    clean = json.loads(json.dumps(payload).encode("utf-8", "replace").decode())
    try:
        encoded = json.dumps(clean, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        encoded, clean = b"{}", {}
    body = render(job="a.b", payload=encoded, id="i", key="k", enqueued_at=NOW, trace=TRACE, hops=hops)
    envelope = Envelope.parse(body)
    assert (envelope.payload, envelope.hops, envelope.trace) == (clean, hops, TRACE)
    assert envelope.enqueued_at == NOW.replace(microsecond=123_000)
    assert _ALLOWED.fullmatch(body)
    jsonschema.validate(json.loads(body), schema())


def test_job_and_payload_are_enough() -> None:
    envelope = Envelope.parse('{"job": "billing.write", "payload": {}}')
    assert (envelope.v, envelope.id, envelope.key, envelope.payload_version, envelope.hops) == (1, None, None, 1, 0)


def test_members_of_a_newer_release_are_ignored() -> None:
    assert Envelope.parse('{"job": "a.b", "payload": 1, "shiny": [1], "v": 2}').v == 2


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("", "not an envelope"),
        ("[]", "not a JSON object"),
        ("null", "not a JSON object"),
        ('{"payload": {}}', "'job' is missing"),
        ('{"job": "a.b"}', "'payload' is missing"),
        ('{"job": "removed_job", "payload": 1}', "not a job name"),
        ('{"job": 7, "payload": 1}', "not a job name"),
        ('{"job": "a.b", "payload": 1, "v": "1"}', "'v' is not a whole number"),
        ('{"job": "a.b", "payload": 1, "v": true}', "'v' is not a whole number"),
        ('{"job": "a.b", "payload": 1, "hops": -1}', "'hops' is not a whole number"),
        ('{"job": "a.b", "payload": 1, "payload_version": 0}', "'payload_version'"),
        ('{"job": "a.b", "payload": 1, "key": ""}', "'key' is not a non-empty text"),
        ('{"job": "a.b", "payload": 1, "key": 7}', "'key' is not a non-empty text"),
        ('{"job": "a.b", "payload": 1, "expires": "2026-01-01T00:00:00"}', "'expires' is not an RFC 3339"),
        ('{"job": "a.b", "payload": 1, "enqueued_at": 1}', "'enqueued_at' is not an RFC 3339"),
        ('{"job": "a.b", "job": "c.d", "payload": 1}', "stands twice"),
    ],
)
def test_what_is_no_envelope_is_refused_with_the_members_name(body: str, what: str) -> None:
    with pytest.raises(BadEnvelope, match=re.escape(what)):
        Envelope.parse(body)


@given(st.text() | st.from_regex(r'\{"job": ?"a\.b", ?"payload": ?.*\}'))
def test_no_body_raises_anything_but_bad_envelope(body: str) -> None:
    with suppress(BadEnvelope):
        Envelope.parse(body)


def test_an_instant_is_read_as_utc() -> None:
    envelope = Envelope.parse('{"job": "a.b", "payload": 1, "expires": "2026-01-01T02:00:00+02:00"}')
    assert envelope.expires == datetime(2026, 1, 1, tzinfo=UTC)


def test_the_published_schema_is_up_to_date() -> None:
    path = Path(__file__).parents[2] / "docs" / "envelope.schema.json"
    assert json.loads(path.read_text()) == schema(), "run: loomjobs schema > docs/envelope.schema.json"


def test_the_schema_is_a_schema_and_refuses_what_the_worker_refuses() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    for body in ({"job": "a.b"}, {"job": "x", "payload": 1}, {"job": "a.b", "payload": 1, "hops": -1}):
        assert not jsonschema.Draft202012Validator(schema()).is_valid(body)


@pytest.mark.parametrize("name", ["a.b", "billing.write-statement", "a.b.c9", "x" * 97 + ".ab"])
def test_a_dotted_name_is_a_job_name(name: str) -> None:
    assert check_job_name(name) is None


@pytest.mark.parametrize("name", ["a", "A.b", "a..b", "a.b ", "a_b.c", "1.b", "a.b\n", "x" * 98 + ".ab", None, 7])
def test_anything_else_is_not_and_gets_advice(name: object) -> None:
    assert "billing.post-statement" in (check_job_name(name) or "")
