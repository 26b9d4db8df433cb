"""The brakes of a wave: what each job is told, what it holds, and that all of it is given back."""

from __future__ import annotations

import itertools
import json
import threading
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from loomjobs.core.breaker import CLOSED, HALF_OPEN, OPEN
from loomjobs.core.delivery import Delivery
from loomjobs.core.envelope import Envelope
from loomjobs.core.errors import StoreUnavailable
from loomjobs.core.job import Job
from loomjobs.core.uses import Rate, Service
from loomjobs.core.work import Work
from loomjobs.core.write import Item, Write, Written
from loomjobs.local.store import MemoryStore
from loomjobs.runtime.brakes import Admission, Admitted, Brakes, Hold, Result, Slotted, Waits, Wanted
from tests.core.catalogue_fixture import Statement, declare

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
API = Service("api", breaker=True)
SIXTY = Rate(60, per=MINUTE)
BREAKER = "~breaker#api"


class CountingStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        self.writes: list[str] = []
        self.is_down = False

    def write(self, write: Write, /) -> Written:
        self.writes.append(write.id)
        if self.is_down:
            raise StoreUnavailable("down")
        return super().write(write)

    def read(self, id: str, /) -> Item | None:
        self.reads.append(id)
        if self.is_down:
            raise StoreUnavailable("down")
        return super().read(id)

    @property
    def calls(self) -> int:
        return len(self.reads) + len(self.writes)


@dataclass
class World:
    """One store and one time, for as many worker processes as a test wants."""

    store: CountingStore = field(default_factory=CountingStore)
    now: datetime = START
    roll: float = 0.5
    tokens: Any = field(default_factory=itertools.count)

    def worker(self, **options: Any) -> Brakes:
        return Brakes(self.store, lambda: self.now, lambda: self.roll, lambda: f"token-{next(self.tokens)}", **options)

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @property
    def ms(self) -> int:
        return int(self.now.timestamp() * 1000)


@pytest.fixture
def world() -> World:
    return World()


def wanted(job: Job[Any, Any], customer: str = "c1", *, slot: int | None = None, receives: int = 1) -> Wanted:
    payload = {"customer_id": customer, "period": "2026-01-01"}
    delivery = Delivery(
        message_id="m1",
        body=json.dumps({"job": job.name, "payload": payload}),
        receipt="r",
        queue=job.queue.name,
        sent_at=START,
        received_at=START,
    )
    statement = Statement(customer, date(2026, 1, 1))
    work = Work(delivery, Envelope(job=job.name, payload=payload), job, statement, "m1", customer, "p")
    return Wanted(work=work, receives=receives, slot=slot)


def one(brakes: Brakes, job: Job[Any, Any], customer: str = "c1", **options: Any) -> Admission:
    (answer,) = brakes.admit([wanted(job, customer, **options)])
    return answer


def hold_of(answer: Admission) -> Hold:
    assert isinstance(answer, Admitted), answer
    return answer.hold


def run(brakes: Brakes, job: Job[Any, Any], result: Result, times: int = 1, **options: Any) -> None:
    for _ in range(times):
        brakes.release(hold_of(one(brakes, job)), result, **options)


def state(world: World) -> str:
    return str(world.store.items[BREAKER]["state"])


def outage(world: World, brakes: Brakes, job: Job[Any, Any]) -> None:
    run(brakes, job, "failed-by-service", 5)
    assert state(world) == OPEN


# -- no brakes


def test_a_job_without_brakes_costs_no_call(world: World) -> None:
    brakes = world.worker()
    job = declare("a.b", uses=[Service("plain")])
    answers = brakes.admit([wanted(job) for _ in range(10)])
    for answer in answers:
        assert brakes.renew(hold_of(answer))
        brakes.release(hold_of(answer), "failed-by-service")
    assert world.store.calls == 0
    assert next(world.tokens) == 0


def test_an_empty_wave_has_no_answers(world: World) -> None:
    assert world.worker().admit([]) == []


# -- the circuits of services


