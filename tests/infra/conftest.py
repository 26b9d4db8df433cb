"""Templates of an environment, synthesized once for all tests: jsii is slow to start."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App

from infra.application import compose
from infra.environments import ENVIRONMENTS
from infra.provide import provided
from infra.worker import Code
from loomjobs.core.catalogue import Catalogue, load
from loomjobs.core.environment import Environment
from loomjobs.core.plan import Plan


@dataclass(frozen=True)
class Synthesized:
    """`templates` by stack name, and the Plan that they render."""

    plan: Plan
    templates: Mapping[str, Any]

    def resources(self, kind: str) -> Iterator[tuple[str, str, Any]]:
        """Stack, logical id and properties of every resource of a type."""
        for stack, template in self.templates.items():
            for logical, resource in template.get("Resources", {}).items():
                if resource["Type"] == kind:
                    yield stack, logical, resource.get("Properties", {})


Synthesize = Callable[..., Synthesized]


@pytest.fixture(scope="session")
def code(tmp_path_factory: pytest.TempPathFactory) -> Code:
    """A stand-in for the asset, which has tests of its own."""
    folder = tmp_path_factory.mktemp("asset")
    (folder / "worker.py").write_text("handler = None\n")
    return Code(str(folder), "0" * 64)


@pytest.fixture(scope="session")
def synthesize(code: Code, tmp_path_factory: pytest.TempPathFactory) -> Synthesize:
    """Compose a catalogue in an environment, without the validation that `make check` runs on the real one."""

    def run(catalogue: Catalogue, environment: Environment, providers: Mapping[str, Any]) -> Synthesized:
        context = {"@aws-cdk/core:defaultCrossStackReferences": "strong"}
        app = App(outdir=str(tmp_path_factory.mktemp("out")), context=context, analytics_reporting=False)
        plan = compose(app, environment, catalogue, providers=providers, code=code)
        assembly = app.synth()
        return Synthesized(plan, {stack.stack_name: stack.template for stack in assembly.stacks})

    return run


@pytest.fixture(scope="session")
def reference(synthesize: Synthesize) -> Callable[[str], Synthesized]:
    """The reference application in an environment."""

    @cache
    def of(environment: str) -> Synthesized:
        importlib.import_module("infra.resources")
        return synthesize(load("jobs"), ENVIRONMENTS[environment], provided())

    return of


@pytest.fixture(scope="session")
def prod(reference: Callable[[str], Synthesized]) -> Synthesized:
    return reference("prod")


ROOT = Path(__file__).parents[2]
