"""`make demo`: closes January 1997 for real customers on an embedded AWS, and proves that nothing was lost."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeAlias

from demo.cloud import Cloud, accounting_entries
from demo.proof import Found, Verdict, compare
from demo.purchases import month
from infra.emulator import Emulator, EmulatorError, start
from infra.emulator.address import free_port
from jobs.statement import Purchase
from loomjobs.core import names

PERIOD: Final = date(1997, 1, 1)
Say: TypeAlias = Callable[[str], None]

TICK: Final = "1997-02-01T02:00:00Z"
QUEUES: Final = ("ticks", "billing", "interactive", "notifications", "accounting")
TWICE: Final = 25
"""Customers whose statement is enqueued a second time on purpose."""
PATIENCE: Final = 3_600
"""Seconds to wait for the drain before giving up."""


SCENARIOS: Final = "kill: SIGKILL a worker mid-job; outage: accounting is down for a minute"
OUTAGE: Final = 60
"""Seconds that accounting is down in the outage scenario."""
OUTAGE_AFTER: Final = 5
"""Accounting entries after which the outage begins."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--customers", default="500", help="how many customers, or all (7,846)")
    parser.add_argument("--scenario", choices=["plain", "kill", "outage"], default="plain", help=SCENARIOS)
    given = parser.parse_args()
    customers = None if given.customers == "all" else int(given.customers)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        return run(month(PERIOD, customers=customers), scenario=given.scenario)
    except EmulatorError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped; nothing is left running.", file=sys.stderr)
        return 130


def run(bought: Mapping[str, Sequence[Purchase]], *, scenario: str) -> int:
    """The whole story; 0 when the proof holds. Leaves nothing running."""
    refused = list(bought)[7::100]
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}", flush=True)

    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="loomjobs-demo-", ignore_cleanup_errors=True))
        )
        url = stack.enter_context(accounting(refused))
        say(f"accounting service on {url}; it refuses {len(refused)} customers")
        os.environ["DEMO_ACCOUNTING_URL"] = url
        emulator = stack.enter_context(start(folder))
        say(f"embedded AWS on {emulator.endpoint}; cdk bootstrap and cdk deploy --all -c env=local")
        emulator.deploy("local", say=lambda text: say(f"  {text}"))
        use(emulator)
        cloud = Cloud(emulator.endpoint)
        loaded = cloud.load(each for purchases in bought.values() for each in purchases)
        say(f"loaded {loaded:,} purchases of {len(bought):,} customers in January 1997")
        trouble = Trouble(scenario, cloud, emulator, url, say)
        drained = drive(cloud, trouble, bought, say)
        verdict = report(cloud, url, bought, refused, drained, say)
        if scenario == "outage":
            told = outage_report(cloud, url, trouble)
            return 0 if verdict.holds and told else 1
        keep(cloud, next(iter(bought)))
    return 0 if verdict.holds else 1


@dataclass
class Trouble:
    """What a scenario does on the way, once. `opened`: while accounting's circuit was seen open, epoch seconds."""

    scenario: str
    cloud: Cloud
    emulator: Emulator
    url: str
    say: Say
    began: float = 0.0
    opened: list[float] = field(default_factory=list[float])

    def strike(self) -> None:
        if self.scenario == "kill" and not self.began and (pids := self.emulator.workers("worker-interactive")):
            self.began = time.time()
            os.kill(pids[0], signal.SIGKILL)
            self.say(f"killed the interactive worker (process {pids[0]}) in the middle of its work")
        if self.scenario == "outage":
            if not self.began and len(accounting_entries(self.url)["entries"]) >= OUTAGE_AFTER:
                self.began = time.time()
                _post(f"{self.url}/outage", {"seconds": OUTAGE})
                self.say(f"accounting is down for {OUTAGE} s")
            if self.began and self.cloud.breaker("accounting-api") == "OPEN":
                self.opened.append(time.time())


def drive(cloud: Cloud, trouble: Trouble, bought: Mapping[str, Sequence[Purchase]], say: Say) -> float:
    """Fire the close as EventBridge would, send part of it twice, and wait for the drain; returns its seconds."""
    tick = json.dumps({"job": names.TICK_JOB, "payload": {"schedule": "billing.close-month", "at": TICK}})
    began = time.monotonic()
    cloud.send("ticks", tick, tick)
    again = [_statement(customer) for customer in list(bought)[:TWICE]]
    cloud.send("billing", *again)
    say(f"fired the monthly close twice, and enqueued {len(again)} statements a second time, on purpose")
    shown = time.monotonic()
    while (waiting := cloud.waiting(QUEUES)) or time.monotonic() - began < 5:
        trouble.strike()
        if time.monotonic() - shown > 5:
            shown = time.monotonic()
            say("  waiting: " + (", ".join(f"{queue} {count:,}" for queue, count in waiting.items()) or "nothing"))
        if time.monotonic() - began > PATIENCE:
            raise EmulatorError(f"not drained after {PATIENCE} s: {dict(waiting)} are left")
        time.sleep(1)
    return time.monotonic() - began