def test_a_closed_circuit_is_read_at_most_every_five_seconds_and_never_written(world: World) -> None:
    brakes, job = world.worker(), declare("a.b", uses=[API])
    for _ in range(100):
        for answer in brakes.admit([wanted(job) for _ in range(10)]):
            brakes.release(hold_of(answer), "succeeded")
        world.later(0.1)
    assert world.store.reads == [BREAKER, BREAKER]
    assert world.store.writes == []


def test_five_failures_of_the_service_open_it_for_every_job_that_uses_it(world: World) -> None:
    brakes, other = world.worker(), world.worker()
    outage(world, brakes, declare("a.b", uses=[API]))
    calls = len(world.store.writes)
    for each in (brakes, other):
        answer = one(each, declare("a.c", uses=[API]))
        assert isinstance(answer, Waits)
        assert 30 <= answer.seconds <= 60
        assert each.open_services() == {"api"}
    assert len(world.store.writes) == calls
    assert list(brakes.changes) == [("api", OPEN)]


@pytest.mark.parametrize("result", ["failed", "deferred", "refused"])
def test_what_is_not_the_services_failure_never_opens_it(world: World, result: Result) -> None:
    run(world.worker(), declare("a.b", uses=[API]), result, 20)
    assert BREAKER not in world.store.items


def test_a_success_between_failures_keeps_it_closed(world: World) -> None:
    brakes, job = world.worker(), declare("a.b", uses=[API])
    run(brakes, job, "failed-by-service", 4)
    run(brakes, job, "succeeded")
    run(brakes, job, "failed-by-service", 4)
    assert BREAKER not in world.store.items


def test_with_several_services_only_the_named_one_is_blamed(world: World) -> None:
    brakes, job = world.worker(), declare("a.b", uses=[API, Service("mail", breaker=True)])
    run(brakes, job, "failed-by-service", 10)
    assert not world.store.items
    run(brakes, job, "failed-by-service", 5, service="mail")
    assert list(world.store.items) == ["~breaker#mail"]


def test_after_the_recovery_timeout_one_probe_runs_across_all_workers(world: World) -> None:
    workers, job = [world.worker() for _ in range(3)], declare("a.b", uses=[API])
    outage(world, workers[0], job)
    world.later(30)
    answers = [answer for brakes in workers for answer in brakes.admit([wanted(job) for _ in range(4)])]
    assert sum(isinstance(answer, Admitted) for answer in answers) == 1
    assert all(2 <= answer.seconds <= 15 for answer in answers if isinstance(answer, Waits))


def test_three_probes_close_it_and_admission_ramps(world: World) -> None:
    brakes, job = world.worker(), declare("a.b", uses=[API])
    outage(world, brakes, job)
    world.later(30)
    run(brakes, job, "succeeded", 3)
    assert state(world) == CLOSED
    assert list(brakes.changes) == [("api", OPEN), ("api", HALF_OPEN), ("api", CLOSED)]
    other = world.worker()
    for each in (brakes, other):
        assert isinstance(one(each, job), Waits)
    world.later(61)
    for each in (brakes, other):
        run(each, job, "succeeded")
    assert brakes.open_services() == set()


def test_a_failed_probe_opens_it_for_twice_as_long(world: World) -> None:
    brakes, job = world.worker(), declare("a.b", uses=[API])
    outage(world, brakes, job)
    world.later(30)
    run(brakes, job, "failed-by-service")
    assert (state(world), world.store.items[BREAKER]["recovery_timeout"]) == (OPEN, 60)
    world.later(59)
    assert isinstance(one(brakes, job), Waits)
    world.later(1)
    run(brakes, job, "succeeded")


@pytest.mark.parametrize("result", ["failed", "deferred", "refused"])
def test_a_probe_that_says_nothing_lets_the_next_one_go(world: World, result: Result) -> None:
    brakes, job = world.worker(), declare("a.b", uses=[API])
    outage(world, brakes, job)
    world.later(30)
    run(brakes, job, result)
    assert state(world) == HALF_OPEN
    run(world.worker(), job, "succeeded")


