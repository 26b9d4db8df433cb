"""`make demo` with a worker killed in mid-work: nothing is lost, nothing doubled, nothing left running."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]


def test_a_worker_killed_during_the_demo_loses_nothing() -> None:
    command = [sys.executable, "-m", "demo", "--customers", "40", "--scenario", "kill"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed the interactive worker" in done.stdout
    assert "160 found of 160 expected" in done.stdout
    assert "lost 0\ndoubled 0\n" in done.stdout
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert f"{sys.executable} -m demo.accounting" not in left


def test_an_outage_of_accounting_in_the_middle_loses_nothing_and_charges_nothing_while_the_circuit_is_open() -> None:
    command = [sys.executable, "-m", "demo", "--customers", "80", "--scenario", "outage"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "accounting is down for 60 s" in done.stdout
    assert "320 found of 320 expected" in done.stdout
    assert "lost 0\ndoubled 0\n" in done.stdout
    assert "attempts charged then   0" in done.stdout
    steps = done.stdout.rpartition("for each 20 s: ")[2].partition("\n")[0].split()
    assert int(steps[0]) < max(int(count) for count in steps)  # it comes back gradually
