"""What keeps a job from starting now: the breakers and rates of the services it uses, its own rate, its lock.

Asked for a wave before anything is claimed, and told afterwards how each run ended. Where the store does not answer, a
breaker lets the job pass (the claim asks the same store), and a lock or a rate makes it wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from threading import Lock

from loomjobs.core import defaults, lock
from loomjobs.core.breaker import Policy
from loomjobs.core.uses import Rate
from loomjobs.core.work import Work
from loomjobs.runtime.admission import Admission, Admitted, Hold, Result, Slotted, Waits, Wanted, services_of
from loomjobs.runtime.asking import Asking
from loomjobs.runtime.breakers import Breakers, Ending
from loomjobs.runtime.ports import Clock, Roll, Store, Token
from loomjobs.runtime.slots import Slots, value_of

__all__ = ["Admission", "Admitted", "Brakes", "Hold", "Result", "Slotted", "Waits", "Wanted"]


class Brakes:
    """The brakes of one worker process. `admit` is called by one thread, `release` and `renew` by any.

    `rates` overrides the declared rate of services by name: rates are an environment's data. `troubles` holds what the
    store did not do, `changes` the (service, new state) that this process brought about; the caller drains both.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        roll: Roll,
        token: Token,
        *,
        policy: Policy | None = None,
        rates: Mapping[str, Rate] | None = None,
    ) -> None:
        self._ask = Asking(store=store, clock=clock, roll=roll)
        self._token = token
        self._breakers = Breakers(self._ask, policy or Policy())
        self._slots = Slots(self._ask, rates or {})
        self._guard = Lock()

    @property
    def troubles(self) -> deque[str]:
        return self._ask.troubles

    @property
    def changes(self) -> deque[tuple[str, str]]:
        return self._breakers.changes

    def concern(self, work: Work) -> bool:
        """Whether anything here can keep this job from starting."""
        guarded = any(service.breaker for service in services_of(work))
        return guarded or bool(work.job.options.exclusive) or self._slots.concern(work)

    def admit(self, wanted: Sequence[Wanted]) -> list[Admission]:
        """An answer for each, in order: breakers first, then the lock, then the rates, so that what is refused has
        reserved no slot. The slots of a wave cost one write a limiter, two where it was idle. It does not raise."""
        answers: list[Admission] = [self._enter(each) for each in wanted]
        held = {place: answer.hold for place, answer in enumerate(answers) if isinstance(answer, Admitted)}
        rated = {place: wanted[place] for place in held if self._slots.concern(wanted[place].work)}
        for place, answer in self._slots.take(rated).items():
            self.release(held[place], "refused")
            answers[place] = answer
        return answers

    def release(self, hold: Hold, result: Result, *, service: str | None = None) -> None:
        """Free the lock and tell the breakers. `service` names who is to blame for "failed-by-service"
        (`core.breaker.blamed`); it may be left out where the job uses one service. Only the first call counts, and
        none raises."""
        with self._guard:
            if hold.released:
                return
            hold.released = True
        self._unlock(hold)
        services = services_of(hold.work)
        if service is None and len(services) == 1:
            service = services[0].name
        for each in services:
            if each.breaker:
                self._breakers.report(hold, each.name, _ending(result, is_blamed=each.name == service))

    def renew(self, hold: Hold) -> bool:
        """Extend the lock and the probes of a run that goes on. False when the lock is lost: stop the run."""
        if hold.released:
            return False
        self._breakers.renew(hold)
        if hold.lock is None:
            return True
        now = self._ask.now()
        until = lock.lease_end(now, hold.work.job.timeout)
        written = self._ask.write(lock.renew_write(hold.lock, hold.owner, until=until), f"renewing {hold.lock}")
        if written is None:
            return now < hold.until
        if written.applied:
            hold.until = until
        return written.applied

    def shut_for(self) -> float:
        """Seconds for which an open circuit lets nothing through, as last seen; 0 while none is open."""
        return self._breakers.shut_for()

    def open_services(self) -> frozenset[str]:
        """The services whose circuit was not closed when this process last looked; asks the store nothing."""
        return self._breakers.open_services()

    def _enter(self, wanted: Wanted) -> Admitted | Waits:
        work = wanted.work
        hold = Hold(work)
        guarded = [service for service in services_of(work) if service.breaker]
        if not guarded and not work.job.options.exclusive:
            return Admitted(hold)
        hold.at, hold.owner = self._ask.now(), self._token()
        refusal = next(filter(None, (self._breakers.enter(hold, service.name) for service in guarded)), None)
        refusal = refusal or self._lock(hold, wanted.receives)
        if refusal is None:
            return Admitted(hold)
        self.release(hold, "refused")
        return refusal

    def _lock(self, hold: Hold, receives: int) -> Waits | None:
        fields = hold.work.job.options.exclusive
        if not fields:
            return None
        id = lock.lock_id(hold.work.job.name, value_of(fields, hold.work))
        until = lock.lease_end(hold.at, hold.work.job.timeout)
        written = self._ask.write(lock.acquire_write(id, hold.owner, now=hold.at, until=until), f"taking {id}")
        if written is None:
            hold.lock = id  # it may be ours: releasing it is fenced, and harmless when it is not
            return self._ask.waits(defaults.HAND_BACK, "the store did not answer for its lock")
        if not written.applied and not lock.is_ours(written.item, hold.owner):
            busy = lock.busy(written.item, now=hold.at, receives=receives, roll=self._ask.roll())
            return Waits(busy.wait, f"{id} is held")
        hold.lock, hold.until = id, until
        return None

    def _unlock(self, hold: Hold) -> None:
        if hold.lock is not None:
            self._ask.write(lock.release_write(hold.lock, hold.owner, now=self._ask.now()), f"releasing {hold.lock}")


def _ending(result: Result, *, is_blamed: bool) -> Ending:
    if result == "succeeded":
        return "passed"
    return "failed" if result == "failed-by-service" and is_blamed else "left"