def test_a_crashed_probe_is_taken_over_and_its_late_result_is_ignored(world: World) -> None:
    brakes, other, job = world.worker(), world.worker(), declare("a.b", uses=[API])
    outage(world, brakes, job)
    world.later(30)
    crashed = hold_of(one(brakes, job))
    world.later(45)  # the job's 15 s and the margin
    assert isinstance(one(other, job), Waits)
    world.later(5)
    second = hold_of(one(other, job))
    brakes.release(crashed, "failed-by-service")
    assert state(world) == HALF_OPEN
    other.release(second, "succeeded")
    assert world.store.items[BREAKER]["probe_successes"] == 1


def test_a_renewed_probe_keeps_its_lease(world: World) -> None:
    brakes, job = world.worker(), declare("a.b", uses=[API])
    outage(world, brakes, job)
    world.later(30)
    hold = hold_of(one(brakes, job))
    for _ in range(4):
        world.later(30)
        assert brakes.renew(hold)
    assert isinstance(one(world.worker(), job), Waits)


def test_a_straggler_from_before_the_outage_does_not_count(world: World) -> None:
    brakes, job = world.worker(), declare("a.b", uses=[API])
    stragglers = [hold_of(answer) for answer in brakes.admit([wanted(job) for _ in range(10)])]
    outage(world, brakes, job)
    for hold in stragglers[:5]:
        brakes.release(hold, "failed-by-service")
    world.later(30)
    run(brakes, job, "succeeded", 3)
    for hold in stragglers[5:]:
        brakes.release(hold, "failed-by-service")
    assert state(world) == CLOSED


def test_stragglers_of_a_process_that_missed_the_outage_do_not_open_it_again(world: World) -> None:
    slow, brakes, job = world.worker(), world.worker(), declare("a.b", uses=[API])
    stragglers = [hold_of(answer) for answer in slow.admit([wanted(job) for _ in range(10)])]
    world.later(1)
    outage(world, brakes, job)
    world.later(30)
    run(brakes, job, "succeeded", 3)
    for hold in stragglers:
        slow.release(hold, "failed-by-service")
    assert state(world) == CLOSED


def test_a_store_that_is_down_leaves_the_circuit_open_to_all_and_says_so(world: World) -> None:
    brakes, job = world.worker(), declare("a.b", uses=[API])
    world.store.is_down = True
    answers = brakes.admit([wanted(job) for _ in range(10)])
    for answer in answers:
        brakes.release(hold_of(answer), "failed-by-service")
    assert len(world.store.reads) == 1
    assert "the circuit of api was not read" in brakes.troubles[0]
    assert "telling the circuit of api: down" in brakes.troubles[-1]
    world.store.is_down = False
    run(brakes, job, "failed-by-service")
    assert state(world) == OPEN


def test_a_write_that_the_sdk_repeats_meets_its_own_first_one_and_has_won(world: World) -> None:
    brakes, job = world.worker(), declare("a.b", exclusive="customer_id", uses=[API])
    outage(world, brakes, job)
    world.later(30)
    honest = world.store.write
    world.store.write = lambda write: (honest(write), honest(write))[1]  # type: ignore[method-assign]
    hold = hold_of(one(brakes, job))
    world.store.write = honest  # type: ignore[method-assign]
    brakes.release(hold, "succeeded")
    assert world.store.items[BREAKER]["probe_successes"] == 1
    assert "owner" not in world.store.items["~lock#a.b#c1"]


# -- locks


def test_one_job_a_value_runs_at_a_time(world: World) -> None:
    job = declare("a.b", exclusive="customer_id")
    brakes, other = world.worker(), world.worker()
    first, second, third = brakes.admit([wanted(job, "c1"), wanted(job, "c1"), wanted(job, "c2")])
    assert isinstance(second, Waits)
    assert isinstance(third, Admitted)
    assert isinstance(one(other, job, "c1"), Waits)
    brakes.release(hold_of(first), "failed")
    assert isinstance(one(other, job, "c1"), Admitted)


def test_waits_for_a_lock_lengthen_with_the_receives(world: World) -> None:
    job, brakes = declare("a.b", exclusive="customer_id", timeout=timedelta(seconds=15)), world.worker()
    one(brakes, job)
    waits = [one(brakes, job, receives=n) for n in (1, 2, 3)]
    seconds = [wait.seconds for wait in waits if isinstance(wait, Waits)]
    assert seconds == [2.5, 4.5, 8.5]