def report(
    cloud: Cloud,
    url: str,
    bought: Mapping[str, Sequence[Purchase]],
    refused: Sequence[str],
    drained: float,
    say: Say,
) -> Verdict:
    say(f"drained after {drained:.0f} s; computing the proof from the input file")
    records, outcomes = cloud.records(), cloud.outcomes()
    letters = [letter for queue in QUEUES for letter in cloud.dead_letters(queue)]
    books = accounting_entries(url)
    states = Counter((record["id"].partition("#")[0], record["status"]) for record in records)
    print("\njobs by state")
    for (job, status), count in sorted(states.items()):
        print(f"  {job:<32}{status.lower():<12}{count:>6,}")
    print(f"retries                 {outcomes['retry']:,}")
    print(f"duplicates suppressed   {outcomes['duplicate']:,}")
    answers = ", ".join(f"{status}: {count:,}" for status, count in sorted(books["answers"].items()))
    print(f"accounting answered     {answers}")
    print(f"                        at most {books['most']} calls at a time")
    print(f"dead letters            {len(letters)}, expected {len(refused)}: accounting refuses these customers")
    for letter in letters[:3]:
        print(f"  {letter.get('job')} of customer {letter['customer']}: {letter.get('reason')}: {letter.get('error')}")
    if len(letters) > 3:
        print(f"  and {len(letters) - 3} more like these")
    entries = [
        Found("accounting entry", each["customer"], Decimal(each["total"])) for each in books["entries"].values()
    ]
    totals = {customer: sum((each.amount for each in purchases), Decimal(0)) for customer, purchases in bought.items()}
    verdict = compare(totals, refused, [letter["customer"] for letter in letters], [*cloud.effects(), *entries])
    print("\nproof, from the input file alone")
    print(f"  one statement, PDF, mail and entry each: {verdict.found:,} found of {verdict.expected:,} expected")
    print(f"  billed {verdict.money:,} USD of {verdict.owed:,} USD")
    for each in [*verdict.lost[:5], *verdict.doubled[:5], *verdict.wrong[:5]]:
        print(f"  ! {each}")
    if kept := books["most"] > 2:
        print(f"  ! accounting saw {books['most']} calls at a time, and 2 are allowed")
    print(f"lost {len(verdict.lost)}")
    print(f"doubled {len(verdict.doubled)}" + ("" if verdict.holds and not kept else "   THE PROOF FAILED"))
    return verdict


def outage_report(cloud: Cloud, url: str, trouble: Trouble) -> bool:
    """What the outage cost, from the service's own request log and the execution records."""
    log = accounting_entries(url)["log"]
    end = trouble.began + OUTAGE
    during = [at for at, _ in log if trouble.began <= at < end]
    after = sorted(at for at, _ in log if at >= end)
    records = [each for each in cloud.records() if each["id"].startswith("accounting.")]
    charged = [float(entry["at"]) / 1000 for each in records for entry in each.get("hist", ())]
    margin = 7  # another worker may have seen the circuit closed up to 5 s ago, and its run ends after that
    spans = [(at, at + 1) for at in trouble.opened if trouble.opened[0] + margin < at]
    while_open = [at for at in charged if any(first <= at < last for first, last in spans)]
    print("\nthe outage")
    print(f"  calls in its {OUTAGE} s         {len(during)}: until the circuit opened, and probes")
    print(f"  seen open               {len(trouble.opened)} times, a second apart")
    print(f"  attempts charged then   {len(while_open)}")
    print("  calls after it, for each 20 s: " + " ".join(str(count) for count in _in_steps(after, 20)))
    return len(during) <= len(records) and bool(trouble.opened) and not while_open


def _in_steps(moments: Sequence[float], step: float) -> list[int]:
    if not moments:
        return []
    counts = Counter(int((at - moments[0]) // step) for at in moments)
    return [counts[place] for place in range(max(counts) + 1)]


def _post(url: str, body: Mapping[str, Any]) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request):
        pass


def keep(cloud: Cloud, customer: str) -> None:
    """One PDF to look at."""
    folder = Path(".local")
    folder.mkdir(exist_ok=True)
    path = folder / f"statement-{customer}.pdf"
    key = f"statements/{PERIOD:%Y-%m}/{customer}.pdf"
    path.write_bytes(
        cloud.client("s3")
        .get_object(Bucket=cloud.parameter("resources", "statements", "address"), Key=key)["Body"]
        .read()
    )
    print(f"\nA statement to look at: {path}. Everything else is stopped and gone.")
    print("To keep the stack running: make local, and make local-down to stop it.")


@contextmanager
def accounting(refused: Sequence[str]) -> Generator[str]:
    """The service in a process of its own, on a free port."""
    port = free_port()
    command = [sys.executable, "-m", "demo.accounting", "--port", str(port), "--refuse", ",".join(refused)]
    child = subprocess.Popen(command)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_healthy(url)
        yield url
    finally:
        child.terminate()
        child.wait()


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(143)  # through the stack of contexts, which stop what was started


def use(emulator: Emulator) -> None:
    """Credentials and region of the embedded AWS for this process."""
    given = emulator.environment()
    os.environ.update({name: value for name, value in given.items() if name.startswith("AWS_")})


def _wait_until_healthy(url: str) -> None:
    for _ in range(100):
        try:
            with urllib.request.urlopen(f"{url}/health"):
                return
        except OSError:
            time.sleep(0.1)
    raise EmulatorError(f"the accounting service does not answer at {url}")


def _statement(customer: str) -> str:
    """What a producer in another language would send."""
    payload = {"customer_id": customer, "period": PERIOD.isoformat()}
    return json.dumps({"job": "billing.write-statement", "payload": payload})


if __name__ == "__main__":
    sys.exit(main())
