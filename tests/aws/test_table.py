"""The execution table as a Powertools persistence layer: its decorators get the fence."""

from __future__ import annotations

import time
from typing import Any

import pytest
from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyAlreadyInProgressError,
    IdempotencyKeyError,
    IdempotencyPersistenceLayerError,
    IdempotencyValidationError,
)

from loomjobs.aws.expressions import update_arguments
from loomjobs.aws.table import ExecutionTable
from loomjobs.core.errors import ConfigurationError, StoreUnavailable
from loomjobs.core.write import Absent, AllOf, AnyOf, Is, OneOf, Write
from tests.aws.conftest import Aws, Context


def guarded(table: ExecutionTable, function: Any, **options: Any) -> Any:
    config = IdempotencyConfig(event_key_jmespath="id", lambda_context=Context(), **options)  # type: ignore[arg-type]
    return idempotent_function(
        function, data_keyword_argument="order", persistence_store=table, config=config, key_prefix="charge"
    )


@pytest.fixture
def table(aws: Aws) -> ExecutionTable:
    return ExecutionTable("executions", client=aws.dynamodb)


def test_a_powertools_function_runs_once_and_replays_its_result(table: ExecutionTable) -> None:
    runs: list[int] = []

    def charge(order: dict[str, Any]) -> dict[str, int]:
        runs.append(1)
        return {"paid": order["id"]}

    step = guarded(table, charge)
    assert [step(order={"id": 7}) for _ in range(2)] == [{"paid": 7}, {"paid": 7}]
    assert len(runs) == 1


def test_a_failure_updates_the_record_and_the_next_call_runs(aws: Aws, table: ExecutionTable) -> None:
    outcomes = iter([ValueError("first"), None])

    def charge(order: dict[str, Any]) -> str:
        error = next(outcomes)
        if error:
            raise error
        return "ok"

    step = guarded(table, charge)
    with pytest.raises(ValueError, match="first"):
        step(order={"id": 7})
    (item,) = aws.dynamodb.scan(TableName="executions")["Items"]
    assert (item["status"]["S"], item["n"]["N"]) == ("WAITING", "1")
    assert step(order={"id": 7}) == "ok"


def test_a_nested_call_keeps_two_separate_records(aws: Aws, table: ExecutionTable) -> None:
    inner = idempotent_function(
        lambda step: {"inner": step["id"]},
        data_keyword_argument="step",
        persistence_store=ExecutionTable("executions", client=aws.dynamodb),
        config=IdempotencyConfig(event_key_jmespath="id", lambda_context=Context()),  # type: ignore[arg-type]
        key_prefix="inner",
    )
    outer = guarded(table, lambda order: {"outer": inner(step={"id": order["id"]})})
    assert [outer(order={"id": 1}) for _ in range(2)] == [{"outer": {"inner": 1}}] * 2
    assert inner(step={"id": 1}) == {"inner": 1}


def test_another_call_while_one_runs_is_refused(table: ExecutionTable) -> None:
    def charge(order: dict[str, Any]) -> None:
        with pytest.raises(IdempotencyAlreadyInProgressError):
            step(order=order)

    step = guarded(table, charge)
    step(order={"id": 7})


def test_the_same_key_with_another_payload_is_refused(table: ExecutionTable) -> None:
    step = guarded(table, lambda order: "ok", payload_validation_jmespath="amount")
    step(order={"id": 7, "amount": 1})
    with pytest.raises(IdempotencyValidationError):
        step(order={"id": 7, "amount": 2})


def test_a_late_finisher_does_not_overwrite_the_new_owner(aws: Aws, table: ExecutionTable) -> None:
    def charge(order: dict[str, Any]) -> str:
        aws.dynamodb.update_item(
            TableName="executions",
            Key={"id": {"S": key_of(aws)}},
            UpdateExpression="SET #o = :other",
            ExpressionAttributeNames={"#o": "owner"},
            ExpressionAttributeValues={":other": {"S": "somebody else"}},
        )
        return "late"

    with pytest.raises(IdempotencyPersistenceLayerError):
        guarded(table, charge)(order={"id": 7})
    (item,) = aws.dynamodb.scan(TableName="executions")["Items"]
    assert (item["status"]["S"], item["owner"]["S"], "data" in item) == ("INPROGRESS", "somebody else", False)


def test_an_expired_record_that_is_still_there_does_not_block(aws: Aws, table: ExecutionTable) -> None:
    step = guarded(table, lambda order: time.time())
    first = step(order={"id": 7})
    aws.dynamodb.update_item(
        TableName="executions",
        Key={"id": {"S": key_of(aws)}},
        UpdateExpression="SET expiration = :past",
        ExpressionAttributeValues={":past": {"N": str(int(time.time()) - 1)}},
    )
    assert step(order={"id": 7}) > first


def test_without_a_table_the_store_is_unavailable(aws: Aws) -> None:
    table = ExecutionTable("missing", client=aws.dynamodb)
    with pytest.raises(StoreUnavailable, match="ResourceNotFoundException"):
        table.read("x")
    with pytest.raises(StoreUnavailable, match="table missing"):
        table.write(Write(id="x", condition=Absent("id"), sets={"a": 1}))


def test_expressions_use_placeholders_for_every_name_and_value() -> None:
    condition = AnyOf(Absent("id"), AllOf(OneOf("status", ("A", "B")), Is("n", "<=", 3)))
    write = Write(
        id="x", condition=condition, sets={"status": "C"}, absent_sets={"n": 0}, adds={"epoch": 1}, removes=("nb",)
    )
    rendered = update_arguments(write)
    assert rendered["UpdateExpression"] == (
        "SET #status = :v0, #n = if_not_exists(#n, :v1), #epoch = if_not_exists(#epoch, :v2) + :v3 REMOVE #nb"
    )
    assert rendered["ConditionExpression"] == "(attribute_not_exists(#id) OR (#status IN (:v4, :v5) AND #n <= :v6))"
    assert rendered["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"


def key_of(aws: Aws) -> str:
    (item,) = aws.dynamodb.scan(TableName="executions")["Items"]
    return str(item["id"]["S"])


def test_one_table_object_serves_one_function(table: ExecutionTable) -> None:
    """Powertools would ignore the second function's key, and suppress different work."""
    config = IdempotencyConfig(event_key_jmespath="order", lambda_context=Context())  # type: ignore[arg-type]

    @idempotent_function(data_keyword_argument="data", persistence_store=table, config=config)
    def first(data: Any) -> None: ...

    @idempotent_function(
        data_keyword_argument="data",
        persistence_store=table,
        config=IdempotencyConfig(event_key_jmespath="customer"),
    )
    def second(data: Any) -> None: ...

    first(data={"order": "1"})
    with pytest.raises(ConfigurationError, match="make another one"):
        second(data={"customer": "1"})


@pytest.mark.parametrize("data", [{"tenant": "a"}, {"tenant": "a", "order": ""}, {"tenant": "a", "order": None}, {}])
def test_a_key_with_a_missing_part_is_an_error_and_never_merged(table: ExecutionTable, data: Any) -> None:
    config = IdempotencyConfig(event_key_jmespath="[tenant, order]", lambda_context=Context())  # type: ignore[arg-type]

    @idempotent_function(data_keyword_argument="data", persistence_store=table, config=config)
    def run(data: Any) -> None: ...

    with pytest.raises(IdempotencyKeyError):
        run(data=data)
    run(data={"tenant": "a", "order": "0"})