def test_a_lock_of_a_crashed_worker_is_taken_over_after_its_lease(world: World) -> None:
    job, brakes, other = declare("a.b", exclusive="customer_id"), world.worker(), world.worker()
    crashed = hold_of(one(brakes, job))
    world.later(49.9)
    assert isinstance(one(other, job), Waits)
    world.later(0.1)
    mine = hold_of(one(other, job))
    assert not brakes.renew(crashed)
    brakes.release(crashed, "succeeded")
    assert isinstance(one(brakes, job), Waits)
    other.release(mine, "succeeded")


def test_a_renewed_lock_is_kept(world: World) -> None:
    job, brakes = declare("a.b", exclusive="customer_id"), world.worker()
    hold = hold_of(one(brakes, job))
    for _ in range(5):
        world.later(30)
        assert brakes.renew(hold)
    assert isinstance(one(world.worker(), job), Waits)
    brakes.release(hold, "succeeded")
    assert not brakes.renew(hold)


def test_a_lock_lives_through_a_renewal_without_answer_until_its_end(world: World) -> None:
    job, brakes = declare("a.b", exclusive="customer_id"), world.worker()
    hold = hold_of(one(brakes, job))
    world.store.is_down = True
    assert brakes.renew(hold)
    world.later(46)
    assert not brakes.renew(hold)


def test_without_a_store_nothing_starts_that_needs_a_lock(world: World) -> None:
    job, brakes = declare("a.b", exclusive="customer_id"), world.worker()
    world.store.is_down = True
    answer = one(brakes, job)
    assert isinstance(answer, Waits)
    assert 30 <= answer.seconds <= 120


def test_a_lock_whose_answer_was_lost_is_given_back(world: World) -> None:
    job, brakes = declare("a.b", exclusive="customer_id"), world.worker()
    world.store.faults = ["reply-lost"]
    assert isinstance(one(brakes, job), Waits)
    assert isinstance(one(world.worker(), job), Admitted)


def test_a_tuple_of_fields_is_one_lock(world: World) -> None:
    job, brakes = declare("a.b", exclusive=("customer_id", "period")), world.worker()
    assert isinstance(one(brakes, job), Admitted)
    assert "~lock#a.b#c1/2026-01-01" in world.store.items


def test_an_empty_value_shares_one_lock_and_raises_nothing(world: World) -> None:
    job, brakes = declare("a.b", exclusive="customer_id", key="period"), world.worker()
    assert isinstance(one(brakes, job, ""), Admitted)
    assert isinstance(one(brakes, job, ""), Waits)


# -- rates


def test_slots_of_a_wave_cost_one_write_a_limiter(world: World) -> None:
    brakes, job = world.worker(), declare("a.b", uses=[Service("api", rate=SIXTY)])
    first, *rest = brakes.admit([wanted(job, f"c{n}") for n in range(10)])
    assert isinstance(first, Admitted)
    assert [answer.at_ms - world.ms for answer in rest if isinstance(answer, Slotted)] == [
        n * 1000 for n in range(1, 10)
    ]
    world.store.writes.clear()
    brakes.admit([wanted(job, f"d{n}") for n in range(10)])
    assert world.store.writes == ["~rate#service#api"]


def test_a_job_in_its_slot_starts_without_a_call(world: World) -> None:
    brakes, job = world.worker(), declare("a.b", uses=[Service("api", rate=SIXTY)])
    for late in (0, 10_000):
        assert isinstance(one(brakes, job, slot=world.ms - late), Admitted)
    assert world.store.calls == 0


def test_a_job_before_its_slot_keeps_it(world: World) -> None:
    brakes, job = world.worker(), declare("a.b", uses=[Service("api", rate=SIXTY)])
    answer = one(brakes, job, slot=world.ms + 3_000)
    assert isinstance(answer, Slotted)
    assert answer.at_ms == world.ms + 3_000
    assert world.store.calls == 0


