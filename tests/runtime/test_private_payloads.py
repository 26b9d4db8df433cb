"""A sensitive value shows nowhere: not in what is logged, nor in records, nor in the report of a dead letter."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Annotated, Any

import pytest

from loomjobs import (
    CipherUnavailable,
    Defer,
    Encrypted,
    JobContext,
    Permanent,
    Queue,
    Retry,
    Sensitive,
    Workload,
    call,
    job,
)
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.registry import isolated
from loomjobs.local.backend import Backend
from tests.runtime.world import STANDARD, fail

SECRET = 'Zoë "Q" 4111\n9999'
PIN = "8317"


@dataclass
class Person:
    name: Annotated[str, Sensitive()]
    born: Annotated[date | None, Sensitive()] = None


@dataclass
class Card:
    id: str
    number: Annotated[str, Sensitive()]
    pin: Annotated[str, Sensitive()] = ""
    amount: Annotated[int | None, Sensitive()] = None
    people: list[Person] | None = None
    limits: Annotated[dict[str, int] | None, Sensitive()] = None


CARD = Card("c1", SECRET, PIN, 918_273, [Person("Ada Lovelace", date(1815, 12, 10))], {"secret-key": 1})
HIDDEN = ("4111", PIN, "918273", "918,273", "Lovelace", "1815", "secret-key", "9999")


def chain(card: Card) -> None:
    try:
        raise KeyError(card.number)
    except KeyError as error:
        error.add_note(f"with {card}")
        raise Permanent("a message without it") from error


def group(card: Card) -> None:
    raise ExceptionGroup("of two", [ValueError(card.number), ValueError(f"{card.limits}")])


def changed(card: Card) -> None:
    number, card.number = card.number, "another-1234567"
    card.people = object()  # type: ignore[assignment]
    raise ValueError(number)


def committed(card: Card, ctx: JobContext) -> None:
    ctx.commit()
    raise ValueError(card.number)


BEHAVIOURS: list[Callable[[Card, JobContext], Any]] = [
    lambda card, ctx: fail(ValueError(f"not {card!r}")),
    lambda card, ctx: fail(Permanent(f"pin {card.pin} of {card.amount:,} or {card.amount}")),
    lambda card, ctx: fail(Permanent(json.dumps({"n": card.number, "l": card.limits}))),
    lambda card, ctx: fail(KeyError(card.number)),
    lambda card, ctx: fail(urllib.error.URLError(f"https://h/?q={card.number}&d={card.people[0].born!r}")),  # type: ignore[index]
    lambda card, ctx: fail(ValueError({card.number: {card.pin: 1}})),
    lambda card, ctx: fail(Defer(timedelta(seconds=1), why=f"{card.number} is busy")),
    lambda card, ctx: chain(card),
    lambda card, ctx: group(card),
    lambda card, ctx: changed(card),
    committed,
]


class Private:
    def __init__(self, behave: Callable[[Card, JobContext], Any], queue: Queue = STANDARD, **options: Any) -> None:
        with isolated():
            self.job: Any = job("test.pay", queue=queue, retry=Retry(attempts=2), **{"key": "id"} | options)(
                self._run(behave)
            )
        self.backend = Backend(Catalogue((self.job,)))

    def _run(self, behave: Callable[[Card, JobContext], Any]) -> Callable[[Card, JobContext], None]:
        def run(card: Card, ctx: JobContext) -> None:
            behave(card, ctx)

        return run

    def shown(self) -> str:
        """Everything beside the messages themselves."""
        dead = self.backend.dead[self.job.queue.name].messages
        reports = [dict(each.attributes) for each in dead]
        return "\n".join(
            map(repr, [self.backend.journal.runs, self.backend.journal.sent, self.backend.store.items, reports])
        )


@pytest.mark.parametrize("behave", BEHAVIOURS)
def test_whatever_a_job_raises_its_sensitive_values_show_nowhere(behave: Callable[[Card, JobContext], Any]) -> None:
    world = Private(behave)
    world.backend.producer.enqueue(call(world.job, CARD))
    for _ in range(20):
        world.backend.deliver("standard")
        world.backend.advance_to_next()
    shown = world.shown()
    assert "test.pay" in shown
    for hidden in HIDDEN:
        assert hidden not in shown


def test_the_hash_of_a_payload_with_marks_is_not_logged_since_a_short_value_could_be_guessed_from_it() -> None:
    world = Private(lambda card, ctx: None)
    world.backend.producer.enqueue(call(world.job, CARD))
    world.backend.deliver("standard")
    assert [run.payload_hash for run in world.backend.journal.runs] == [None]


@pytest.mark.parametrize(
    "payload",
    [
        {"id": "c1", "number": {"secret-key": 4111}},
        {"id": 918273, "number": SECRET},
        {"id": {"n": SECRET}, "number": "4111-9999"},
        {"nmuber": SECRET},
        {"id": "c1", "number": "x" * 6, "people": [{"name": "Lovelace", "born": "Lovelace"}]},
        [SECRET],
        "4111 9999",
    ],
)
def test_a_payload_that_does_not_fit_is_reported_without_its_values(payload: object) -> None:
    world = Private(lambda card, ctx: None)
    body = json.dumps({"job": "test.pay", "payload": payload})
    world.backend.queues["standard"].send(body, now=world.backend.clock.now)
    world.backend.deliver("standard")
    assert "bad-payload" in world.shown()
    for hidden in HIDDEN:
        assert hidden not in world.shown()


@pytest.mark.parametrize("key", [lambda card: card.number, lambda card: fail(ValueError(card.number))])
def test_a_message_without_a_key_whose_function_gives_a_sensitive_value_is_dead_and_not_recorded(key: Any) -> None:
    world = Private(lambda card, ctx: None, key=key)
    body = json.dumps({"job": "test.pay", "payload": {"id": "c1", "number": SECRET}})
    world.backend.queues["standard"].send(body, now=world.backend.clock.now)
    world.backend.deliver("standard")
    assert "bad-key" in world.shown()
    assert world.backend.store.items == {}
    assert "9999" not in world.shown()


def test_an_upcaster_that_raises_tells_no_value_and_an_old_payload_is_sensitive_as_a_whole() -> None:
    def lift(old: dict[str, Any]) -> dict[str, Any]:
        if old["pan"] == SECRET:
            raise ValueError(old["pan"])
        return {"id": "c1", "number": old["pan"].upper()}

    old = {"job": "test.pay", "payload_version": 1}
    world = Private(lambda card, ctx: fail(ValueError(f"{card.number} hidden7 41119")), version=2, upcasters={1: lift})
    for pan in (SECRET, "hidden7"):
        body = json.dumps(old | {"payload": {"pan": pan, "count": 41119}})
        world.backend.queues["standard"].send(body, now=world.backend.clock.now)
    world.backend.deliver("standard")
    assert "41119" not in world.shown()
    assert "hidden7" not in world.shown().lower()
    assert "9999" not in world.shown()


def test_a_run_side_by_side_hides_its_own_values_too() -> None:
    side = Queue("side", workload=Workload.BULK, batch_size=5, parallel=5, job_timeout=timedelta(seconds=10))
    world = Private(lambda card, ctx: fail(ValueError(card.number)), side)
    for number in range(3):
        world.backend.producer.enqueue(call(world.job, replace(CARD, id=f"c{number}", number=f"number-{number}")))
    world.backend.deliver("side")
    assert "number-" not in world.shown()
    assert world.shown().count("<number>")


@dataclass(frozen=True)
class Payment:
    id: str
    iban: Annotated[str, Encrypted()]


def paying(behave: Callable[[Payment, JobContext], None], queue: Queue = STANDARD, **options: Any) -> Private:
    def run(payment: Payment, ctx: JobContext) -> None:
        behave(payment, ctx)

    world = Private(lambda card, ctx: None)
    with isolated():
        world.job = job("test.encrypt", queue=queue, key="id", retry=Retry(attempts=2), **options)(run)
    world.backend = Backend(Catalogue((world.job,)))
    return world


def test_an_encrypted_field_is_whole_in_the_job_and_nowhere_else() -> None:
    seen: list[str] = []

    def behave(payment: Payment, ctx: JobContext) -> None:
        seen.append(payment.iban)
        raise Permanent(f"no {payment.iban}")

    world = paying(behave)
    world.backend.producer.enqueue(call(world.job, Payment("p1", "DE0212030000")))
    (message,) = world.backend.queues["standard"].messages
    world.backend.deliver("standard")
    (dead,) = world.backend.dead["standard"].messages
    assert seen == ["DE0212030000"]
    assert dead.body == message.body
    for shown in (message.body, dead.body, world.shown()):
        assert "DE0212030000" not in shown
    assert "no <iban>" in world.shown()


def test_a_message_waits_uncharged_while_kms_is_down_and_runs_then() -> None:
    ran: list[str] = []
    world = paying(lambda payment, ctx: ran.append(payment.iban))
    backend = world.backend
    backend.producer.enqueue(call(world.job, Payment("p1", "DE0212030000")))
    backend.cipher.is_down = True
    for _ in range(10):
        backend.deliver("standard")
        backend.advance_to_next()
    assert (ran, backend.store.items) == ([], {})
    backend.cipher.is_down = False
    backend.deliver("standard")
    assert ran == ["DE0212030000"]
    assert backend.store.items["test.encrypt#p1"]["n"] == 0


def test_a_batch_waits_once_for_a_kms_that_does_not_answer_and_its_other_jobs_run() -> None:
    world = paying(lambda payment, ctx: None)
    ran: list[str] = []
    with isolated():
        plain: Any = job("test.plain", queue=STANDARD, key="id")(recording(ran))
    backend = world.backend = Backend(Catalogue((world.job, plain)))
    for number in range(4):
        backend.producer.enqueue(call(world.job, Payment(f"p{number}", "DE0212030000")))
    backend.producer.enqueue(call(plain, Open("o1")))
    asked = backend.cipher.calls
    decrypt = backend.cipher.decrypt

    def hang(text: str, /, *, job: str) -> str:
        backend.clock.advance(timedelta(seconds=7))
        return decrypt(text, job=job)

    backend.cipher.decrypt = hang  # type: ignore[method-assign]
    backend.cipher.is_down = True
    backend.deliver("standard")
    assert backend.cipher.calls == asked + 1
    assert ran == ["o1"]
    assert backend.dead["standard"].messages == []


def test_one_key_that_is_refused_puts_off_its_own_messages_only() -> None:
    world = paying(lambda payment, ctx: None)
    backend = world.backend
    for number in range(3):
        backend.producer.enqueue(call(world.job, Payment(f"p{number}", "DE0212030000")))
    first = backend.queues["standard"].messages[0].body
    sealed = json.loads(first)["sealed"]
    decrypt = backend.cipher.decrypt

    def refuse(text: str, /, *, job: str) -> str:
        if text == sealed:
            raise CipherUnavailable("AccessDenied")
        return decrypt(text, job=job)

    backend.cipher.decrypt = refuse  # type: ignore[method-assign]
    backend.deliver("standard")
    assert {id for id, item in backend.store.items.items() if item["status"] == "COMPLETED"} == {
        "test.encrypt#p1",
        "test.encrypt#p2",
    }


@dataclass(frozen=True)
class Open:
    id: str


def recording(ran: list[str]) -> Callable[[Open, JobContext], None]:
    def run(payload: Open, ctx: JobContext) -> None:
        ran.append(payload.id)

    return run


def test_a_duplicate_with_another_value_in_an_encrypted_field_is_a_duplicate() -> None:
    ran: list[str] = []
    world = paying(lambda payment, ctx: ran.append(payment.iban))
    for iban in ("DE-one-1", "DE-two-2"):
        world.backend.producer.enqueue(call(world.job, Payment("p1", iban)))
        world.backend.deliver("standard")
    assert ran == ["DE-one-1"]
    assert [run.decision.why for run in world.backend.journal.runs] == ["succeeded", "duplicate"]  # type: ignore[union-attr]


def test_what_a_job_commits_for_later_is_encrypted_too() -> None:
    with isolated():
        target: Any = job("test.target", queue=STANDARD, key="id")(expecting)
        source: Any = job("test.source", queue=STANDARD, key="id", sends=[target])(committing(lambda: target))
    backend = Backend(Catalogue((source, target)))
    backend.producer.enqueue(call(source, Payment("p1", "DE0212030000")))
    backend.deliver("standard")
    assert "DE0212030000" not in repr([backend.transactor.__dict__, backend.store.items])
    backend.transactor.relay(backend.clock())
    backend.deliver("standard")
    assert [run.job for run in backend.journal.runs] == ["test.source", "test.target"]


def expecting(payment: Payment, ctx: JobContext) -> None:
    assert payment.iban == "DE0212030000"


def committing(target: Callable[[], Any]) -> Callable[[Payment, JobContext], None]:
    def run(payment: Payment, ctx: JobContext) -> None:
        ctx.commit(enqueue=[call(target(), payment)])

    return run
