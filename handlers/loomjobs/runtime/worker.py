"""What a worker process holds, and what it makes of it for one delivery: a claim, a context, a wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from loomjobs.core import defaults
from loomjobs.core.budget import Budget, Waiting, spend
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.claim import Claim
from loomjobs.core.commit import Transactor
from loomjobs.core.record import Record
from loomjobs.core.sealed import Cipher
from loomjobs.core.work import Work
from loomjobs.runtime.brakes import Brakes
from loomjobs.runtime.context import RunContext
from loomjobs.runtime.effects import Effects
from loomjobs.runtime.lanes import Lanes
from loomjobs.runtime.ledger import Ledger, millis
from loomjobs.runtime.outage import Outage
from loomjobs.runtime.ports import (
    Addresses,
    Clock,
    DeadLetterQueue,
    Journal,
    Messages,
    Payloads,
    Pulse,
    Renewals,
    Roll,
    Run,
    Token,
    Valve,
)
from loomjobs.runtime.producer import Producer


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """`pace` scales retry waits, `release` names its version in records, `pause` sleeps so many seconds, and `quit`
    ends the process at once."""

    catalogue: Catalogue
    ledger: Ledger
    letters: DeadLetterQueue
    messages: Messages
    renewals: Renewals
    producer: Producer
    transactor: Transactor
    payloads: Payloads
    addresses: Addresses
    journal: Journal
    lanes: Lanes
    budget: Budget
    clock: Clock
    token: Token
    roll: Roll
    pause: Callable[[float], None]
    quit: Callable[[], None]
    pulse: Pulse
    brakes: Brakes
    valve: Valve | None = None
    cipher: Cipher | None = None
    pace: float = 1.0
    release: str = ""
    outage: Outage = field(default_factory=Outage)

    def claim(self, work: Work, *, until: datetime, wave: int) -> Claim:
        delivery, heartbeat = work.delivery, work.job.options.heartbeat
        if heartbeat is not None:
            until = min(until, self.clock() + heartbeat)
        return Claim(
            id=work.record_id,
            owner=self.token(),
            now=millis(self.clock()),
            lease=millis(until) + defaults.LEASE_MARGIN * 1000,
            payload_hash=work.payload_hash,
            message=delivery.message_id,
            sent=millis(delivery.sent_at),
            expires=self.ledger.expires(),
            version=self.release,
            redrives=work.envelope.redrives,
            receives=delivery.receives,
            wave=wave,
        )

    def context(self, work: Work, record: Record, *, until: datetime) -> RunContext:
        return RunContext(
            work=work,
            attempt=record.attempts + 1,
            until=until,
            clock=self.clock,
            addresses=self.addresses,
            producer=self.producer,
            effects=Effects(work=work, record=record, ledger=self.ledger, transactor=self.transactor, clock=self.clock),
        )

    def tell_of_brakes(self, job: str) -> None:
        """What the brakes noticed since the last time, to the journal."""
        while self.brakes.troubles:
            self.journal.trouble(self.brakes.troubles.popleft())
        while self.brakes.changes:
            service, state = self.brakes.changes.popleft()
            self.journal.trouble(f"the circuit breaker of {service} is {state}")
            self.journal.counted(f"Breaker{state.title().replace('_', '')}", job)

    def between(self, bounds: tuple[int, int]) -> float:
        return bounds[0] + (bounds[1] - bounds[0]) * self.roll()

    def spend(self, seconds: float, run: Run) -> Waiting:
        return spend(seconds, run.delivery, self.budget, now=self.clock())

    def after(self, seconds: float) -> int:
        return millis(self.clock() + timedelta(seconds=seconds))