def test_a_lost_slot_is_reserved_anew(world: World) -> None:
    brakes, job = world.worker(), declare("a.b", uses=[Service("api", rate=SIXTY)])
    one(brakes, job)
    answer = one(brakes, job, slot=world.ms - 10_001)
    assert isinstance(answer, Slotted)
    assert answer.at_ms == world.ms + 1_000


def test_beyond_the_horizon_a_job_waits_and_reserves_nothing(world: World) -> None:
    brakes, job = world.worker(), declare("a.b", rate=Rate(1, per=timedelta(minutes=5)))
    answers = brakes.admit([wanted(job, f"c{n}") for n in range(6)])
    assert [type(answer) for answer in answers] == [Admitted, Slotted, Slotted, Slotted, Waits, Waits]
    last = answers[-1]
    assert isinstance(last, Waits)
    assert 450 <= last.seconds <= 900


def test_each_value_of_a_jobs_rate_has_its_own_limiter(world: World) -> None:
    brakes, job = world.worker(), declare("a.b", rate=Rate(60, per=MINUTE, key="customer_id"))
    answers = brakes.admit([wanted(job, "c1"), wanted(job, "c2"), wanted(job, "c1")])
    assert [type(answer) for answer in answers] == [Admitted, Admitted, Slotted]
    assert set(world.store.items) == {"~rate#a.b#c1", "~rate#a.b#c2"}


def test_the_later_of_two_slots_counts(world: World) -> None:
    fast, slow = Rate(60, per=MINUTE), Rate(6, per=MINUTE, key="customer_id")
    brakes, job = world.worker(), declare("a.b", rate=slow, uses=[Service("api", rate=fast)])
    answers = brakes.admit([wanted(job, "c1"), wanted(job, "c1"), wanted(job, "c2"), wanted(job, "c2")])
    waits = [answer.at_ms - world.ms for answer in answers if isinstance(answer, Slotted)]
    assert waits == [10_000, 2_000, 10_000]


def test_a_tenant_beyond_its_rate_takes_no_slot_of_the_shared_service(world: World) -> None:
    """Else one tenant's backlog would use up what the others wait for."""
    own = Rate(1, per=timedelta(hours=1), key="customer_id")
    brakes, job = world.worker(), declare("a.b", rate=own, uses=[Service("api", rate=SIXTY)])
    brakes.admit([wanted(job, "greedy") for _ in range(50)])
    answer = one(brakes, job, "c2")
    assert isinstance(answer, Slotted)
    assert answer.at_ms == world.ms + 1_000


def test_an_environment_overrides_a_services_rate(world: World) -> None:
    brakes = world.worker(rates={"api": Rate(600, per=MINUTE)})
    answers = brakes.admit([wanted(declare("a.b", uses=[Service("api", rate=SIXTY)]), f"c{n}") for n in range(2)])
    assert [answer.at_ms - world.ms for answer in answers if isinstance(answer, Slotted)] == [100]


def test_without_a_store_nothing_starts_that_needs_a_slot(world: World) -> None:
    brakes, job = world.worker(), declare("a.b", rate=SIXTY)
    world.store.is_down = True
    answers = brakes.admit([wanted(job) for _ in range(10)])
    assert all(isinstance(answer, Waits) and 30 <= answer.seconds <= 120 for answer in answers)
    assert len(world.store.writes) == 1


def test_a_worker_that_lost_the_race_for_an_idle_limiter_comes_back_soon(world: World) -> None:
    brakes, job = world.worker(), declare("a.b", rate=SIXTY)
    honest = world.store.write

    def raced(write: Write) -> Written:
        answer = honest(write)
        if len(world.store.writes) == 1:
            world.worker().admit([wanted(job)])
        return answer

    world.store.write = raced  # type: ignore[method-assign]
    answer = one(brakes, job)
    assert isinstance(answer, Waits)
    assert 2 <= answer.seconds <= 15


