"""`python -m infra.emulator up | down | status | logs`: the embedded AWS that `make local` keeps."""

from __future__ import annotations

import argparse
import subprocess
import sys

from infra.emulator import Emulator, EmulatorError, start
from infra.emulator.emulator import STATE, find


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.emulator", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start it and deploy an environment to it")
    up.add_argument("--env", default="local", help="environment to deploy (default: local)")
    up.add_argument("--port", type=int, help="port on 127.0.0.1 (default: a free one)")
    up.add_argument("--bare", action="store_true", help="deploy nothing")
    commands.add_parser("down", help="stop it")
    commands.add_parser("status", help="say whether and where it runs")
    commands.add_parser("logs", help="follow its log")
    given = parser.parse_args()
    try:
        return {"up": _up, "down": _down, "status": _status, "logs": _logs}[given.command](given)
    except EmulatorError as error:
        print(error, file=sys.stderr)
        return 1


def _up(given: argparse.Namespace) -> int:
    emulator = find()
    if emulator is None:
        emulator = start(port=given.port)
        print(f"embedded AWS started at {emulator.endpoint}")
    if not given.bare:
        emulator.deploy(given.env)
    _tell(emulator)
    return 0


def _down(_: argparse.Namespace) -> int:
    emulator = find()
    if emulator is None:
        print("The embedded AWS is not running.")
        return 0
    emulator.stop()
    print(f"The embedded AWS at {emulator.endpoint} has ended; what it held is gone.")
    return 0


def _status(_: argparse.Namespace) -> int:
    emulator = find()
    if emulator is None:
        print("The embedded AWS is not running. `make local` starts it.")
        return 1
    print(f"It runs with {len(emulator.workers())} Lambda processes.")
    _tell(emulator)
    return 0


def _logs(_: argparse.Namespace) -> int:
    log = STATE / "emulator.log"
    if not log.exists():
        raise EmulatorError(f"There is no log at {log}.")
    try:
        return subprocess.run(["tail", "-n", "50", "-f", str(log)], check=False).returncode
    except KeyboardInterrupt:
        return 0


def _tell(emulator: Emulator) -> None:
    print(f"endpoint  {emulator.endpoint}  (export AWS_ENDPOINT_URL={emulator.endpoint})")
    print(f"logs      {emulator.log}")
    print("stop      make local-down")


if __name__ == "__main__":
    sys.exit(main())
