"""Slots of rates for a wave: one write a limiter, two where it was idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loomjobs.core import breaker, defaults, rate
from loomjobs.core.errors import BadKey
from loomjobs.core.key import derive
from loomjobs.core.uses import Rate
from loomjobs.core.work import Work
from loomjobs.runtime.admission import Slotted, Waits, Wanted, services_of
from loomjobs.runtime.asking import Asking


class Slots:
    """`rates` overrides the declared rate of services by name."""

    def __init__(self, ask: Asking, rates: Mapping[str, Rate]) -> None:
        self._ask, self._rates = ask, rates

    def concern(self, work: Work) -> bool:
        """Whether any rate concerns this job."""
        return bool(_own_rate(work) or self._shared_rates(work))

    def _shared_rates(self, work: Work) -> list[tuple[str, Rate]]:
        found = [(service.name, self._rates.get(service.name, service.rate)) for service in services_of(work)]
        return [(rate.service_rate_id(name), limit) for name, limit in found if limit is not None]

    def take(self, wanted: Mapping[int, Wanted]) -> dict[int, Waits | Slotted]:
        """Why each of these (by its place in the wave) cannot start now; one that can is left out.

        A job's own rate comes first, so that what it keeps out takes no slot of a service that others wait for. A job
        under several rates runs in the latest of its slots.
        """
        now = self._ask.now() if wanted else 0
        refused: dict[int, Waits | Slotted] = {}
        slots: dict[int, int] = {}
        asking: list[int] = []
        for place in wanted:
            slot = wanted[place].slot
            if slot is None or rate.is_lost(slot, now):
                asking.append(place)
            elif not rate.is_due(slot, now):
                refused[place] = Slotted(slot, "its slot is still to come")
        for limits in (_own_rate, self._shared_rates):
            queues: dict[str, tuple[Rate, list[int]]] = {}
            for place in asking:
                for id, limit in limits(wanted[place].work) if place not in refused else ():
                    queues.setdefault(id, (limit, []))[1].append(place)
            for id, (limit, places) in queues.items():
                got = self._reserve(id, limit, len(places), now)
                for place, slot in zip(places, got.slots, strict=False):
                    slots[place] = max(slot, slots.get(place, 0))
                for place in places[len(got.slots) :]:
                    refused[place] = self._ask.waits(got.wait, got.why)
        late = {place: slot for place, slot in slots.items() if slot > now and place not in refused}
        return refused | {place: Slotted(slot, "its rate") for place, slot in late.items()}

    def _reserve(self, id: str, limit: Rate, count: int, now: int) -> _Got:
        """At most two writes, however many workers ask."""
        first = rate.reserve(id, limit, count, now=now)
        written = self._ask.write(first.write, f"reserving slots of {id}")
        if written is not None and not written.applied:
            second = rate.reserve_again(id, limit, count, written.item, now=now)
            if second is None:
                return _Got((), rate.FULL_WAIT, f"{id} is reserved for {rate.HORIZON} s ahead")
            first, written = second, self._ask.write(second.write, f"reserving slots of {id}")
        if written is None or (written.applied and written.item is None):
            return _Got((), defaults.HAND_BACK, "the store did not answer for its rate")
        if not written.applied or written.item is None:
            return _Got((), breaker.SHORT_WAIT, f"another worker was faster at {id}")
        return _Got(first.slots(written.item), rate.FULL_WAIT, f"{id} is reserved for {rate.HORIZON} s ahead")


@dataclass(frozen=True, slots=True)
class _Got:
    """Slots for the first jobs of a queue; `wait`: bounds in seconds for the others."""

    slots: Sequence[int]
    wait: tuple[float, float]
    why: str


def _own_rate(work: Work) -> list[tuple[str, Rate]]:
    own = work.job.options.rate
    if own is None:
        return []
    return [(rate.job_rate_id(work.job.name, None if own.key is None else value_of(own.key, work)), own)]


def value_of(fields: str | tuple[str, ...], work: Work) -> str:
    """The payload's value of these fields; those without one (an empty text) share a lock or a limiter."""
    try:
        return derive(fields, work.payload)
    except BadKey:
        return ""
