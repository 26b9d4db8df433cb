"""Invocations of one function side by side, each in a process that is kept for the next, as Lambda keeps its
environments. Stock MiniStack has one process for a function."""

from __future__ import annotations

import asyncio
import time
import uuid
from importlib import import_module
from typing import Any

from infra.emulator.inside.batch import Reply


class Invoker:
    """Used by one task of the event loop; only the wait for a process happens in a thread."""

    def __init__(self) -> None:
        self._idle: list[Any] = []
        self._runtime: Any = import_module("ministack.core.lambda_runtime")
        self._functions: Any = import_module("ministack.services.lambda_svc")

    async def invoke(self, function: dict[str, Any], event: dict[str, Any]) -> Reply:
        request, started = str(uuid.uuid4()), time.monotonic()
        process = self._process(function)
        try:
            # RuntimeError: the process could not start, for example because the handler's module cannot be imported.
            answer = await asyncio.to_thread(process.invoke, event, request)
        except RuntimeError as failure:
            answer = {"status": "error", "error": str(failure), "log": str(failure)}
        self._idle.append(process)
        failed = answer["status"] != "ok"
        log = "\n".join(filter(None, (answer.get("log"), answer.get("trace") or answer.get("error"))))
        took = int((time.monotonic() - started) * 1000)
        self._functions._emit_lambda_logs(function, request, log, failed, took)
        return Reply(error=answer.get("error", "failed")) if failed else Reply(answer.get("result"))

    def close(self) -> None:
        while self._idle:
            self._idle.pop().kill()

    def _process(self, function: dict[str, Any]) -> Any:
        """One that is idle and runs the code as deployed, or a new one."""
        config = function["config"]
        while self._idle:
            process = self._idle.pop()
            if process.config is config:
                return process
            process.kill()
        return self._runtime.Worker(config["FunctionName"], config, function["code_zip"])
