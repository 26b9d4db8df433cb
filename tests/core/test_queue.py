"""A queue's declaration: ranges, and relations between its fields."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from loomjobs.core.errors import DeclarationError
from loomjobs.core.queue import Queue, Workload


def queue(**options: Any) -> Queue:
    return Queue("billing", **{"workload": Workload.BULK} | options)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"max_workers": 1}, "max_workers=1 is outside 2 to 1,000"),
        ({"max_workers": 1_001}, "max_workers=1001 is outside"),
        ({"memory_mb": 64}, "memory_mb=64 is outside"),
        ({"job_timeout": timedelta(0)}, "job_timeout=0:00:00 is not a whole number"),
        ({"job_timeout": timedelta(milliseconds=1_500)}, "is not a whole number of seconds"),
        ({"batch_size": 0}, "batch_size=0 is outside"),
        ({"batch_size": 11}, "batch_size=11 needs a batch window"),
        ({"batch_size": 11, "fifo": True}, "batch_size=11 is outside 1 to 10"),
        ({"fifo": True, "batch_window": timedelta(seconds=1)}, "a FIFO queue has no batch window"),
        ({"batch_window": timedelta(seconds=301)}, "is not a whole number of seconds from 0 to 300"),
        ({"workload": "bulk"}, "workload='bulk' is not a Workload"),
        ({"max_workers": 2.5}, "max_workers=2.5 is outside"),
    ],
)
def test_an_impossible_option_is_refused_with_its_value(options: dict[str, Any], what: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        queue(**options)
    assert what in str(caught.value)


@pytest.mark.parametrize("name", ["", "Billing", "1st", "a_b", "x" * 41, "billing.fifo", "é"])
def test_a_name_that_aws_or_the_environment_cannot_carry_is_refused(name: str) -> None:
    with pytest.raises(DeclarationError, match="is not a queue name"):
        Queue(name, workload=Workload.BULK)


def test_all_problems_of_a_queue_are_reported_together() -> None:
    with pytest.raises(DeclarationError) as caught:
        queue(max_workers=1, memory_mb=1, batch_size=0)
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("lanes", [0, 101])
def test_side_by_side_runs_have_bounds(lanes: int) -> None:
    with pytest.raises(DeclarationError, match=f"parallel={lanes} is outside 1 to 100"):
        queue(parallel=lanes)


def test_a_larger_batch_goes_with_a_window() -> None:
    assert queue(batch_size=100, batch_window=timedelta(seconds=5)).batch_size == 100
