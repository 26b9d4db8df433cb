"""`loomjobs schema`: JSON Schemas for producers in other languages."""

from __future__ import annotations

import argparse
import json
from typing import Any

import msgspec

from loomjobs.cli.project import catalogue, find
from loomjobs.core.envelope import schema as envelope_schema
from loomjobs.core.payload_type import is_pydantic


def add(commands: Any) -> None:
    schemas = commands.add_parser("schema", help="JSON Schema of the envelope, or of a job's payload")
    schemas.add_argument("job", nargs="?")
    schemas.set_defaults(run=schema)


def schema(given: argparse.Namespace) -> int:
    print(json.dumps(envelope_schema() if given.job is None else _payload(given.job), indent=2))
    return 0


def _payload(name: str) -> dict[str, Any]:
    payload_type: Any = find(name, catalogue()).payload_type
    made: dict[str, Any] = (
        payload_type.model_json_schema() if is_pydantic(payload_type) else msgspec.json.schema(payload_type)
    )
    return made
