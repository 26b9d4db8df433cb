"""What travels between stacks: texts in SSM Parameter Store, never exports.

An export cannot be deleted while another stack imports it, so removing a `uses`, a job or a queue would fail half-way.
A parameter is read when the reading stack is deployed, and nothing hinders its removal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aws_cdk import Fn, Stack, Token
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from loomjobs.core import names
from loomjobs.core.environment import Environment
from loomjobs.core.plan import Parameter, Value


def publish(scope: Construct, environment: Environment, *path: str, value: str) -> None:
    """Make `value` known to other stacks under `/app/env/path`."""
    name = names.parameter(environment.app, environment.name, *path)
    ssm.StringParameter(scope, "Parameter" + name, parameter_name=name, string_value=value)


def take(scope: Construct, environment: Environment, *path: str) -> str:
    """The value of another stack, read when the stack of `scope` is deployed."""
    return taken(scope, Parameter(names.parameter(environment.app, environment.name, *path)))


def taken(scope: Construct, value: Value) -> str:
    """A value of the Plan: literal, or another stack's."""
    if isinstance(value, str):
        return value
    return ssm.StringParameter.value_for_string_parameter(Stack.of(scope), value.path)


def leaves(node: Any) -> list[tuple[str, str, Any]]:
    """The references to resources inside a resolved statement: logical id, attribute (`Ref` for the id), node."""
    if isinstance(node, list):
        return [leaf for each in node for leaf in leaves(each)]
    if not isinstance(node, dict):
        return []
    if set(node) == {"Ref"}:
        return [] if node["Ref"].startswith("AWS::") else [(node["Ref"], "Ref", node)]
    if set(node) == {"Fn::GetAtt"}:
        logical, attribute = node["Fn::GetAtt"]
        return [(logical, attribute, node)]
    return [leaf for each in node.values() for leaf in leaves(each)]


def rebuilt(node: Any, read: Callable[[str, str], str]) -> Any:
    """The statement with each reference replaced by what `read(logical id, attribute)` gives, as plain texts."""
    if isinstance(node, list):
        return [rebuilt(each, read) for each in node]
    if not isinstance(node, dict):
        return node
    found = leaves(node)
    if found and node is found[0][2]:
        return read(*found[0][:2])
    if set(node) == {"Ref"}:
        return Fn.ref(node["Ref"])
    if set(node) == {"Fn::Join"}:
        separator, parts = node["Fn::Join"]
        return separator.join(rebuilt(part, read) for part in parts)
    if any(key.startswith("Fn::") for key in node):
        return Token.as_string({key: rebuilt(value, read) for key, value in node.items()})
    return {key: rebuilt(value, read) for key, value in node.items()}
