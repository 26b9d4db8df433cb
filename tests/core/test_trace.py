"""Trace contexts of W3C and X-Ray, each from the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomjobs.core.trace import is_traceparent, is_xray, of_span, of_xray, to_xray, trace_id

W3C = "00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01"
XRAY = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"


def test_each_is_made_of_the_other() -> None:
    assert (of_xray(XRAY), to_xray(W3C)) == (W3C, XRAY)
    assert trace_id(W3C) == "5759e988bd862e3fe1be46a994272793"


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.integers(0, 255))
def test_any_span_s_trace_survives_x_ray_with_its_ids_and_its_sampling(trace: int, span: int, flags: int) -> None:
    made = of_span(trace, span, flags)
    assert is_traceparent(made)
    header = to_xray(made)
    assert header is not None
    assert of_xray(header) == of_span(trace, span, flags & 1)


@pytest.mark.parametrize(
    ("header", "flags"),
    [
        (XRAY + ";Lineage=a87bd80c:1|68fd508a:5", "01"),
        (XRAY.replace("Sampled=1", "Sampled=0"), "00"),
        (XRAY.replace("Sampled=1", "Sampled=?"), "00"),
        ("Sampled=1; Parent=53995C3F42CD8AD8 ;Root=1-5759E988-BD862E3FE1BE46A994272793", "01"),
        (XRAY.removesuffix(";Sampled=1"), "00"),
    ],
)
def test_a_header_is_read_in_any_order_and_with_members_of_others(header: str, flags: str) -> None:
    assert of_xray(header) == W3C[:-2] + flags


@pytest.mark.parametrize(
    "beside", ["Root=1-1-2;Lineage=a87bd80c:1|68fd508a:5", "Lineage=a87bd80c:1|68fd508a:5 ;Self=x"]
)
def test_the_lineage_of_the_sender_is_kept_since_lambda_counts_hops_by_it(beside: str) -> None:
    assert to_xray(W3C, beside=beside) == XRAY + ";Lineage=a87bd80c:1|68fd508a:5"


@pytest.mark.parametrize("beside", ["", "Lineage=", "Lineage=\n", "xLineage=1:2", "Lineage=a b", "Root=1"])
def test_what_is_no_lineage_is_left_out(beside: str) -> None:
    assert to_xray(W3C, beside=beside) == XRAY


def test_a_header_without_a_parent_is_no_trace_to_go_on_with() -> None:
    assert of_xray("Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1") is None


@pytest.mark.parametrize(
    "header",
    ["", ";", "=", "Root", "Root=2-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8", "Root=1-x-y", W3C]
    + [XRAY.replace("53995c3f42cd8ad8", parent) for parent in ("", "0" * 16, "53995c3f", "\ud800")],
)
def test_what_is_no_header_is_said(header: str) -> None:
    with pytest.raises(ValueError, match=r"no trace header|no parent"):
        of_xray(header)
    assert not is_xray(header)


@pytest.mark.parametrize(
    "text",
    ["", W3C + "-x", W3C.upper(), "ff" + W3C[2:], W3C + "\n", "00-" + "0" * 32 + W3C[35:], W3C[:36] + "0" * 16 + "-01"],
)
def test_what_is_no_traceparent_makes_no_header(text: str) -> None:
    assert not is_traceparent(text)
    assert to_xray(text) is None
