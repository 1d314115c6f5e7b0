"""Servers on loopback in the event loop of a test: real HTTP, and all of them end with the test."""

import asyncio
import socket
from contextlib import nullcontext
from types import TracebackType
from typing import Any

import uvicorn

GRACE_S = 1  # for connections of clients that have gone


class LoopbackServers:
    """Serves ASGI applications while it is entered. `start` returns at once: the listener queues requests."""

    def __init__(self) -> None:
        self._servers: list[tuple[uvicorn.Server, asyncio.Task[None], socket.socket]] = []

    async def __aenter__(self) -> "LoopbackServers":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server, _, _ in self._servers:
            server.should_exit = True
        for _, task, listener in self._servers:
            await task
            listener.close()

    def start(self, application: Any) -> str:
        """Serve an application. Return its address."""
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            application, log_config=None, log_level="critical", timeout_graceful_shutdown=GRACE_S
        )
        server = uvicorn.Server(config)
        server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
        task = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
        self._servers.append((server, task, listener))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"
