"""Encrypted fields leave the payload when it is sent, and come back only into the message they were sent with."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomjobs import BadPayload, CipherUnavailable, ConfigurationError, Encrypted, JobContext, call
from loomjobs.core import defaults
from loomjobs.core.address import address
from loomjobs.core.catalogue import Catalogue
from loomjobs.core.decision import DeadLetter, DeferFor
from loomjobs.core.envelope import Envelope
from loomjobs.core.outgoing import Origin
from loomjobs.core.sealed import has_encrypted, seal, unseal
from loomjobs.core.sensitive import is_marked
from loomjobs.core.work import Unworkable, Work, understand
from loomjobs.local.cipher import MemoryCipher
from tests.core.catalogue_fixture import BILLING, LEDGER, catalogue, declare
from tests.core.test_messages import NOW, delivery


@dataclass(frozen=True)
class Person:
    name: Annotated[str, Encrypted()]
    city: str = ""


@dataclass(frozen=True)
class Payment:
    id: str
    iban: Annotated[str | None, Encrypted()] = None
    people: tuple[Person, ...] = ()
    limits: Annotated[dict[str, int] | None, Encrypted] = None


def pay(payment: Payment, ctx: JobContext) -> None: ...


@dataclass(frozen=True)
class PlainPayment:
    id: str
    iban: str | None = None


def plain_pay(payment: PlainPayment, ctx: JobContext) -> None: ...


PAY = declare("billing.pay", BILLING, pay, key="id")
PAYMENT = Payment("p1", "DE0212", (Person("Ada", "Bonn"), Person("Zoë")), {"day": 5})


def sent(payment: Payment = PAYMENT, job: Any = PAY, *, id: str = "i1", cipher: Any = None) -> dict[str, Any]:
    body = address(call(job, payment), id=id, now=NOW, origin=Origin(), cipher=cipher or MemoryCipher()).body
    known: dict[str, Any] = json.loads(body)
    return known


def got(body: dict[str, Any], *, cipher: Any = None, known: Catalogue | None = None, **more: Any) -> Work | Unworkable:
    return understand(delivery(json.dumps(body), **more), known or catalogue(PAY), cipher or MemoryCipher())


def test_only_the_mask_travels_in_the_payload_and_the_worker_has_it_whole() -> None:
    body = sent()
    assert body["payload"] == {
        "id": "p1",
        "iban": "*****",
        "people": [{"name": "*****", "city": "Bonn"}, {"name": "*****", "city": ""}],
        "limits": "*****",
    }
    for hidden in ("DE0212", "Ada", "Zo", "day"):
        assert hidden not in json.dumps(body)
    work = got(body)
    assert isinstance(work, Work)
    assert work.payload == PAYMENT
    assert ("iban", "DE0212") in work.secrets


@given(
    st.none() | st.text(st.characters(exclude_categories=["Cs"])), st.dictionaries(st.text("ab*"), st.integers(-9, 9))
)
def test_whatever_was_encrypted_comes_back(iban: str | None, limits: dict[str, int]) -> None:
    payment = Payment("p1", iban, (Person(iban or "*****"),), limits)
    work = got(sent(payment))
    assert isinstance(work, Work)
    assert work.payload == payment


def test_the_hash_and_a_fifo_deduplication_id_are_the_same_each_time_and_say_nothing_about_the_values() -> None:
    one, other = got(sent(id="i1")), got(sent(replace(PAYMENT, iban="other"), id="i2"))
    assert isinstance(one, Work)
    assert isinstance(other, Work)
    assert one.payload_hash == other.payload_hash
    ordered = declare("billing.pay", LEDGER, pay, key="id", group="id")
    ids = {
        address(
            call(ordered, replace(PAYMENT, iban=iban)), id="i", now=NOW, origin=Origin(), cipher=MemoryCipher()
        ).dedup
        for iban in ("DE1", "DE2")
    }
    assert len(ids) == 1


def dead(found: Work | Unworkable) -> str:
    assert isinstance(found, Unworkable)
    assert isinstance(found.decision, DeadLetter)
    assert found.decision.reason == "bad-payload"
    assert found.decision.failure is not None
    return found.decision.failure.message


def test_a_ciphertext_of_another_message_or_job_is_refused() -> None:
    other = sent(id="i2")
    assert "another message" in dead(got(sent() | {"sealed": other["sealed"]}))
    assert "another message" in dead(got(sent() | {"id": "i3"}))
    foreign = sent(job=declare("billing.other", BILLING, pay, key="id"))
    assert "another job" in dead(got(sent() | {"sealed": foreign["sealed"]}))
    assert "were changed" in dead(got(sent() | {"sealed": "!!"}))


@pytest.mark.parametrize(
    "payload",
    [
        {"id": "p1", "iban": "DE99", "people": [], "limits": "*****"},
        {"id": "p1", "iban": "*****", "limits": "*****"},
        {"id": "p1", "iban": "*****", "people": [{"name": "*****"}], "limits": "*****"},
        [],
        "*****",
        None,
    ],
)
def test_a_payload_that_was_changed_around_its_ciphertext_is_refused(payload: object) -> None:
    assert "do not fit the rest" in dead(got(sent() | {"payload": payload}))


def test_what_a_cipher_gives_back_is_not_trusted_to_have_the_right_form() -> None:
    cipher = MemoryCipher()
    for text in ("[]", "1", "{}", '{"id": "i1"}', '{"id": "i1", "fields": [1]}', "no JSON"):
        assert "do not fit" in dead(got(sent() | {"sealed": cipher.encrypt(text, job="billing.pay")}))


def test_a_payload_without_ciphertext_is_taken_as_it_is() -> None:
    """Messages from before the field was marked, and of producers in other languages."""
    body = {"job": "billing.pay", "payload": {"id": "p1", "iban": "DE0212"}}
    work = got(body)
    assert isinstance(work, Work)
    assert work.payload == Payment("p1", "DE0212")


@pytest.mark.parametrize("v", [1, 2])
def test_masks_are_never_taken_for_values(v: int) -> None:
    """A tool between the queues may drop a member that it does not know."""
    body = sent() | {"v": v}
    del body["sealed"]
    assert "lost on the way" in dead(got(body))


def test_a_worker_that_does_not_know_encrypted_fields_sees_a_newer_version() -> None:
    assert sent()["v"] == 2


def test_a_worker_from_before_the_field_was_marked_opens_it_too() -> None:
    unmarked = declare("billing.pay", BILLING, plain_pay, key="id")
    work = got(sent(), known=catalogue(unmarked))
    assert isinstance(work, Work)
    assert work.payload.iban == "DE0212"


def test_a_ciphertext_is_opened_under_the_name_that_the_job_had() -> None:
    renamed = declare("billing.pay-out", BILLING, pay, key="id", aliases=["billing.pay"])
    work = got(sent(), known=catalogue(renamed))
    assert isinstance(work, Work)
    assert work.payload == PAYMENT


def test_upcasters_see_the_whole_payload() -> None:
    lifted = declare(
        "billing.pay", BILLING, pay, key="id", version=2, upcasters={1: lambda old: old | {"id": old["iban"]}}
    )
    work = got(sent(), known=catalogue(lifted))
    assert isinstance(work, Work)
    assert work.payload.id == "DE0212"


def test_while_the_cipher_is_down_a_message_waits_and_in_the_end_is_dead() -> None:
    cipher = MemoryCipher(is_down=True)
    early = got(sent(), cipher=cipher)
    assert isinstance(early, Unworkable)
    assert early.decision == DeferFor(60.0, "its encrypted fields cannot be decrypted now")
    late = got(sent(), cipher=cipher, receives=defaults.CIPHER_RECEIVES)
    assert "switched off" in dead(late)
    no_key = understand(delivery(json.dumps(sent())), catalogue(PAY))
    assert isinstance(no_key, Unworkable)
    assert isinstance(no_key.decision, DeferFor)


def test_a_producer_without_cipher_or_whose_cipher_is_down_sends_nothing() -> None:
    with pytest.raises(ConfigurationError, match="no cipher="):
        address(call(PAY, PAYMENT), id="i", now=NOW, origin=Origin())
    with pytest.raises(CipherUnavailable):
        sent(cipher=MemoryCipher(is_down=True))


def test_a_job_without_encrypted_fields_needs_no_cipher() -> None:
    plain = declare("billing.plain")
    assert not has_encrypted(plain.payload_type)
    assert seal(plain, b"{}", id="i", cipher=None).ciphertext is None
    assert has_encrypted(Payment)
    assert is_marked(Payment)


def test_without_a_cipher_nothing_is_unsealed() -> None:
    with pytest.raises(ConfigurationError, match="deploy it again"):
        unseal({}, "text", job="billing.pay", id="i", cipher=None)
    with pytest.raises(BadPayload):
        unseal({}, "text", job="billing.pay", id="i", cipher=MemoryCipher())


def test_an_envelope_without_sealed_fields_has_no_such_member() -> None:
    body = address(call(declare("billing.write"), declare_payload()), id="i", now=NOW, origin=Origin()).body
    assert "sealed" not in json.loads(body)
    assert Envelope.parse(body).sealed is None


def declare_payload() -> Any:
    from datetime import date

    from tests.core.catalogue_fixture import Statement

    return Statement("c1", date(2026, 1, 1))
