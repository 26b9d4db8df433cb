"""The real `cdk bootstrap` and `cdk deploy`, watched."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from infra.emulator import tools
from infra.emulator.address import ACCOUNT, REGION
from infra.emulator.errors import EmulatorError

Say = Callable[[str], None]

_EVENT_FAILED: Final = re.compile(r"\b(?:CREATE|UPDATE|DELETE)_FAILED\b")
_PROGRESS: Final = (
    (re.compile(r"Synthesis time: ([\d.]+)s"), "templates written in {} s"),
    (re.compile(r"^(\S+): deploying\.\.\. (\[\d+/\d+\])"), "{1} {0}"),
)


def deploy(arguments: Sequence[str], *, root: Path, directory: Path, environment: Mapping[str, str], say: Say) -> None:
    cdk = str(tools.cdk(root))
    log = directory / "deploy.log"
    log.write_bytes(b"")
    # Outside of the project: bootstrap would synthesize the application too.
    bootstrap = [cdk, "bootstrap", f"aws://{ACCOUNT}/{REGION}"]
    _run(bootstrap, folder=directory, log=log, environment=environment, say=say)
    command = [cdk, "deploy", *arguments, "--require-approval", "never", "--progress", "events"]
    output = ["--output", str(directory / "cdk.out")]
    _run([*command, *output], folder=root, log=log, environment=environment, say=say)


def progress(line: str) -> str | None:
    """What a line of the CDK CLI says about how far it is, if anything."""
    for pattern, text in _PROGRESS:
        match = pattern.search(line)
        if match:
            return text.format(*match.groups())
    return None


def failure(lines: Iterable[str]) -> str:
    """The resources that failed and why; else the error as the CLI put it, which may be the application's."""
    told = list(lines)
    resources = list(dict.fromkeys(line.strip() for line in told if _EVENT_FAILED.search(line)))
    return "\n".join(resources or told[-25:])


def _run(command: Sequence[str], *, folder: Path, log: Path, environment: Mapping[str, str], say: Say) -> None:
    lines: list[str] = []
    with (
        log.open("a", encoding="utf-8") as file,
        subprocess.Popen(
            command, cwd=folder, env=dict(environment), text=True, encoding="utf-8", errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as running,
    ):  # fmt: skip
        for line in running.stdout or ():
            file.write(line)
            lines.append(line.rstrip())
            told = progress(line)
            if told:
                say(told)
    if running.returncode:
        raise EmulatorError(f"`cdk {command[1]}` failed:\n{failure(lines)}\nAll of it is in {log}.")
