"""Both type checkers on right and wrong uses of the public API."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = ["tests/typing/right.py", "tests/typing/wrong.py"]


def run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_mypy_accepts_the_right_uses_and_sees_every_wrong_one() -> None:
    assert run(sys.executable, "-m", "mypy", "--strict", *FILES) == ""


def test_pyright_accepts_the_right_uses_and_sees_every_wrong_one() -> None:
    pyright = shutil.which("pyright")
    assert pyright is not None, "`make setup` brings it"
    assert run(pyright, *FILES) == ""


def test_a_wrong_use_that_passed_would_be_noticed(tmp_path: Path) -> None:
    unneeded = tmp_path / "unneeded.py"
    unneeded.write_text("x: int = 1  # type: ignore[assignment]\n")
    assert "unused-ignore" in run(sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", str(unneeded))
