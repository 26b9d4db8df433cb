"""What is taken out of an error's text before it travels with a dead letter."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomjobs.core.redact import SHORTEST, redact

SECRETS = {
    "password=hunter2 for x": "password=<redacted> for x",
    "db_password: 'it is' y": "db_password: <redacted> y",
    '{"apiKey": "a \\"b\\" c", "n": 1}': '{"apiKey": <redacted>, "n": 1}',
    '{\\"client_secret\\": \\"xyz\\"}': '{\\"client_secret\\": <redacted>}',
    "secret => abc, next": "secret => <redacted>, next",
    'token="cut off he': "token=<redacted>",
    "?X-Amz-Signature=0a1b&X-Amz-Date=1": "?X-Amz-Signature=<redacted>&X-Amz-Date=1",
    "Authorization: Bearer abc.def-g": "Authorization: <redacted>",
    "{'Authorization': 'Basic dXNlcjpwYXNz'}": "{'Authorization': '<redacted>'}",
    "sent Bearer abcdef123 twice": "sent Bearer <redacted> twice",
    "sent Basic dXNlcjpwYXNz twice": "sent Basic <redacted> twice",
    "key AKIAIOSFODNN7EXAMPLE was": "key <aws-key> was",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": "<aws-key>",
    "jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_x end": "jwt <token> end",
    "to bob.o'neil+x@mail.example.com, sorry": "to ***@mail.example.com, sorry",
    "to 'bob@example.com'": "to '***@example.com'",
    "to bob_smith@example.com": "to ***@example.com",
    "at https://user:pa55@host/x": "at https://<redacted>@host/x",
    "postgres://app:pa55@db:5432/x": "postgres://<redacted>@db:5432/x",
    "card 4111 1111 1111 1111 refused": "card <card> refused",
    "card 4111-1111-1111-1111 refused": "card <card> refused",
    "card 378282246310005": "card <card>",
    "card 3782 822463 10005": "card <card>",
    "card 6304000000000000 0": "card <card> 0",
    "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY----- after": "<private-key> after",
    "-----BEGIN PRIVATE KEY-----\nabc": "<private-key>",
}
PLAIN = [
    "HTTP 503 from https://api.example.com/v1/entries?id=7",
    "token expired",
    "basic understanding of Basic things",
    "at 1700000000000 ms, id 12345678-1234-1234-1234-123456789012",
    "commit da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "$.lines[3].total: expected int",
    "KeyError: 'customer_id' in 2026-01-01/c1",
    "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
    "import @dataclass or x @ y",
]


@pytest.mark.parametrize(("text", "expected"), SECRETS.items())
def test_what_looks_secret_is_masked(text: str, expected: str) -> None:
    assert redact(text) == expected


@pytest.mark.parametrize("text", PLAIN)
def test_what_helps_to_find_the_cause_stays(text: str) -> None:
    assert redact(text) == text


def test_the_payloads_texts_are_masked_by_the_name_of_their_member_wherever_they_stand() -> None:
    payload = {"name": "Alice Cooper", "lines": [{"note": "buy a pony"}], "city": "Bonn", "total": 123456}
    text = "Alice Cooper (x-Alice Cooper-y) wants: buy a pony in Bonn for 123456"
    assert redact(text, payload) == "<name> (x-<name>-y) wants: <lines> in Bonn for 123456"


def test_parts_of_the_key_stay_readable() -> None:
    payload = {"customer_id": "customer-1", "path": "a/b%c/d", "name": "customer-1 & sons"}
    text = "customer-1 a/b%c/d customer-1 & sons"
    assert redact(text, payload, key="customer-1/a%2Fb%25c%2Fd") == "customer-1 a/b%c/d <name>"
    assert redact(text, payload) == "<customer_id> <path> <name>"


def test_a_value_is_found_as_messages_quote_it() -> None:
    value = 'say "é"\n\\twice'
    for text in (repr(value), json.dumps(value), json.dumps(value, ensure_ascii=False), f"'{value}'"):
        assert redact(text, {"said": value})[1:-1] == "<said>"


def test_a_value_that_the_end_of_the_text_cuts_is_masked_too() -> None:
    assert redact("refused: Alice Coo", {"name": "Alice Cooper"}) == "refused: <name>"
    assert redact("refused: Alice", {"name": "Alice Cooper"}) == "refused: Alice"


def test_the_longest_value_wins() -> None:
    assert redact("abcdefghij", {"short": "abcdef", "long": "abcdefghij"}) == "<long>"


def test_a_member_whose_name_is_data_is_not_named() -> None:
    assert redact("see secret-thing", {"alice@example.com": "secret-thing"}) == "see <payload>"
    assert redact("see secret-thing", ["secret-thing"]) == "see <payload>"
    assert redact("see secret-thing", "secret-thing") == "see <payload>"


def test_an_object_within_angle_brackets_is_no_placeholder() -> None:
    assert redact("<hunter22>", {"name": "hunter22"}) == "<<name>>"


words = st.sampled_from(
    ["alice1", "password", "<name>", "name", "=", ": ", "@example.com", "4111", " ", '"', "'", "\\"]
)
texts = st.one_of(st.text(max_size=60), st.lists(words, max_size=12).map("".join))
payloads = st.recursive(
    st.one_of(texts, st.none(), st.booleans(), st.integers(), st.floats()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(words, st.text(max_size=8)), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(texts, payloads, texts)
def test_redacting_twice_is_redacting_once(text: str, payload: Any, key: str) -> None:
    once = redact(text, payload, key=key)
    assert redact(once, payload, key=key) == once


@given(st.text(min_size=SHORTEST), st.text(), st.text())
def test_no_value_of_the_payload_survives(value: str, before: str, after: str) -> None:
    left = redact(before + value + after, {"f": value})
    assert value not in left or value in before + "<f>" + after


@pytest.mark.parametrize("payload", [object(), {1: {2: object()}}, [[b"bytes"]], float("nan")])
def test_whatever_the_payload_is_it_does_not_raise(payload: object) -> None:
    assert redact("text", payload) == "text"


def test_what_cannot_be_redacted_is_left_out() -> None:
    class Odd(dict[str, str]):
        def items(self) -> Any:
            raise RuntimeError

    assert redact("secret text", Odd()) == "(left out: it could not be redacted)"
    assert redact("secret text", ["x"] * 200_001).startswith("(left out")


def test_a_deep_payload_is_walked() -> None:
    deep: Any = "the-value"
    for _ in range(5_000):
        deep = [deep]
    assert redact("the-value", {"deep": deep}) == "<deep>"


@pytest.mark.parametrize(
    "junk", ["a", "a.", "1 ", "\\", '"', "@", "a@", "a-", "://", ":", "eyJ", "aA1/", "1111-", 'password=\\"', "Bearer "]
)
def test_no_text_makes_it_slow(junk: str) -> None:
    started = time.perf_counter()
    redact(junk * 20_000, {"many": [f"value-{n}" for n in range(20_000)]})
    assert time.perf_counter() - started < 2
