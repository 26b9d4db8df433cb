"""Sensitive values are found in a text however they were written into it."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomjobs.core.failure import failure_of
from loomjobs.core.redact import SHORTEST, scrub

HARD = 'Zoë "Q" O\'Neil\\\n\t☃ & 100%'


@pytest.mark.parametrize(
    "text",
    [HARD, repr(HARD), json.dumps(HARD), json.dumps(HARD, ensure_ascii=False), json.dumps(json.dumps(HARD)),
     quote(HARD), urlencode({"q": HARD}), f"{{'{HARD}': 1}}", repr({HARD: 1}), repr(KeyError(HARD))],
)  # fmt: skip
def test_a_value_is_found_as_it_was_quoted(text: str) -> None:
    left = scrub(f"before {text} after", [("name", HARD)])
    assert "<name>" in left
    assert "Neil" not in left
    assert left.startswith("before ")
    assert left.endswith(" after")


@pytest.mark.parametrize(
    ("value", "text", "left"),
    [
        ("1234", "pin 1234, x1234, 12345, 1.1234, line 12", "pin <f>, x1234, 12345, 1.1234, line 12"),
        ("1234", "'\\n1234' \\u001b1234 a%3A1234 pin-1234 (1234)", "'\\n<f>' \\u001b<f> a%3A<f> pin-<f> (<f>)"),
        ("12", "12 and 12", "12 and 12"),
        ("", "nothing", "nothing"),
        (7, "7 of 7", "7 of 7"),
        (1234567, "1234567, 1,234,567 and 12345678", "<f>, <f> and <f>8"),
        (-1.5, "at -1.5 or 1.5", "at <f> or 1.5"),
        ("1980-02-01", f"{date(1980, 2, 1)!r} {date(1980, 2, 1)}", "<f> <f>"),
        (
            "1980-02-01T03:00:00Z",
            f"{datetime(1980, 2, 1, 3, tzinfo=UTC)} {datetime(1980, 2, 1, 3, tzinfo=UTC)!r}",
            "<f> <f>",
        ),
        ("abc", "<f> abc", "<f> <f>"),
    ],
)
def test_a_short_value_is_masked_where_it_stands_alone(value: Any, text: str, left: str) -> None:
    assert scrub(text, [("f", value)]) == left


@given(st.text(min_size=SHORTEST), st.text(), st.text())
def test_no_value_survives_and_scrubbing_twice_is_scrubbing_once(value: str, before: str, after: str) -> None:
    left = scrub(before + value + after, [("f", value)])
    assert value not in left or value in before + "<f>" + after
    assert scrub(left, [("f", value)]) == left


@pytest.mark.parametrize("secrets", [[("f", object())], [("f", None)], None, [1]])
def test_what_cannot_be_scrubbed_is_left_out(secrets: Any) -> None:
    assert scrub("text", secrets) == "(left out: it could not be redacted)"


def test_the_end_of_a_value_that_a_cut_left_is_not_shown() -> None:
    long = "x" * 30_000
    assert scrub(long + "y" * 20_000, [("f", long)]) == "(left out: it could not be redacted)"


def chained() -> BaseException:
    try:
        try:
            raise KeyError("hunter2")
        except KeyError as first:
            first.add_note("said hunter2")
            raise ValueError("no hunter2 here") from first
    except ValueError as second:
        try:
            raise RuntimeError("outer")
        except RuntimeError as third:
            return ExceptionGroup("many", [third, second, ValueError("line one\nhunter2\nend")])


@pytest.mark.parametrize("secret", ["hunter2", "line one\nhunter2\nend"])
def test_causes_contexts_notes_and_groups_are_scrubbed(secret: str) -> None:
    failure = failure_of(chained(), secrets=[("pin", secret), ("pin", "hunter2")])
    assert "hunter2" not in failure.message + failure.stack
    assert "<pin>" in failure.stack


def test_a_value_across_the_cut_of_a_stack_or_message_leaves_nothing() -> None:
    secret = "0123456789" * 50
    for pad in range(0, 600, 7):
        failure = failure_of(ValueError("." * 980 + secret + "." * (3_500 + pad)), secrets=[("f", secret)])
        assert "456789" not in failure.message + failure.stack
