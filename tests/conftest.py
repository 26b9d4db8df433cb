"""Every test starts from the same environment, and none reaches anything outside this machine."""

from __future__ import annotations

import ipaddress
import itertools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from hypothesis import settings

from infra.emulator import Emulator, start

settings.register_profile("untimed", deadline=None)  # a test says what is right, not how fast
settings.load_profile("untimed")

SCRUBBED = ("AWS_", "POWERTOOLS_", "LOOMJOBS_", "CDK_", "TZ")
DUMMIES = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "CDK_DISABLE_CLI_TELEMETRY": "true",
    # Not UTC: code that takes the local time for UTC fails here, and not first on somebody's laptop.
    "TZ": "<+0545>-05:45",
}
GUARDED = {"socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo"}


class OutsideThisMachine(Exception):
    """A test tried to reach a network address that is not a loopback one."""


def scrub_environment() -> None:
    for name in [name for name in os.environ if name.startswith(SCRUBBED)]:
        del os.environ[name]
    os.environ.update(DUMMIES)
    # What set-up brought: a node that is new enough for CDK, cdk, pyright.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    time.tzset()


def refuse_outside_addresses(event: str, arguments: tuple[object, ...]) -> None:
    """An audit hook, not a patch: it also sees what a library does through a saved reference."""
    if event not in GUARDED:
        return
    host = arguments[0] if event == "socket.getaddrinfo" else _host(arguments[1])
    if isinstance(host, str | bytes) and not _is_loopback(host):
        raise OutsideThisMachine(f"{event} {host!r}: tests may only use loopback addresses")


def _host(address: object) -> object:
    """The host of an (host, port, ...) address; None for a Unix socket, whose address is a path."""
    return address[0] if isinstance(address, tuple) else None


def _is_loopback(host: str | bytes) -> bool:
    name = host.decode() if isinstance(host, bytes) else host
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


scrub_environment()
sys.addaudithook(refuse_outside_addresses)


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """The embedded AWS, for tests of the adapters that need what moto does not do (PartiQL, streams)."""
    with start(tmp_path_factory.mktemp("embedded")) as running:
        yield running


_accounts = itertools.count(100_000_000_000)


@pytest.fixture
def account(embedded: Emulator, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty AWS account on it, which the test's clients use."""
    number = str(next(_accounts))
    monkeypatch.setenv("AWS_ENDPOINT_URL", embedded.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", number)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps the credentials of the first client
    return number
