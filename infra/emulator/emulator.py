"""Start, use and stop the embedded AWS."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final

from infra.emulator import server as process
from infra.emulator.address import client_environment, endpoint, free_port
from infra.emulator.deployment import deploy
from infra.emulator.errors import EmulatorError
from infra.emulator.server import Server

ROOT: Final = Path(__file__).resolve().parents[2]
STATE: Final = ROOT / ".local"
"""Of the one that `make local` keeps."""
_FILE: Final = "emulator.json"


def start(directory: Path = STATE, *, port: int | None = None) -> Emulator:
    """A running one; `port` None takes a free port. State and logs are in `directory`, which one emulator has for
    itself: EmulatorError when another runs from it."""
    running = find(directory)
    if running is not None:
        raise EmulatorError(f"The embedded AWS already runs at {running.endpoint} (process {running.server.pid}).")
    directory.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    child = process.spawn(directory, ROOT, port)
    emulator = Emulator(directory=directory, server=Server.of(child.pid, port), child=child)
    process.write(directory / _FILE, emulator.server)
    try:
        process.wait_until_healthy(emulator.server, emulator.log)
    except BaseException:
        emulator.stop()
        raise
    return emulator


def find(directory: Path = STATE) -> Emulator | None:
    """The one that runs from `directory`, whoever started it."""
    server = process.read(directory / _FILE)
    return None if server is None else Emulator(directory=directory, server=server)


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulator:
    """As a context manager it stops at the end."""

    directory: Path
    server: Server
    child: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    """Its process, where this process started it."""
    root: Path = field(default=ROOT)

    @property
    def endpoint(self) -> str:
        return endpoint(self.server.port)

    @property
    def log(self) -> Path:
        return self.directory / "emulator.log"

    def environment(self) -> dict[str, str]:
        """The whole environment for a child process that talks to this AWS: endpoint, credentials, region, and a PATH
        with Node and the CDK CLI. The caller's own AWS settings are left out."""
        return client_environment(self.server.port, root=self.root)

    def deploy(self, env_name: str, *extra: str, say: Callable[[str], None] = print) -> None:
        """`cdk bootstrap` and `cdk deploy --all -c env=<env_name>`, with `extra` arguments; a line per stack through
        `say`, everything in `deploy.log`. EmulatorError names the resource that failed."""
        arguments = ("--all", "-c", f"env={env_name}", *extra)
        deploy(arguments, root=self.root, directory=self.directory, environment=self.environment(), say=say)

    def workers(self, function: str = "") -> list[int]:
        """Process ids of Lambda functions whose name contains `function`: a test may kill one."""
        return self.server.workers(function)

    def stop(self) -> None:
        """End all its processes and forget all it held; the logs stay."""
        self.server.stop()
        if self.child is not None:
            self.child.wait()
        (self.directory / _FILE).unlink(missing_ok=True)
        shutil.rmtree(self.directory / "tmp", ignore_errors=True)

    def __enter__(self) -> Emulator:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
