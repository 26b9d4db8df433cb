"""Start MiniStack with our corrections: `python -m infra.emulator.inside.server`. Set up by `Server`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final

from infra.emulator.inside import interpreter, mappings, partiql, queues, schedules, streams

TESTED: Final = "1.4.21"

Message = MutableMapping[str, Any]
Lifespan = Callable[[Message, Callable[..., Any], Callable[[Message], Awaitable[None]]], Coroutine[Any, Any, None]]


def main() -> None:
    found = version("ministack")
    if found != TESTED:
        sys.exit(f"The emulator is corrected for MiniStack {TESTED}, and {found} is installed. Run `make setup`.")
    interpreter.correct()
    partiql.correct()
    queues.correct()
    mappings.correct()
    schedules.correct()
    app: Any = import_module("ministack.app")
    app._handle_lifespan = _with_tasks(app._handle_lifespan)
    app.main()


def _with_tasks(stock: Lifespan) -> Lifespan:
    """MiniStack's start, plus our pollers as tasks of its event loop.

    All of its SQS state is touched by that loop alone: stock MiniStack polls from a thread, and a message sent while
    that thread rebuilds a queue's list is lost.
    """
    running: set[asyncio.Task[None]] = set()

    async def lifespan(scope: Message, receive: Callable[..., Any], send: Callable[[Message], Awaitable[None]]) -> None:
        async def announce(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                running.update(asyncio.create_task(run()) for run in (mappings.serve, streams.serve, schedules.fire))
            await send(message)

        await stock(scope, receive, announce)

    return lifespan


if __name__ == "__main__":
    main()
