"""PartiQL as DynamoDB documents it: an UPDATE repeats SET for each attribute, and MiniStack wants them after one."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

_NEXT_SET = re.compile(r'=\s*\?\s+SET\s+(?=")')


def correct() -> None:
    dynamodb: Any = import_module("ministack.services.dynamodb")
    stock = dynamodb._parse_partiql_update

    def parse(statement: str, parameters: Any) -> Any:
        return stock(_NEXT_SET.sub("=?, ", statement), parameters)

    dynamodb._parse_partiql_update = parse
