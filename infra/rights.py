"""Rights on the team's resources: recorded where a resource is made, granted on the role of the worker that uses it."""

from __future__ import annotations

from typing import Any

import jsii
from aws_cdk import Stack
from aws_cdk import aws_iam as iam

from infra.carry import leaves, publish, rebuilt, take
from infra.nag import accept
from infra.provide import Actions, Provided, Right
from loomjobs.core.environment import Environment


@jsii.implements(iam.IPrincipal)
class Recorder:
    """A principal that only keeps what it is granted."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.statements: list[iam.PolicyStatement] = []

    @property
    def grant_principal(self) -> iam.IPrincipal:
        return self

    @property
    def assume_role_action(self) -> str:
        return "sts:AssumeRole"

    @property
    def policy_fragment(self) -> iam.PrincipalPolicyFragment:
        return iam.ArnPrincipal("*").policy_fragment

    @property
    def principal_account(self) -> str | None:
        return None

    def add_to_policy(self, statement: iam.PolicyStatement) -> bool:
        self.statements.append(statement)
        return True

    def add_to_principal_policy(self, statement: iam.PolicyStatement) -> iam.AddToPrincipalPolicyResult:
        self.statements.append(statement)
        return iam.AddToPrincipalPolicyResult(statement_added=True, policy_dependable=self._stack)


class Rights:
    """The statements of every resource and verb, with their references published by the stack that owns them."""

    def __init__(self, stack: Stack, environment: Environment) -> None:
        self._stack = stack
        self._environment = environment
        self._statements: dict[tuple[str, str], list[Any]] = {}
        self._wildcards: dict[tuple[str, str], list[tuple[str, Any]]] = {}
        self._published: set[tuple[str, str, str]] = set()

    def record(self, name: str, provided: Provided) -> None:
        for verb, right in provided.rights.items():
            statements = [self._stack.resolve(each.to_statement_json()) for each in _statements(right, self._stack)]
            self._statements[name, verb] = statements
            self._wildcards[name, verb] = _wildcards(right, statements)
            for logical, attribute, node in leaves(statements):
                if (name, logical, attribute) not in self._published:
                    self._published.add((name, logical, attribute))
                    publish(self._stack, self._environment, *_path(name, logical, attribute), value=_text(node))

    def grant(self, role: iam.Role, name: str, verb: str) -> None:
        """Add to `role`, in its own stack, what using `name` in this way needs."""

        def read(logical: str, attribute: str) -> str:
            return take(role, self._environment, *_path(name, logical, attribute))

        for statement in self._statements[name, verb]:
            role.add_to_policy(iam.PolicyStatement.from_json(rebuilt(statement, read)))
        for reason, resource in self._wildcards[name, verb]:
            accept(role, f"AwsSolutions-IAM5[Resource::{shown(role, rebuilt(resource, read))}]", reason)

    def verbs(self, name: str) -> list[str]:
        return [verb for resource, verb in self._statements if resource == name]


def _statements(right: Right, stack: Stack) -> list[iam.PolicyStatement]:
    if isinstance(right, Actions):
        return [
            iam.PolicyStatement(actions=list(right.actions), resources=[right.on], conditions=dict(right.conditions))
        ]
    recorder = Recorder(stack)
    right(recorder)
    return recorder.statements


def _wildcards(right: Right, statements: list[Any]) -> list[tuple[str, Any]]:
    """The resources with a reasoned wildcard; one without a reason stays a finding of cdk-nag."""
    if not isinstance(right, Actions) or not right.wildcard:
        return []
    return [(right.wildcard, statement["Resource"]) for statement in statements]


def shown(role: iam.Role, resource: str) -> str:
    """A resource as cdk-nag writes it: references in angle brackets."""
    resolved = Stack.of(role).resolve(resource)
    parts = resolved["Fn::Join"][1] if isinstance(resolved, dict) and "Fn::Join" in resolved else [resolved]
    return "".join(part if isinstance(part, str) else f"<{part['Ref']}>" for part in parts)


def _path(name: str, logical: str, attribute: str) -> tuple[str, ...]:
    return "resources", name, "refs", f"{logical}.{attribute}"


def _text(node: Any) -> str:
    from aws_cdk import Token

    return Token.as_string(node)
