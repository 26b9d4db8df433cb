"""Where the embedded AWS is, and the environment in which a program talks to it and to nothing else."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from infra.emulator.tools import search_path

HOST: Final = "127.0.0.1"
ACCOUNT: Final = "000000000000"
REGION: Final = "us-east-1"

_QUIET: Final = {
    "CDK_DISABLE_CLI_TELEMETRY": "true",
    "CDK_DISABLE_VERSION_CHECK": "true",
    "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
    "NO_COLOR": "1",
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def endpoint(port: int) -> str:
    return f"http://{HOST}:{port}"


def client_environment(port: int, *, root: Path, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The whole environment for a child process: `base` (this process's) without its AWS settings, whose profile or
    region would win, and with those of the emulator."""
    inherited = os.environ if base is None else base
    kept = {name: value for name, value in inherited.items() if not name.startswith("AWS_")}
    return kept | _QUIET | _aws(port) | {"PATH": search_path(root, inherited.get("PATH", os.defpath))}


def _aws(port: int) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint(port),
        "AWS_ENDPOINT_URL_S3": endpoint(port),
        # Twelve digits as a key id are the account for MiniStack.
        "AWS_ACCESS_KEY_ID": ACCOUNT,
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
