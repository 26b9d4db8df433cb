"""An accounting system: `python -m demo.accounting --port N`. A process of its own, as the real one would be.

It keeps one entry per Idempotency-Key, and now and then answers 429 or 503; chosen customers it refuses with 422.
`POST /outage {"seconds": 60}` has it answer 500 to everything for so long.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Ledger:
    """The entries, and what was asked. Faults depend on the key and its try, so that a run repeats."""

    refused: frozenset[str] = frozenset()
    entries: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    tries: dict[str, int] = field(default_factory=dict[str, int])
    answers: dict[str, int] = field(default_factory=dict[str, int])
    log: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    """Every answer: when, epoch seconds, and its status."""
    down_until: float = 0.0
    running: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def post(self, key: str, entry: dict[str, Any]) -> tuple[int, dict[str, Any], dict[str, str]]:
        """Status, body and headers of the answer."""
        with self.lock:
            self.tries[key] = self.tries.get(key, 0) + 1
            answer = self._answer(key, entry)
            self.log.append((time.time(), answer[0]))
            self.answers[str(answer[0])] = self.answers.get(str(answer[0]), 0) + 1
            return answer

    def _answer(self, key: str, entry: dict[str, Any]) -> tuple[int, dict[str, Any], dict[str, str]]:
        if time.time() < self.down_until:
            return 500, {"error": "out of order"}, {}
        if entry["customer"] in self.refused:
            return 422, {"error": "the account is closed"}, {}
        draw = int(hashlib.sha256(f"{key}{self.tries[key]}".encode()).hexdigest()[:8], 16) % 100
        if draw < 4:
            return 503, {"error": "try again"}, {}
        if draw < 8:
            return 429, {"error": "too many requests"}, {"Retry-After": "1"}
        if key in self.entries:
            return 200, self.entries[key], {}
        self.entries[key] = entry | {"entry": len(self.entries) + 1}
        return 201, self.entries[key], {}


def handler_for(ledger: Ledger) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/entries":
                seen = {"answers": ledger.answers, "most": ledger.most, "log": ledger.log}
                self._send(200, {"entries": ledger.entries} | seen, {})
            else:
                self._send(200 if self.path == "/health" else 404, {}, {})

        def do_POST(self) -> None:
            if self.path == "/outage":
                seconds = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["seconds"]
                ledger.down_until = time.time() + seconds
                self._send(200, {"until": ledger.down_until}, {})
                return
            with ledger.lock:
                ledger.running += 1
                ledger.most = max(ledger.most, ledger.running)
            try:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._send(*ledger.post(self.headers["Idempotency-Key"], body))
            finally:
                with ledger.lock:
                    ledger.running -= 1

        def _send(self, status: int, body: dict[str, Any], headers: dict[str, str]) -> None:
            payload = json.dumps(body).encode()
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(payload))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the base class's name
            """Quiet: the counts say it."""

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--refuse", default="", help="customer ids, comma-separated, that get 422")
    given = parser.parse_args()
    ledger = Ledger(refused=frozenset(filter(None, given.refuse.split(","))))
    ThreadingHTTPServer(("127.0.0.1", given.port), handler_for(ledger)).serve_forever()


if __name__ == "__main__":
    main()
