"""The guard of tests/conftest.py works: a test that would reach the network or an AWS account fails."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"


@pytest.mark.parametrize("address", ["192.0.2.1", "10.0.0.1", "0.0.0.0"])
def test_a_connection_to_the_outside_is_refused(address: str) -> None:
    with socket.socket() as sock, pytest.raises(Exception, match="only use loopback"):
        sock.connect((address, 443))


def test_a_name_lookup_of_the_outside_is_refused() -> None:
    with pytest.raises(Exception, match="only use loopback"):
        socket.create_connection(("example.com", 443))


def test_a_server_on_all_interfaces_is_refused() -> None:
    with socket.socket() as sock, pytest.raises(Exception, match="only use loopback"):
        sock.bind(("0.0.0.0", 0))


def test_loopback_connections_work() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(("localhost", server.getsockname()[1])) as client:
            client.sendall(b"hello")
        connection, _ = server.accept()
        with connection:
            assert connection.recv(5) == b"hello"


def test_the_environment_of_the_machine_does_not_reach_the_tests() -> None:
    machine = {
        "AWS_PROFILE": "prod",
        "AWS_REGION": "us-east-1",
        "LOOMJOBS_ENV": "prod",
        "POWERTOOLS_DEV": "1",
    }
    script = f"import os, runpy; runpy.run_path({str(CONFTEST)!r}); print(*sorted(os.environ))"
    result = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | machine, capture_output=True, text=True, check=True
    )
    assert not machine.keys() & set(result.stdout.split())


def test_local_time_is_not_utc() -> None:
    assert datetime.now().astimezone().utcoffset()
