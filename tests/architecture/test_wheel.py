"""The distribution: the library and nothing else, light for producers, typed, with its command and its plugin."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from tests.architecture.imports import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    place = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(place)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = place.glob("*.whl")
    return ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel: ZipFile) -> Message:
    return Parser().parsestr(_read(wheel, "METADATA"))


def _read(wheel: ZipFile, name: str) -> str:
    (path,) = (path for path in wheel.namelist() if path.endswith(f".dist-info/{name}"))
    return wheel.read(path).decode()


def test_it_holds_the_library_and_nothing_else(wheel: ZipFile) -> None:
    tops = {path.partition("/")[0] for path in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"loomjobs"}


def test_it_holds_every_source_of_the_library(wheel: ZipFile) -> None:
    package = ROOT / "handlers" / "loomjobs"
    sources = {path.relative_to(package.parent).as_posix() for path in package.rglob("*.py")}
    assert sources
    assert sources <= set(wheel.namelist())
    assert "loomjobs/py.typed" in wheel.namelist()
    assert not [path for path in wheel.namelist() if path.endswith(".pyc")]


def test_a_producer_needs_two_packages(metadata: Message) -> None:
    assert _requirements(metadata, extra="") == {"boto3", "msgspec"}


@pytest.mark.parametrize(
    ("extra", "packages"),
    [
        ("worker", {"aws-lambda-powertools"}),
        ("infra", {"aws-cdk-lib", "cdk-nag", "constructs"}),
        ("cli", set()),
        ("local", {"ministack", "psutil"}),
        ("sql", {"psycopg"}),
    ],
)
def test_the_rest_is_extra(metadata: Message, extra: str, packages: set[str]) -> None:
    assert _requirements(metadata, extra=extra) == packages


def _requirements(metadata: Message, *, extra: str) -> set[str]:
    found = [Requirement(text) for text in _all(metadata, "Requires-Dist")]
    if not extra:
        return {each.name for each in found if each.marker is None}
    return {each.name for each in found if each.marker and each.marker.evaluate({"extra": extra})}


def _all(metadata: Message, header: str) -> Sequence[str]:
    return metadata.get_all(header) or ()


def test_it_brings_the_command_and_the_pytest_plugin(wheel: ZipFile) -> None:
    lines = _read(wheel, "entry_points.txt").split("\n")
    assert "loomjobs = loomjobs.cli.main:main" in lines
    assert "loomjobs = loomjobs.testing" in lines[lines.index("[pytest11]") :]


def test_it_carries_its_licence(wheel: ZipFile, metadata: Message) -> None:
    assert metadata["License-Expression"] == "MIT"
    assert _read(wheel, "licenses/LICENSE").startswith("MIT License")


def test_a_producer_imports_it_without_the_extras(wheel: ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path)
    blocked = ["aws_lambda_powertools", "aws_cdk", "rich", "ministack", "pytest", "jobs", "infra"]
    script = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked})); sys.path.insert(0, {str(tmp_path)!r});"
        "import loomjobs; from loomjobs import enqueue, enqueue_many; import loomjobs.aws.connect;"
        "print(loomjobs.__file__)"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).is_relative_to(tmp_path)
