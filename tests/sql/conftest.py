"""A PostgreSQL server of the tests' own, on a loopback port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from loomjobs.sql import SqlOutbox

SERVERS = (*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/opt/homebrew/opt").glob("postgresql@*/bin"))


def program(name: str) -> str | None:
    """A program of the server, on PATH or where distributions put it."""
    beside = os.pathsep.join(map(str, SERVERS))
    return shutil.which(name) or shutil.which(name, path=beside)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of a new server. Needs the machine's PostgreSQL (Debian: apt-get install postgresql)."""
    initdb, postgres = program("initdb"), program("postgres")
    if initdb is None or postgres is None:
        pytest.skip("there is no PostgreSQL server on this machine")
    user = "nobody" if os.geteuid() == 0 else None  # the server does not run as root
    with tempfile.TemporaryDirectory(prefix="loomjobs-sql-", ignore_cleanup_errors=True) as folder:
        if user is not None:
            shutil.chown(folder, user)
        data = f"{folder}/data"
        init = [initdb, "-D", data, "-A", "trust", "-U", "loom", "--no-sync", "-E", "UTF8", "--locale=C"]
        subprocess.run(init, check=True, capture_output=True, user=user, cwd=folder)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = ["-p", str(port), "-c", "listen_addresses=127.0.0.1", "-k", folder, "-c", "fsync=off"]
        running = subprocess.Popen(
            [postgres, "-D", data, *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=user,
            cwd=folder,
        )
        try:
            address = f"postgresql://loom@127.0.0.1:{port}/postgres"
            _wait(address)
            yield address
        finally:
            running.terminate()
            running.wait(20)


def _wait(address: str) -> None:
    import time

    limit = time.monotonic() + 20
    while True:
        try:
            psycopg.connect(address, connect_timeout=1).close()
        except psycopg.OperationalError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.05)
        else:
            return


@pytest.fixture
def connection(server: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection with an empty outbox and a table of the application's."""
    with psycopg.connect(server) as made:
        made.execute("DROP TABLE IF EXISTS loomjobs_outbox, orders")
        made.execute("CREATE TABLE orders (id text PRIMARY KEY)")
        SqlOutbox().create(made)
        made.commit()
        yield made
        made.rollback()
