"""What `cdk synth` runs: load, check, build the asset, compose."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from aws_cdk import Annotations, App

from infra.application import compose
from infra.asset import Target, build
from infra.environments import ENVIRONMENTS
from infra.provide import provided
from infra.worker import Code
from loomjobs.core.catalogue import load
from loomjobs.core.check import check
from loomjobs.core.environment import Environment
from loomjobs.core.plan import make_plan

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Synthesize the environment named by `-c env=`; exits with 1 and every problem when there is one."""
    app = App()
    environment = chosen(app.node.try_get_context("env"))
    importlib.import_module("infra.resources")
    catalogue = load("jobs")
    problems = check(catalogue, list(ENVIRONMENTS.values()), provided=provided().keys())
    for problem in problems:
        print(f"{problem.severity}: {problem}", file=sys.stderr)
    if any(problem.severity == "error" for problem in problems):
        sys.exit(1)
    asset = build(_target(environment), root=ROOT, encrypts=make_plan(catalogue, environment).has_key)
    compose(app, environment, catalogue, providers=provided(), code=Code(str(asset.path), asset.digest))
    for warning in asset.warnings:
        Annotations.of(app).add_warning_v2("loomjobs:asset", warning)
    app.synth()


def chosen(name: object) -> Environment:
    """The environment of this name; exits, listing those that there are, for any other."""
    environment = ENVIRONMENTS.get(name) if isinstance(name, str) else None
    if environment is None:
        known = ", ".join(ENVIRONMENTS)
        asked = f"There is no environment {name!r}." if name else "Which environment?"
        sys.exit(f"{asked} Say -c env=NAME with one of: {known} (infra/environments.py).")
    return environment


def _target(environment: Environment) -> Target:
    if environment.architecture == "host":
        return Target.host()
    return Target(python=environment.python, architecture=environment.architecture)
