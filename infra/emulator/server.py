"""The process of the embedded AWS, its workers, and the file that says that it runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psutil

from infra.emulator.address import ACCOUNT, HOST, REGION, endpoint
from infra.emulator.errors import EmulatorError

HEALTH_SECONDS: Final = 60.0
"""For the first answer. Takes one second on an idle machine."""
STOP_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Server:
    """`created` (of the process) tells it from a later one that was given the same `pid`. The process leads its own
    group, in which its workers are."""

    pid: int
    created: float
    port: int

    @classmethod
    def of(cls, pid: int, port: int) -> Server:
        return cls(pid=pid, created=psutil.Process(pid).create_time(), port=port)

    def alive(self) -> bool:
        try:
            process = psutil.Process(self.pid)
            return process.create_time() == self.created and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def workers(self, function: str = "") -> list[int]:
        """Process ids of the Lambda functions whose name contains `function`."""
        found = ((process.pid, _function(process)) for process in _group(self.pid))
        return [pid for pid, name in found if name is not None and function in name]

    def stop(self) -> None:
        """End it and everything that it started, at once: all state is in memory, and nothing of it is kept."""
        if not _group(self.pid):
            return
        os.killpg(self.pid, signal.SIGKILL)
        limit = time.monotonic() + STOP_SECONDS
        while left := _group(self.pid):
            if time.monotonic() > limit:
                raise EmulatorError(f"Processes {[process.pid for process in left]} do not end.")
            time.sleep(0.02)


def spawn(directory: Path, root: Path, port: int) -> subprocess.Popen[bytes]:
    """Start the process; its output goes to `emulator.log`. It is not ready before `wait_until_healthy` returns."""
    scratch = directory / "tmp"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    with (directory / "emulator.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "infra.emulator.inside.server"],
            cwd=root,
            env=_environment(scratch, port),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def wait_until_healthy(server: Server, log: Path) -> None:
    limit = time.monotonic() + HEALTH_SECONDS
    while not _answers(server.port):
        if not server.alive() or time.monotonic() > limit:
            raise EmulatorError(f"The embedded AWS did not start. The end of {log}:\n{tail(log)}")
        time.sleep(0.05)


def tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


# -- the file ------------------------------------------------------------------------------------
def read(file: Path) -> Server | None:
    """The server that `file` names, if it still runs."""
    try:
        server = Server(**json.loads(file.read_text()))
    except FileNotFoundError:
        return None
    return server if server.alive() else None


def write(file: Path, server: Server) -> None:
    file.write_text(json.dumps(asdict(server)))


# -- processes -----------------------------------------------------------------------------------
def _environment(scratch: Path, port: int) -> dict[str, str]:
    """Nothing of the caller's but PATH: functions inherit it, and may not find here what AWS does not give them."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "TZ": "UTC",
        "LANG": "en_US.UTF-8",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_EC2_METADATA_DISABLED": "true",
        "BIND_HOST": HOST,
        "MINISTACK_HOST": HOST,
        "GATEWAY_PORT": str(port),
        "MINISTACK_ACCOUNT_ID": ACCOUNT,
        "MINISTACK_REGION": REGION,
        "S3_DATA_DIR": str(scratch / "s3"),
        "LOG_LEVEL": "WARNING",
        # These two would listen on every interface.
        "SFTP_ENABLED": "0",
        "IOT_MTLS_ENABLED": "0",
    }


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"{endpoint(port)}/_ministack/health", timeout=2) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _group(leader: int) -> list[psutil.Process]:
    """Processes of a group that still run, the leader too."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def _function(process: psutil.Process) -> str | None:
    """Name of the Lambda function that a process runs; None for another process."""
    try:
        command = " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
    match = re.search(r"/ministack-lambda-(.+)-[^-/]+/_worker\.", command)
    return match[1] if match else None
