"""The asset: what is in it, that it repeats to the byte, and what is said when it cannot be built."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from infra import asset as building
from infra.asset import AssetError, Target, build

FILES = {
    "handlers/worker.py": "import loomjobs.core\n",
    "handlers/loomjobs/__init__.py": "",
    "handlers/loomjobs/core/__init__.py": "VALUE = 1\n",
    "handlers/loomjobs/cli/__init__.py": "",
    "handlers/loomjobs/cli/main.py": "print()\n",
    "handlers/loomjobs/local/__init__.py": "",
    "handlers/loomjobs/testing.py": "import pytest\n",
    "handlers/jobs/__init__.py": "",
    "handlers/jobs/notes.txt": "not code",
    "handlers/jobs/write.py": "X = 1\n",
    "handlers/loomjobs/DESIGN.md": "prose",
    "locks/worker.txt": "# nothing\n",
}
PACKAGES = {
    "botocore/__init__.py": "",
    "botocore/data/endpoints.json": "{}",
    "botocore/data/sqs/2012-11-05/service-2.json.gz": "x",
    "botocore/data/ec2/2016-11-15/service-2.json.gz": "x",
    "thing/__init__.py": "",
    "thing/tests/test_it.py": "",
    "thing/__pycache__/x.pyc": "",
    "thing/stub.pyi": "",
    "thing-1.0.dist-info/METADATA": "Name: thing",
    "thing-1.0.dist-info/RECORD": "",
    "bin/tool": "",
}


def lay(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project, whose packages come from a folder instead of an index."""

    def install(target: Target, lock: Path, folder: Path) -> None:
        lay(folder, PACKAGES)

    monkeypatch.setattr(building, "_install", install)
    return lay(tmp_path / "project", FILES)


def names(path: Path) -> set[str]:
    found = {str(each.relative_to(path)) for each in path.rglob("*") if each.is_file()}
    return {name for name in found if "__pycache__" not in name}


def content(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def test_what_encrypted_fields_need_is_in_it_only_where_they_are(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locks: list[str] = []

    def install(target: Target, lock: Path, folder: Path) -> None:
        locks.append(lock.name)
        lay(folder, PACKAGES)

    monkeypatch.setattr(building, "_install", install)
    lay(root, {"locks/worker-encryption.txt": "# more"})
    plain, encrypting = build(Target.host(), root=root), build(Target.host(), root=root, encrypts=True)
    assert locks == ["worker.txt", "worker-encryption.txt"]
    assert plain.digest != encrypting.digest


def test_it_holds_what_a_worker_needs_and_nothing_else(root: Path) -> None:
    assert names(build(Target.host(), root=root).path) == {
        "worker.py",
        "loomjobs/__init__.py",
        "loomjobs/core/__init__.py",
        "jobs/__init__.py",
        "jobs/write.py",
        "botocore/__init__.py",
        "botocore/data/endpoints.json",
        "botocore/data/sqs/2012-11-05/service-2.json.gz",
        "thing/__init__.py",
        "thing-1.0.dist-info/METADATA",
    }


def test_it_keeps_the_data_of_every_service_that_the_library_has_a_client_for() -> None:
    source = (Path(__file__).parents[2] / "handlers" / "loomjobs" / "aws" / "clients.py").read_text()
    asked = set(re.findall(r'_client\("(\w+)"\)', source))
    assert {"sqs", "dynamodb", "scheduler", "lambda"} <= asked
    assert asked <= set(building.SERVICES)


def test_two_builds_are_the_same_to_the_byte(root: Path, tmp_path: Path) -> None:
    first = build(Target.host(), root=root, into=tmp_path / "one")
    for each in root.rglob("*"):
        os.utime(each, (1, 1))
    other = lay(tmp_path / "elsewhere" / "project", FILES)
    before = os.umask(0o077)
    try:
        second = build(Target.host(), root=other, into=tmp_path / "two")
    finally:
        os.umask(before)
    assert first.digest == second.digest
    assert content(first.path) == content(second.path)


def test_bytecode_is_valid_without_looking_at_the_source_and_names_lambdas_paths(root: Path) -> None:
    path = build(Target.host(), root=root).path
    (compiled,) = (path / "jobs" / "__pycache__").glob("write.*.pyc")
    data = compiled.read_bytes()
    assert int.from_bytes(data[4:8], "little") == 0b01  # hash-based, unchecked: PEP 552
    assert b"/var/task/jobs/write.py" in data
    assert str(root).encode() not in data


def test_another_source_is_another_asset_and_the_packages_are_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build(Target.host(), root=root)
    monkeypatch.setattr(building, "_install", _never)
    assert build(Target.host(), root=root) == first
    (root / "handlers" / "jobs" / "write.py").write_text("X = 2\n")
    assert build(Target.host(), root=root).digest != first.digest


def _never(*_: object) -> None:
    raise AssertionError("the packages were installed again")


def test_without_an_interpreter_of_the_target_it_is_built_and_says_what_that_costs(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOOMJOBS_PYTHON", raising=False)
    made = build(Target("3.99", "arm64"), root=root)
    assert not list(made.path.rglob("*.pyc"))
    (warning,) = made.warnings
    assert "no Python 3.99 on this machine" in warning
    assert "LOOMJOBS_PYTHON" in warning


def test_an_interpreter_of_another_version_is_not_used(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOMJOBS_PYTHON", sys.executable)
    assert build(Target("3.99", "arm64"), root=root).warnings


def test_an_asset_over_lambdas_limit_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.asset.limits.LAMBDA_UNZIPPED_BYTES", 10)
    with pytest.raises(AssetError, match="Lambda takes 10"):
        build(Target.host(), root=root)


def test_a_package_that_cannot_be_installed_is_named_with_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    project = lay(tmp_path, FILES | {"locks/worker.txt": "no-such-package==1.0 --hash=sha256:" + "0" * 64 + "\n"})
    with pytest.raises(AssetError, match=r"for Python 3\.13 on arm64") as caught:
        building._install(Target("3.13", "arm64"), project / "locks" / "worker.txt", tmp_path / "into")
    assert "no-such-package" in str(caught.value)
    assert not list(tmp_path.glob("into/*"))


@pytest.mark.slow
def test_the_real_asset_starts_a_worker_from_itself_alone(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    path = build(Target.host(), root=root, into=tmp_path).path
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(path),
        "AWS_DEFAULT_REGION": "eu-west-1",
        "LOOMJOBS_QUEUE": "billing",
        "LOOMJOBS_MODULES": "jobs.close_month,jobs.close_page,jobs.write_statement",
        "LOOMJOBS_TABLE": "t",
        "LOOMJOBS_SOURCE_URL": "https://q",
        "LOOMJOBS_DLQ_URL": "https://d",
        "LOOMJOBS_RECORD_TTL": "86400",
        "LOOMJOBS_RECEIVES": "200",
        "POWERTOOLS_SERVICE_NAME": "x",
        "POWERTOOLS_METRICS_NAMESPACE": "x",
    }
    code = "import sys, worker; print(worker.handler({'Records': []}, None), 'pytest' in sys.modules, worker.__file__)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("{'batchItemFailures': []} False ")
    assert str(path) in done.stdout


@pytest.mark.slow
def test_the_real_asset_for_lambda_holds_wheels_of_its_architecture(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    made = build(Target("3.13", "arm64"), root=root, into=tmp_path)
    libraries = [each.name for each in made.path.rglob("*.so")]
    assert libraries
    assert not [name for name in libraries if "x86_64" in name or "cpython-311" in name]
    assert not list(made.path.glob("loomjobs/cli"))
