"""The brakes on DynamoDB: their writes mean there what they mean in memory."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from loomjobs.aws.store import DynamoStore
from loomjobs.core.uses import Rate, Service
from loomjobs.runtime.brakes import Admitted, Brakes, Slotted, Waits
from tests.aws.conftest import Aws
from tests.core.catalogue_fixture import declare
from tests.runtime.test_brakes import wanted

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MS = int(NOW.timestamp() * 1000)


@pytest.fixture
def brakes(aws: Aws) -> Brakes:
    tokens = itertools.count()
    store = DynamoStore("executions", client=aws.dynamodb)
    return Brakes(store, lambda: NOW, lambda: 0.5, lambda: f"t{next(tokens)}")


def test_slots_are_reserved_in_one_item(aws: Aws, brakes: Brakes) -> None:
    job = declare("a.b", uses=[Service("api", rate=Rate(60, per=timedelta(minutes=1)))])
    first = brakes.admit([wanted(job) for _ in range(3)])
    second = brakes.admit([wanted(job) for _ in range(2)])
    assert isinstance(first[0], Admitted)
    slots = [answer.at_ms - MS for answer in [*first[1:], *second] if isinstance(answer, Slotted)]
    assert slots == [1_000, 2_000, 3_000, 4_000]
    stored = aws.item("~rate#service#api")
    assert stored is not None
    assert stored["next"] == {"N": str((MS + 5_000) * 1000)}
    assert int(stored["expiration"]["N"]) > MS // 1000
    assert not brakes.troubles


def test_a_lock_is_taken_renewed_and_freed(aws: Aws, brakes: Brakes) -> None:
    job = declare("a.b", exclusive="customer_id")
    first, second = brakes.admit([wanted(job), wanted(job)])
    assert isinstance(first, Admitted)
    assert isinstance(second, Waits)
    assert brakes.renew(first.hold)
    brakes.release(first.hold, "succeeded")
    (third,) = brakes.admit([wanted(job)])
    assert isinstance(third, Admitted)
    stored = aws.item("~lock#a.b#c1")
    assert stored is not None
    assert stored["owner"] == {"S": third.hold.owner}
    assert not brakes.troubles
