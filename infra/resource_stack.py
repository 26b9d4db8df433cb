"""The stack of the team's own resources, as infra/resources.py provides them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import Stack
from constructs import Construct

from infra.carry import publish
from infra.provide import Provider
from infra.rights import Rights
from loomjobs.core.environment import Environment


class Resources(Stack):
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        providers: Mapping[str, Provider],
        **options: Any,
    ) -> None:
        super().__init__(scope, id, **options)
        self.rights = Rights(self, environment)
        for name, provider in sorted(providers.items()):
            made = provider(self, environment)
            publish(self, environment, "resources", name, "address", value=made.address)
            self.rights.record(name, made)
