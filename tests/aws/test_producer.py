"""A producer with clients and settings of its own, on the embedded AWS."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import date
from typing import Any

import boto3
import pytest

from loomjobs import Producer, call, enqueue
from loomjobs.core import names
from loomjobs.core.errors import ConfigurationError, InvalidOption
from tests.aws.conftest import Aws
from tests.core.catalogue_fixture import Statement, declare

WRITE = declare("billing.write")
ONE = Statement("c1", date(2026, 1, 1))


def keys(aws: Aws) -> list[str]:
    found: list[str] = []
    while records := aws.receive("billing")["Records"]:
        found += [record["body"] for record in records]
    return found


def test_queues_by_url_need_no_environment(aws: Aws) -> None:
    producer = Producer(queues={"billing": aws.urls["billing"]})
    assert producer.enqueue(WRITE, ONE).outcome == "accepted"
    assert producer.enqueue_many(WRITE, [ONE, ONE]).accepted == 2
    assert producer.enqueue_many([call(WRITE, ONE)]).accepted == 1
    assert asyncio.run(producer.aenqueue(WRITE, ONE, key="k")).key == "k"
    assert asyncio.run(producer.aenqueue_many(WRITE, [ONE])).accepted == 1
    assert len(keys(aws)) == 6


def test_its_environment_and_application_go_before_the_process_s(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    boto3.client("ssm").put_parameter(Name="/books/prod/queues/billing/url", Value=aws.urls["billing"], Type="String")
    monkeypatch.setenv(names.ENV, "dev")
    Producer("prod", app="books").enqueue(WRITE, ONE)
    assert len(keys(aws)) == 1
    with pytest.raises(ConfigurationError, match="/books/test/queues/billing/url"):
        Producer("test", app="books").enqueue(WRITE, ONE)
    monkeypatch.setenv(names.APP, "books")
    monkeypatch.setenv(names.ENV, "prod")
    Producer().enqueue(WRITE, ONE)


def test_inside_a_worker_it_still_finds_queues_of_other_environments(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    boto3.client("ssm").put_parameter(Name="/loomjobs/two/queues/billing/url", Value=aws.urls["billing"], Type="String")
    monkeypatch.setenv(names.QUEUE, "mail")
    Producer("two").enqueue(WRITE, ONE)
    assert len(keys(aws)) == 1


def test_a_session_of_another_account_sends_there(aws: Aws) -> None:
    other = boto3.session.Session(aws_access_key_id="200000000001", aws_secret_access_key="x")
    there = other.client("sqs")
    url = there.create_queue(QueueName="billing")["QueueUrl"]
    other.client("ssm").put_parameter(Name="/loomjobs/dev/queues/billing/url", Value=url, Type="String")
    Producer("dev", session=other).enqueue(WRITE, ONE)
    assert len(there.receive_message(QueueUrl=url)["Messages"]) == 1
    assert keys(aws) == []


def test_bound_sends_what_enqueue_sends_in_its_block(aws: Aws) -> None:
    producer = Producer(queues={"billing": aws.urls["billing"]})
    with producer.bound():
        enqueue(WRITE, ONE)
    with pytest.raises(ConfigurationError, match="Set LOOMJOBS_ENV"):
        enqueue(WRITE, ONE)
    assert len(keys(aws)) == 1


def test_without_an_environment_the_error_names_the_setting_and_the_argument(aws: Aws) -> None:
    with pytest.raises(ConfigurationError, match=r"Set LOOMJOBS_ENV .* or use an explicit Producer"):
        Producer().enqueue(WRITE, ONE)


@pytest.mark.parametrize("senders", [0, -1, 65])
def test_a_number_of_senders_that_makes_no_sense_is_refused(senders: int) -> None:
    with pytest.raises(InvalidOption, match=f"senders={senders} is not a number from 1 to 64"):
        Producer("dev", senders=senders)


def test_threads_share_one_from_their_first_send_on_and_nothing_is_lost_or_doubled(aws: Aws) -> None:
    """B067: client creation guarded, a pool as large as its users."""
    producer = Producer(queues={"billing": aws.urls["billing"]}, senders=16)
    start = threading.Barrier(50)
    ids: list[str] = []

    def send(thread: int) -> None:
        start.wait()
        ids.extend(producer.enqueue(WRITE, ONE, key=f"{thread}/{number}").id for number in range(4))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bodies = keys(aws)
    assert len(bodies) == 200
    assert len(ids) == len(set(ids)) == 200


def test_the_pool_of_connections_is_as_large_as_the_senders(aws: Aws) -> None:
    from loomjobs.aws import clients

    made: Any = clients.make("sqs", clients.own_session(), connections=33)
    assert made.meta.config.max_pool_connections == 33


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("explicit", [True, False])
def test_a_forked_process_makes_connections_of_its_own(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, explicit: bool
) -> None:
    """B067: what gunicorn and Celery's prefork do after the application was loaded."""
    monkeypatch.setenv(names.queue_url_key("billing"), aws.urls["billing"])
    send = Producer(queues={"billing": aws.urls["billing"]}).enqueue if explicit else enqueue
    send(WRITE, ONE, key="parent")
    children = []
    for child in range(3):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                for number in range(20):
                    send(WRITE, ONE, key=f"{child}/{number}")
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
    for number in range(20):
        send(WRITE, ONE, key=f"parent/{number}")
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
    bodies = keys(aws)
    assert len(bodies) == len(set(bodies)) == 81
