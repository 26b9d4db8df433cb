"""`loomjobs clean-start`: takes the reference application off, and leaves a project to begin with."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from loomjobs.cli.project import root
from loomjobs.core.errors import LoomjobsError

REMOVED = (
    "demo",
    "events",
    "handlers/jobs",
    "infra/resources.py",
    "tests/cli/test_cli.py",
    "tests/demo",
    "tests/e2e/test_demo.py",
    "tests/e2e/test_javascript_producer.py",
    "tests/e2e/producer.mjs",
    "tests/infra/test_plan_agrees.py",
    "tests/infra/test_templates.py",
    "tests/jobs",
)
"""What belongs to the reference application, and the tests that look at it."""

KEPT = {
    "handlers/jobs/__init__.py": '"""The jobs of this project, one file each."""\n',
    "handlers/jobs/queues.py": '''"""The queues: what kind of work each carries."""

from __future__ import annotations

from loomjobs import Queue, Workload

default = Queue("default", workload=Workload.BACKGROUND)
''',
    "handlers/jobs/services.py": '"""What the jobs touch: Resource, Setting, Secret and Service values."""\n',
    "infra/resources.py": '"""The team\'s own AWS resources, each a function with `@provides(name)`."""\n',
}


def add(commands: Any) -> None:
    starts = commands.add_parser("clean-start", help="remove the reference application; keep a project that passes")
    starts.add_argument("--force", action="store_true", help="also with uncommitted changes")
    starts.set_defaults(run=clean_start)


def clean_start(given: argparse.Namespace) -> int:
    top = root()
    if not given.force and _dirty(top):
        raise LoomjobsError("there are uncommitted changes; commit them, or say --force")
    for name in REMOVED:
        path = top / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for name, text in KEPT.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    _settings(top / "infra" / "environments.py")
    print("The reference application is gone. Next: loomjobs new shop.send-receipt --queue default", file=sys.stdout)
    return 0


def _settings(path: Path) -> None:
    """Empty the settings and rates of the environments: they were the reference application's."""
    if not path.exists():
        return
    kept: list[str] = []
    inside = False
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith(("        rates={", "        # nobody's system")):
            continue
        if line.startswith("        settings={"):
            inside = not line.rstrip().endswith("},")
            continue
        if inside:
            inside = line.rstrip() != "        },"
            continue
        kept.append(line)
    text = "".join(kept)
    for name in ("_SENDER",):
        start = text.find(f"{name}: Final")
        if start >= 0:
            text = text[:start] + text[text.index("\n\n", start) + 2 :]
    for unused in ("import os\n", "from datetime import timedelta\n", "from loomjobs.core.uses import Rate\n"):
        text = text.replace(unused, "")
    path.write_text(text, encoding="utf-8")


def _dirty(top: Path) -> bool:
    git = shutil.which("git")
    if git is None or not (top / ".git").exists():
        return False
    done = subprocess.run([git, "status", "--porcelain"], cwd=top, capture_output=True, text=True, check=False)  # noqa: S603 our own arguments
    return bool(done.stdout.strip())
