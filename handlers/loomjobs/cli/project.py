"""The project around the command: its folder, jobs, environments and provided resources."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from loomjobs.core.catalogue import Catalogue, load
from loomjobs.core.environment import Environment
from loomjobs.core.errors import LoomjobsError
from loomjobs.core.job import Job
from loomjobs.core.problem import nearest


class NoProject(LoomjobsError):
    """The command needs a project and was run outside of one."""


@cache
def root() -> Path:
    """The folder with handlers/jobs, here or above; its folders become importable."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "handlers" / "jobs").is_dir():
            for each in (folder / "handlers", folder):
                if str(each) not in sys.path:
                    sys.path.insert(0, str(each))
            return folder
    raise NoProject(f"{here} is not inside a project: no handlers/jobs here or above")


def catalogue() -> Catalogue:
    """The project's jobs, with the problems of loading them."""
    root()
    return load("jobs")


def environments() -> Mapping[str, Environment]:
    """infra/environments.py; empty for a project without one."""
    if not (root() / "infra" / "environments.py").exists():
        return {}
    found: Mapping[str, Environment] = importlib.import_module("infra.environments").ENVIRONMENTS
    return found


def environment(name: str) -> Environment:
    known = environments()
    if name not in known:
        raise LoomjobsError(f"there is no environment {name!r}. {nearest(name, known)}Known: {', '.join(known)}")
    return known[name]


def provided() -> tuple[str, ...] | None:
    """Names that infra/resources.py provides; None where CDK is not installed, so that this cannot be known."""
    if not (root() / "infra" / "resources.py").exists():
        return ()
    try:
        importlib.import_module("infra.resources")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] in ("aws_cdk", "jsii", "constructs"):
            return None
        raise
    return tuple(importlib.import_module("infra.provide").provided())


def find(name: str, among: Catalogue) -> Job[Any, Any]:
    job = among.find(name)
    if job is None:
        known = [each.name for each in among.jobs]
        raise LoomjobsError(f"there is no job {name!r}. {nearest(name, known)}Known: {', '.join(known) or 'none'}")
    return job
