"""Node and the CDK CLI, as `make setup` brings them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from infra.emulator.errors import EmulatorError

NODE_AT_LEAST: Final = 22
"""jsii and the CDK CLI do not support older ones."""


def search_path(root: Path, inherited: str) -> str:
    """PATH with the tools of the project first, and a Node that is new enough before them all."""
    folders = [str(root / ".venv" / "bin"), str(root / "node_modules" / ".bin"), *inherited.split(os.pathsep)]
    return os.pathsep.join([_node_folder(folders), *folders])


def cdk(root: Path) -> Path:
    found = root / "node_modules" / ".bin" / "cdk"
    if not found.exists():
        raise EmulatorError(f"There is no CDK CLI at {found}. Run `make setup`.")
    return found


def _node_folder(folders: Iterable[str]) -> str:
    seen: list[str] = []
    for folder in folders:
        node = shutil.which("node", path=folder)
        if node and (version := _version(node)) is not None:
            if version >= NODE_AT_LEAST:
                return folder
            seen.append(f"{node} is {version}")
    listed = "; ".join(seen) or "none found"
    raise EmulatorError(f"Node {NODE_AT_LEAST} or newer is needed ({listed}). Run `make setup`.")


def _version(node: str) -> int | None:
    """Major version; None when the program does not run or does not say."""
    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except OSError:
        return None
    match = re.match(r"v(\d+)\.", said)
    return int(match[1]) if match else None
