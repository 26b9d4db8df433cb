"""The root of the package is its table of contents."""

from __future__ import annotations

import pytest

import loomjobs

PUBLIC = """
EACH_ENQUEUE Admit BadKey BadPayload Batch BatchStatus Call Cancelled CipherUnavailable ConfigurationError Continue
DeclarationError Defer Encrypted EnqueueError Enqueued InvalidOption Job JobContext Key KeyPart LoomjobsError
MissedRuns NotAvailableYet NotSent Overlap PayloadTooLarge Permanent Producer Queue QueueFull Rate Reading Rejected
Report Resource Retry Secret Sensitive Service Setting Signal Status Tick Transient UndeclaredSend UnknownOutcome Use
When Workload aenqueue aenqueue_many batch_status call cancel correlation cron enqueue enqueue_many every job masked
outbox_item rerun schedule status tombstone wait
""".split()


def test_the_public_names_are_these_and_each_is_there() -> None:
    assert sorted(loomjobs.__all__) == sorted(PUBLIC)
    for name in PUBLIC:
        assert getattr(loomjobs, name) is not None


def test_every_public_name_says_what_it_is() -> None:
    undocumented = [name for name in PUBLIC if not (getattr(loomjobs, name).__doc__ or "").strip()]
    assert undocumented == []


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_like_this"):
        loomjobs.nothing_like_this  # type: ignore[attr-defined]  # noqa: B018
