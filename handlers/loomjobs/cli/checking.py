"""`loomjobs check`: everything that is wrong, at once."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from loomjobs.cli.project import catalogue, environments, provided
from loomjobs.core.check import check as find_problems


def add(commands: Any) -> None:
    checks = commands.add_parser("check", help="problems of the declarations, in every environment")
    checks.add_argument("--json", action="store_true", help="as JSON")
    checks.set_defaults(run=check)


def check(given: argparse.Namespace) -> int:
    known, places, names = catalogue(), environments(), provided()
    problems = find_problems(known, list(places.values()), provided=names)
    failed = any(problem.severity == "error" for problem in problems)
    if given.json:
        print(json.dumps([asdict(problem) for problem in problems], indent=2))
        return int(failed)
    for severity in ("error", "warning"):
        for problem in problems:
            if problem.severity == severity:
                print(f"{severity}  {problem.where}\n       {problem.what}.\n       {problem.cure}".rstrip())
    if names is None:
        print("note   aws-cdk-lib is not installed, so infra/resources.py was left out", file=sys.stderr)
    looked = f"{len(known.jobs)} jobs, {len(known.queues)} queues, {len(known.schedules)} schedules"
    print(f"{len(problems)} problems in {looked}, for {', '.join(places) or 'no environment'}")
    return int(failed)
