"""Our breaker's item is Powertools': a circuit named `~breaker#<service>` on the execution table has one state."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aws_lambda_powertools.utilities.circuit_breaker import (
    CircuitBreakerConfig,
    CircuitBreakerOpenError,
    CircuitState,
    circuit_breaker,
)
from aws_lambda_powertools.utilities.circuit_breaker.persistence import CircuitBreakerDynamoDBPersistence

from loomjobs.aws.store import DynamoStore
from loomjobs.core.breaker import HALF_OPEN, breaker_id
from loomjobs.core.uses import Service
from loomjobs.runtime.brakes import Admitted, Brakes, Result, Waits
from tests.aws.conftest import Aws
from tests.core.catalogue_fixture import declare
from tests.runtime.test_brakes import wanted

NAME = breaker_id("api")
JOB = declare("a.b", uses=[Service("api", breaker=True)])
CONFIG = CircuitBreakerConfig(failure_threshold=1, recovery_timeout=1, success_threshold=1, local_cache_max_age=0)


class Ours:
    """A worker of ours, some seconds from now."""

    def __init__(self, aws: Aws) -> None:
        self.ahead = timedelta(0)
        tokens = itertools.count()
        store = DynamoStore("executions", client=aws.dynamodb)
        self.brakes = Brakes(store, self.now, lambda: 0.1, lambda: f"t{next(tokens)}")

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def ask(self) -> Any:
        (answer,) = self.brakes.admit([wanted(JOB)])
        return answer

    def run(self, result: Result) -> None:
        answer = self.ask()
        assert isinstance(answer, Admitted)
        self.brakes.release(answer.hold, result)


@pytest.fixture
def theirs(aws: Aws) -> CircuitBreakerDynamoDBPersistence:
    layer = CircuitBreakerDynamoDBPersistence(table_name="executions", key_attr="id", boto3_client=aws.dynamodb)
    layer.configure(CONFIG, NAME)
    return layer


@pytest.fixture
def ours(aws: Aws) -> Ours:
    return Ours(aws)


def test_powertools_sees_our_circuit_open_and_close(ours: Ours, theirs: CircuitBreakerDynamoDBPersistence) -> None:
    assert theirs.get_state(NAME).state == CircuitState.CLOSED
    for _ in range(5):
        ours.run("failed-by-service")
    record = theirs.get_state(NAME)
    assert record.state == CircuitState.OPEN
    assert record.failure_count == 5
    assert record.opened_at == pytest.approx(ours.now().timestamp(), abs=5)

    ours.ahead = timedelta(seconds=31)
    probe = ours.ask()
    record = theirs.get_state(NAME)
    assert record.state == CircuitState.HALF_OPEN
    assert record.half_open_owner == probe.hold.owner
    assert record.probe_lease_expiry == pytest.approx(ours.now().timestamp() + 45, abs=5)
    ours.brakes.release(probe.hold, "succeeded")

    ours.run("succeeded")
    ours.run("succeeded")
    record = theirs.get_state(NAME)
    assert record.state == CircuitState.CLOSED
    assert (record.opened_at, record.half_open_owner, record.probe_lease_expiry) == (None, None, None)


def test_powertools_decorator_obeys_our_open_circuit(ours: Ours, theirs: CircuitBreakerDynamoDBPersistence) -> None:
    for _ in range(5):
        ours.run("failed-by-service")

    @circuit_breaker(name=NAME, persistence_store=theirs, config=CircuitBreakerConfig(local_cache_max_age=0))
    def call() -> None:
        raise AssertionError("an open circuit must not call")

    with pytest.raises(CircuitBreakerOpenError):
        call()


def test_we_obey_a_circuit_that_powertools_opened(ours: Ours, theirs: CircuitBreakerDynamoDBPersistence) -> None:
    theirs.save_open(NAME, failure_count=5, opened_at=int(ours.now().timestamp()))
    assert isinstance(ours.ask(), Waits)
    ours.ahead = timedelta(seconds=31)
    ours.run("failed-by-service")
    assert theirs.get_state(NAME).state == CircuitState.OPEN


def test_a_probe_of_either_keeps_the_others_out(ours: Ours, theirs: CircuitBreakerDynamoDBPersistence) -> None:
    opened = int(ours.now().timestamp()) - 60
    theirs.save_open(NAME, failure_count=5, opened_at=opened)
    assert theirs.try_acquire_half_open(NAME, "powertools", opened)
    assert isinstance(ours.ask(), Waits)
    theirs.save_reopen(NAME, opened)
    ours.ahead = timedelta(seconds=6)
    assert isinstance(ours.ask(), Admitted)
    assert not theirs.try_acquire_half_open(NAME, "powertools", opened)


def test_powertools_may_take_the_next_probe_and_close(ours: Ours, theirs: CircuitBreakerDynamoDBPersistence) -> None:
    """After a success of ours the lease is over at once, for their election too; their closing is ours."""
    opened = int(ours.now().timestamp()) - 60
    theirs.save_open(NAME, failure_count=5, opened_at=opened)
    ours.run("succeeded")
    assert theirs.get_state(NAME).state == CircuitState(HALF_OPEN)
    assert theirs.try_acquire_half_open(NAME, "powertools", opened)
    theirs.save_closed(NAME)
    ours.ahead = timedelta(seconds=6)
    ours.run("succeeded")
    assert ours.brakes.open_services() == frozenset()
