"""What the import contract is for, tried: declaring jobs needs neither boto3 nor Powertools nor CDK."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.architecture.imports import ROOT

HEAVY = ("boto3", "botocore", "aws_lambda_powertools", "aws_cdk", "cdk_nag", "pydantic", "rich", "pytest")

IMPORT_WITHOUT = """
import importlib, json, pkgutil, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ImportError(f"{{name}} is blocked", name=name)

sys.meta_path.insert(0, Blocked())
for name in {names}:
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(package, "__path__", ()), name + "."):
        importlib.import_module(found.name)
print(json.dumps(sorted(sys.modules)))
"""


def import_without(*blocked: str, names: list[str]) -> set[str]:
    """The modules loaded after importing `names` and all below them while `blocked` cannot be imported."""
    script = IMPORT_WITHOUT.format(blocked=set(blocked), names=names)
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT / "handlers", capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout))


def test_the_public_api_and_all_jobs_import_without_the_heavy_packages() -> None:
    loaded = import_without(*HEAVY, names=["loomjobs.core", "jobs"])
    ours = {module for module in loaded if module.startswith("jobs.")}
    files = {path for path in (ROOT / "handlers" / "jobs").rglob("*.py") if path.name != "__init__.py"}
    assert len(ours) >= len(files) > 0


def test_the_worker_of_one_queue_does_not_load_what_the_other_side_needs() -> None:
    loaded = import_without("aws_cdk", "pydantic", "rich", "pytest", names=["loomjobs.aws"])
    assert "loomjobs.aws.handler" in loaded
    assert not {
        module for module in loaded if module.startswith(("loomjobs.cli", "loomjobs.local", "loomjobs.testing"))
    }


def test_the_in_memory_side_imports_without_aws() -> None:
    loaded = import_without("boto3", "botocore", "aws_lambda_powertools", "aws_cdk", names=["loomjobs.local"])
    assert "loomjobs.runtime" in loaded


@pytest.mark.parametrize("name", ["boto3", "aws_cdk", "loomjobs.runtime"])
def test_the_root_alone_loads_no_transport(name: str) -> None:
    script = f"import sys, loomjobs; sys.exit({name!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT / "handlers").returncode == 0
