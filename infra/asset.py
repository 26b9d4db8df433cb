"""The Lambda asset, built without Docker: our code by an allow-list, wheels for the target, valid bytecode."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from loomjobs.core import limits

SERVICES: Final = (
    "cloudwatch",
    "dynamodb",
    "kms",
    "lambda",
    "s3",
    "scheduler",
    "secretsmanager",
    "sesv2",
    "sqs",
    "ssm",
    "sts",
)
"""Whose botocore data is kept; the other 400 services are 40 MB and cost every cold start a directory walk."""
LEFT_OUT: Final = ("cli", "local", "sql", "testing.py")
"""Parts of the library that no worker imports."""
_KEPT_DATA: Final = ("endpoints.json", "partitions.json", "sdk-default-configuration.json", "_retry.json")


@dataclass(frozen=True, slots=True)
class Target:
    """The Lambda runtime: Python's minor version, and `arm64` or `x86_64`."""

    python: str
    architecture: str

    @classmethod
    def host(cls) -> Target:
        """This interpreter on this machine: what an embedded AWS runs."""
        machine = "arm64" if platform.machine() in ("arm64", "aarch64") else "x86_64"
        return cls(f"{sys.version_info.major}.{sys.version_info.minor}", machine)

    @property
    def platforms(self) -> list[str]:
        wheel = "aarch64" if self.architecture == "arm64" else "x86_64"
        return [f"manylinux_2_28_{wheel}", f"manylinux_2_17_{wheel}", f"manylinux2014_{wheel}"]


@dataclass(frozen=True, slots=True)
class Asset:
    """A folder, the digest of its content, and what should be said at synth."""

    path: Path
    digest: str
    size: int
    warnings: tuple[str, ...] = ()


class AssetError(Exception):
    """The asset cannot be built; the text says why and what to do."""


def build(target: Target, *, root: Path, into: Path | None = None, encrypts: bool = False) -> Asset:
    """The asset for `target`; packages come from a cache as long as their lock does not change. `encrypts` adds what
    encrypted payload fields need, which is larger than all the rest of the library's packages."""
    cache = into or root / ".build" / "asset"
    packages = _packages(target, root / "locks" / ("worker-encryption.txt" if encrypts else "worker.txt"), cache)
    own = _own_files(root / "handlers")
    inputs = hashlib.sha256(packages.name.encode())
    for name, source in own:
        inputs.update(name.encode() + b"\0" + source.read_bytes() + b"\0")
    compiler = _interpreter(target)
    inputs.update(b"compiled" if compiler else b"sources only")
    path = cache / f"asset-{inputs.hexdigest()[:24]}"
    if not path.exists():
        _assemble(path, packages, own, compiler)
    size = sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    if size > limits.LAMBDA_UNZIPPED_BYTES:
        raise AssetError(
            f"the asset has {size:,} bytes; Lambda takes {limits.LAMBDA_UNZIPPED_BYTES:,}. Drop a package."
        )
    return Asset(path, inputs.hexdigest(), size, _warnings(target, compiler))


def _warnings(target: Target, compiler: str | None) -> tuple[str, ...]:
    if compiler is not None:
        return ()
    text = (
        f"no Python {target.python} on this machine, so the asset ships without bytecode and cold starts take about "
        f"twice as long. Put python{target.python} on PATH, or set LOOMJOBS_PYTHON to it."
    )
    return (text,)


def _own_files(handlers: Path) -> list[tuple[str, Path]]:
    entries = [*handlers.glob("*.py"), *(handlers / "jobs").rglob("*.py"), *(handlers / "loomjobs").rglob("*.py")]
    named = sorted((str(each.relative_to(handlers)), each) for each in entries)
    left_out = tuple(f"loomjobs/{part}" for part in LEFT_OUT)
    return [(name, each) for name, each in named if not name.startswith(left_out)]


def _packages(target: Target, lock: Path, cache: Path) -> Path:
    """Installed once per lock and target."""
    text = lock.read_bytes() + f"{target}{SERVICES}".encode()
    folder = cache / f"packages-{hashlib.sha256(text).hexdigest()[:24]}"
    if not folder.exists():
        scratch = folder.with_suffix(f".{os.getpid()}")
        shutil.rmtree(scratch, ignore_errors=True)
        _install(target, lock, scratch)
        _prune(scratch)
        scratch.rename(folder)
    return folder


def _install(target: Target, lock: Path, folder: Path) -> None:
    tag = target.python.replace(".", "")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--require-hashes", "--only-binary", ":all:", "--no-compile", "--no-deps", "--target", str(folder)]
    if target != Target.host():
        command += ["--python-version", target.python, "--implementation", "cp", "--abi", f"cp{tag}", "--abi", "abi3"]
        command += ["--abi", "none"]
        for each in [*target.platforms, "any"]:
            command += ["--platform", each]
    done = subprocess.run([*command, "-r", str(lock)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssetError(
            f"the packages of {lock.name} cannot be installed for Python {target.python} on {target.architecture}:\n"
            f"{done.stderr.strip()}\nA package without a wheel for it needs another version, or must go."
        )


def _prune(folder: Path) -> None:
    """Only what runs: no tests, stubs or installers' records, and botocore's data of the services used."""
    data = folder / "botocore" / "data"
    for each in data.iterdir() if data.exists() else ():
        if each.is_dir() and each.name not in SERVICES:
            shutil.rmtree(each)
        elif each.is_file() and each.name not in _KEPT_DATA:
            each.unlink()
    for each in sorted(folder.rglob("*"), reverse=True):
        if each.is_dir() and each.name in ("tests", "__pycache__", "bin"):
            shutil.rmtree(each)
        elif each.suffix in (".pyi", ".pyc") or each.name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json"):
            each.unlink(missing_ok=True)


def _assemble(path: Path, packages: Path, own: list[tuple[str, Path]], compiler: str | None) -> None:
    scratch = path.with_suffix(f".{os.getpid()}")
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(packages, scratch)
    for name, source in own:
        (scratch / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, scratch / name)
    if compiler is not None:
        _compile(scratch, compiler)
    scratch.rename(path)


def _compile(folder: Path, compiler: str) -> None:
    """Unchecked-hash bytecode: it stays valid whatever the zip does to file times. Paths inside are Lambda's."""
    command = [compiler, "-I", "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    command += ["-s", str(folder), "-p", "/var/task", str(folder)]
    subprocess.run(command, check=True, capture_output=True, env={"PYTHONHASHSEED": "0", "PATH": os.environ["PATH"]})


def _interpreter(target: Target) -> str | None:
    """A Python of exactly the target's minor version: this one, one named by a setting, or one on PATH."""
    if target.python == Target.host().python:
        return sys.executable
    for candidate in (os.environ.get("LOOMJOBS_PYTHON"), shutil.which(f"python{target.python}")):
        if candidate and _version(candidate) == target.python:
            return candidate
    return None


def _version(interpreter: str) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([interpreter, "-I", "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()
