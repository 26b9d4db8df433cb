"""What set-up installs is pinned by hash, comes from wherever the machine says, and is the same for everybody."""

from __future__ import annotations

import json
import re
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import aws_cdk
import pytest
from packaging.requirements import Requirement

from tests.architecture.imports import ROOT

LOCKS = sorted((ROOT / "locks").glob("*.txt"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SHARED = ("boto3", "botocore", "urllib3")
NPM_LOCK = json.loads((ROOT / "package-lock.json").read_text())


def pinned(lock: Path) -> dict[str, set[str]]:
    """Versions by package; two where they differ by Python version."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([a-z0-9-]+)==([^\s;]+)", lock.read_text(), re.MULTILINE):
        found.setdefault(name, set()).add(version)
    return found


def test_the_locks_are_those_that_set_up_the_asset_and_the_benchmarks_read() -> None:
    assert [lock.name for lock in LOCKS] == ["dev.txt", "node.txt", "peers.txt", "worker-encryption.txt", "worker.txt"]


def test_the_benchmarks_peers_have_the_boto3_that_ours_has() -> None:
    dev, peers = pinned(ROOT / "locks" / "dev.txt"), pinned(ROOT / "locks" / "peers.txt")
    assert [peers[name] for name in SHARED] == [dev[name] for name in SHARED]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_package_has_hashes_and_no_address(lock: Path) -> None:
    text = lock.read_text()
    packages = [line for line in text.splitlines() if not line.startswith("    --hash=sha256:")]
    assert packages
    assert [line for line in packages if not re.fullmatch(r"[a-z0-9-]+==\S+( ; .+)? \\", line)] == []
    assert "://" not in text


def test_every_npm_package_has_a_hash_and_no_address() -> None:
    packages = {path: entry for path, entry in NPM_LOCK["packages"].items() if path}
    assert packages
    assert [path for path, entry in packages.items() if "integrity" not in entry or "resolved" in entry] == []


def test_npm_versions_are_exact() -> None:
    wanted = json.loads((ROOT / "package.json").read_text())["devDependencies"]
    assert wanted == {name: NPM_LOCK["packages"][f"node_modules/{name}"]["version"] for name in wanted}


@pytest.mark.parametrize("name", ["worker.txt", "worker-encryption.txt"])
def test_the_asset_holds_the_versions_that_the_tests_ran_with(name: str) -> None:
    dev, worker = pinned(ROOT / "locks" / "dev.txt"), pinned(ROOT / "locks" / name)
    assert worker
    assert worker.items() <= dev.items()


def test_the_asset_with_encryption_is_the_other_and_more() -> None:
    plain, more = pinned(ROOT / "locks" / "worker.txt"), pinned(ROOT / "locks" / "worker-encryption.txt")
    assert plain.items() <= more.items()
    assert {"aws-encryption-sdk", "cryptography", "jsonpath-ng"} <= more.keys() - plain.keys()


def test_the_asset_holds_what_the_worker_and_the_jobs_declare() -> None:
    project, groups = PYPROJECT["project"], PYPROJECT["dependency-groups"]
    declared = [*project["dependencies"], *project["optional-dependencies"]["worker"], *groups["application"]]
    assert {Requirement(text).name for text in declared} <= pinned(ROOT / "locks" / "worker.txt").keys()


def test_cdk_json_has_every_recommended_flag() -> None:
    flags = json.loads((ROOT / "cdk.json").read_text())["context"]
    ours = {
        "@aws-cdk/core:enableAdditionalMetadataCollection": False,  # usage data
        "@aws-cdk/core:defaultCrossStackReferences": "strong",  # embedded AWS has no Fn::GetStackOutput
    }
    assert flags == recommended_flags() | ours


def recommended_flags() -> dict[str, Any]:
    """What `cdk init` of the installed library would write; the file is in its JavaScript bundle."""
    (bundle,) = (Path(aws_cdk.__file__).parent / "_jsii").glob("aws-cdk-lib@*.tgz")
    with tarfile.open(bundle) as archive:
        member = archive.extractfile("package/recommended-feature-flags.json")
        assert member
        return dict(json.load(member))
