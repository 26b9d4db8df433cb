"""Run functions with the interpreter alone, so that a function finds only what is in its asset, as on AWS.

Stock MiniStack runs them with its own interpreter, that of `.venv`: a package missing from the asset is found there.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any


def correct() -> None:
    runtime: Any = import_module("ministack.core.lambda_runtime")
    stock = runtime._detect_runtime_binary
    # The interpreter that the virtual environment was made from.
    base: str = getattr(sys, "_base_executable", sys.executable)

    def detect(name: str) -> tuple[str, str]:
        binary, script = stock(name)
        return (base if name.startswith("python") else binary), script

    runtime._detect_runtime_binary = detect