def test_workers_share_a_rate_fairly_and_a_job_meets_its_limiter_twice(world: World) -> None:
    """300 jobs on 6 workers at 90 a minute: each asks once for a slot, and runs when it comes back in it."""
    job = declare("a.b", uses=[Service("api", rate=Rate(90, per=MINUTE))])
    workers = [world.worker() for _ in range(6)]
    due: list[tuple[int, int, int | None]] = [(world.ms, n, None) for n in range(300)]
    starts: list[int] = []
    met = 0
    while due:
        world.later(1)
        ready = [each for each in due if each[0] <= world.ms]
        due = [each for each in due if each[0] > world.ms]
        for place in range(0, len(ready), 10):
            wave = ready[place : place + 10]
            brakes = workers[place // 10 % 6]
            answers = brakes.admit([wanted(job, f"c{n}", slot=slot) for _, n, slot in wave])
            for (_, n, _), answer in zip(wave, answers, strict=True):
                met += 1
                if isinstance(answer, Slotted):
                    due.append((answer.at_ms, n, answer.at_ms))
                elif isinstance(answer, Admitted):
                    starts.append(world.ms)
                    brakes.release(answer.hold, "succeeded")
    assert len(starts) == 300
    assert met <= 600
    for first, start in enumerate(starts):
        assert sum(1 for other in starts[first:] if other < start + 60_000) <= 92
    assert starts[-1] - starts[0] == pytest.approx(200_000, rel=0.02)


# -- together


def test_a_refusal_gives_back_what_earlier_steps_took(world: World) -> None:
    """The rate keeps it out, so its lock and its probe are free for others at once."""
    service = Service("api", breaker=True, rate=SIXTY)
    job = declare("a.b", exclusive="customer_id", uses=[service])
    brakes = world.worker()
    outage(world, brakes, declare("a.c", uses=[API]))
    world.later(30)
    brakes.admit([wanted(declare("a.d", uses=[Service("api", rate=SIXTY)]))])
    answer = one(brakes, job)
    assert isinstance(answer, Slotted)
    assert "owner" not in world.store.items["~lock#a.b#c1"]
    assert "half_open_owner" not in world.store.items[BREAKER]
    world.later(1)
    assert isinstance(one(world.worker(), job, slot=answer.at_ms), Admitted)


def test_a_busy_lock_gives_back_the_probe(world: World) -> None:
    job, brakes = declare("a.b", exclusive="customer_id", uses=[API]), world.worker()
    outage(world, brakes, declare("a.c", uses=[API]))
    one(world.worker(), declare("a.b", exclusive="customer_id"))
    world.later(30)
    assert isinstance(one(brakes, job), Waits)
    assert "half_open_owner" not in world.store.items[BREAKER]


def test_an_open_circuit_reserves_no_slot_and_takes_no_lock(world: World) -> None:
    job = declare("a.b", exclusive="customer_id", rate=SIXTY, uses=[API])
    brakes = world.worker()
    outage(world, brakes, declare("a.c", uses=[API]))
    world.store.writes.clear()
    assert isinstance(one(brakes, job), Waits)
    assert world.store.writes == []


def test_releasing_twice_counts_once(world: World) -> None:
    brakes, job = world.worker(), declare("a.b", exclusive="customer_id", uses=[API])
    hold = hold_of(one(brakes, job))
    for _ in range(5):
        brakes.release(hold, "failed-by-service")
    assert BREAKER not in world.store.items
    assert world.store.writes.count("~lock#a.b#c1") == 2


def test_releasing_never_raises(world: World) -> None:
    brakes, job = world.worker(), declare("a.b", exclusive="customer_id", uses=[API])
    hold = hold_of(one(brakes, job))
    world.store.is_down = True
    brakes.release(hold, "succeeded")
    assert list(brakes.troubles) == ["releasing ~lock#a.b#c1: down"]


def test_lanes_may_release_at_once(world: World) -> None:
    brakes, job = world.worker(), declare("a.b", uses=[API])
    holds = [hold_of(answer) for answer in brakes.admit([wanted(job) for _ in range(16)])]
    threads = [threading.Thread(target=brakes.release, args=(hold, "failed-by-service")) for hold in holds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert state(world) == OPEN
    assert list(brakes.changes) == [("api", OPEN)]
