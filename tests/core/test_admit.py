"""The policy of a full queue: what is refused when it is declared, and all of it at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from loomjobs import Admit, Queue, Workload
from loomjobs.core.errors import DeclarationError

MINUTE = timedelta(minutes=1)


def admit(**options: Any) -> Admit:
    return Admit(**{"depth": 100, "on_error": "open"} | options)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"depth": None}, "neither depth= nor age= is given"),
        ({"depth": 0}, "depth=0 is not a whole number above 0"),
        ({"depth": True}, "depth=True is not"),
        ({"depth": 10.5}, "depth=10.5 is not"),
        ({"age": timedelta(seconds=59)}, "is not a timedelta from one minute to below"),
        ({"age": timedelta(days=7)}, "below the queue's retention, 7 days"),
        ({"age": 600}, "age=600 is not a timedelta"),
        ({"full": "drop"}, "full='drop' is neither 'reject' nor 'delay'"),
        ({"full": "delay"}, "delay=None and full='delay' do not go together"),
        ({"delay": MINUTE}, "full='reject' do not go together"),
        ({"full": "delay", "delay": 16 * MINUTE}, "is not a timedelta of whole seconds from 1 to 900"),
        ({"full": "delay", "delay": timedelta(0)}, "is not a timedelta of whole seconds from 1 to 900"),
        ({"full": "delay", "delay": timedelta(milliseconds=1_500)}, "is not a timedelta of whole seconds"),
        ({"full": "delay", "delay": 60}, "delay=60 is not a timedelta"),
        ({"refresh": timedelta(milliseconds=999)}, "is not a timedelta from 1 second to 5 minutes"),
        ({"refresh": 6 * MINUTE}, "is not a timedelta from 1 second to 5 minutes"),
        ({"on_error": "raise"}, "on_error='raise' is neither 'open' nor 'closed'"),
    ],
)
def test_an_impossible_policy_is_refused_with_its_value(options: dict[str, Any], what: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        admit(**options)
    assert what in str(caught.value)


def test_all_problems_of_a_policy_are_reported_together() -> None:
    with pytest.raises(DeclarationError) as caught:
        Admit(full="delay", refresh=timedelta(0), on_error="sometimes")  # type: ignore[arg-type]
    assert len(caught.value.problems) == 4


def test_what_follows_from_an_unknown_depth_has_to_be_said() -> None:
    with pytest.raises(TypeError, match="on_error"):
        Admit(depth=1)  # type: ignore[call-arg]


def test_a_fifo_queue_cannot_delay() -> None:
    delaying = admit(full="delay", delay=MINUTE)
    assert Queue("billing", workload=Workload.BULK, admit=delaying).admit is delaying
    with pytest.raises(DeclarationError, match="a FIFO queue cannot delay when it is full"):
        Queue("billing", workload=Workload.BULK, fifo=True, admit=delaying)
    assert Queue("billing", workload=Workload.BULK, fifo=True, admit=admit()).admit == admit()


def test_a_queue_takes_a_policy_and_nothing_like_one() -> None:
    with pytest.raises(DeclarationError, match="admit=10000 is not an Admit"):
        Queue("billing", workload=Workload.BULK, admit=10_000)  # type: ignore[arg-type]


def test_it_says_what_it_does() -> None:
    assert str(admit(depth=10_000)) == "reject from 10,000 messages; open where that is not known"
    both = Admit(depth=5, age=30 * MINUTE, full="delay", delay=MINUTE, on_error="closed")
    assert str(both) == "delay by 0:01:00 from 5 messages or 0:30:00 old; closed where that is not known"
