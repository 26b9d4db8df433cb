"""Encrypted fields through Powertools and the AWS Encryption SDK, with a KMS key of the embedded AWS."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest

from loomjobs import BadPayload, CipherUnavailable, ConfigurationError, Producer, enqueue
from loomjobs.aws import cipher as module
from loomjobs.aws import connect
from loomjobs.aws.cipher import KmsCipher
from loomjobs.aws.places import Places
from loomjobs.core import names
from tests.aws.conftest import Aws, Context, failed
from tests.core.test_sealed import PAY, PAYMENT

pytest.importorskip("aws_encryption_sdk", reason="`make setup` brings it")

TEXT = '{"id": "i1", "fields": [[["iban"], "Zoë ☃"]]}'


@pytest.fixture
def key(account: str) -> str:
    return str(boto3.client("kms").create_key()["KeyMetadata"]["Arn"])


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operations that KMS was asked for."""
    seen: list[str] = []
    make = module.clients.kms_session

    def watched() -> Any:
        session = make()
        session._session.register("before-call.kms.*", lambda model, **_: seen.append(model.name))
        return session

    monkeypatch.setattr(module.clients, "kms_session", watched)
    return seen


def test_a_text_comes_back_for_its_job_only(key: str) -> None:
    cipher = KmsCipher(lambda: key)
    sealed = cipher.encrypt(TEXT, job="billing.pay")
    assert "iban" not in sealed
    assert KmsCipher(lambda: key).decrypt(sealed, job="billing.pay") == TEXT
    with pytest.raises(BadPayload, match="not those of a message of this job"):
        cipher.decrypt(sealed, job="billing.other")


@pytest.mark.parametrize(
    "change", [lambda text: text[:-8] + "AAAAAAA=", lambda text: text[:40], lambda text: "!!", lambda text: ""]
)
def test_a_changed_ciphertext_is_refused(key: str, change: Any) -> None:
    cipher = KmsCipher(lambda: key)
    with pytest.raises(BadPayload):
        cipher.decrypt(change(cipher.encrypt(TEXT, job="billing.pay")), job="billing.pay")


def test_sending_asks_kms_once_for_each_job_and_decrypting_once_for_each_message(key: str, calls: list[str]) -> None:
    cipher = KmsCipher(lambda: key)
    sealed = [cipher.encrypt(TEXT, job="billing.pay") for _ in range(5)]
    assert calls == ["GenerateDataKey"]
    assert len(set(sealed)) == 5
    cipher.encrypt(TEXT, job="billing.other")
    assert calls == ["GenerateDataKey"] * 2
    for text in sealed[:2]:
        cipher.decrypt(text, job="billing.pay")
    assert calls[2:] == ["Decrypt"] * 2


def test_a_key_that_is_not_there_or_not_granted_is_no_fault_of_the_message(key: str) -> None:
    gone = "arn:aws:kms:eu-west-1:123456789012:key/00000000-0000-4000-8000-000000000000"
    with pytest.raises(CipherUnavailable, match=r"KMS gave no data key: .+"):
        KmsCipher(lambda: gone).encrypt(TEXT, job="billing.pay")
    sealed = KmsCipher(lambda: key).encrypt(TEXT, job="billing.pay")
    with pytest.raises(CipherUnavailable, match="KMS did not decrypt"):
        KmsCipher(lambda: gone).decrypt(sealed, job="billing.pay")


def test_a_session_of_its_own_is_used(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session = boto3.session.Session()
    seen: list[str] = []
    session.events.register("before-call.kms.*", lambda model, **_: seen.append(model.name))
    KmsCipher(lambda: key, session=session).encrypt(TEXT, job="billing.pay")
    assert seen == ["GenerateDataKey"]


def test_a_worker_decrypts_what_a_producer_sent_and_a_dead_letter_has_no_value(
    aws: Aws, key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(names.queue_url_key("billing"), aws.urls["billing"])
    monkeypatch.setenv(names.KEY, key)
    connect.forget()
    enqueue(PAY, PAYMENT)
    event = aws.receive("billing")
    (record,) = event["Records"]
    body = json.loads(record["body"])
    assert body["payload"]["iban"] == "*****"
    assert "DE0212" not in record["body"]
    seen: list[Any] = []
    monkeypatch.setattr(PAY, "function", lambda payment, ctx: seen.append(payment) or fail())
    assert failed(handler(aws, key)(event, Context())) == []
    assert seen == [PAYMENT]
    (dead,) = aws.receive("billing-dlq")["Records"]
    assert dead["body"] == record["body"]
    for text in (capsys.readouterr().out, json.dumps(aws.item("billing.pay#p1")), json.dumps(dead)):
        assert "DE0212" not in text
        assert "Ada" not in text


def test_a_worker_whose_key_is_gone_leaves_the_message_in_the_queue(
    aws: Aws, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(queues={"billing": aws.urls["billing"]}, key=key, session=boto3.session.Session())
    producer.enqueue(PAY, PAYMENT)
    event = aws.receive("billing")
    gone = key[:-4] + "0000"
    assert len(failed(handler(aws, gone)(event, Context()))) == 1
    assert aws.item("billing.pay#p1") is None


def test_the_key_is_found_through_ssm_outside_of_workers(key: str) -> None:
    boto3.client("ssm").put_parameter(Name="/loomjobs/dev/foundation/key/arn", Value=key, Type="String")
    connect.clients.forget()
    assert Places({names.ENV: "dev"}).key() == key
    assert Places({names.KEY: "given"}).key() == "given"
    with pytest.raises(ConfigurationError, match="was not given the key"):
        Places({names.QUEUE: "billing"}).key()
    connect.clients.forget()


def handler(aws: Aws, key: str) -> Any:
    from loomjobs.aws import process
    from loomjobs.aws.handler import make_handler
    from tests.core.catalogue_fixture import catalogue

    return make_handler(process.worker_process(aws.environment("billing") | {names.KEY: key}, catalogue(PAY)))


def fail() -> None:
    from loomjobs import Permanent

    raise Permanent(f"not {PAYMENT}")
