"""sse-starlette as a candidate: `EventSourceResponse` over a queue per reader, the way it is mostly used.

`python -m bench.fanout.queued`. The server below it is the same: uvicorn with uvloop and httptools.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from itertools import count, islice

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bench.fanout.control import allow_files, announce, delta, line, obey
from turnlog.server.uvicorn_server import listen

Queue = asyncio.Queue[dict[str, str]]
queues: set[Queue] = set()
respond = import_module("sse_starlette").EventSourceResponse  # mypy may not find the package


async def follow(_: Request) -> Response:
    """A reader, subscribed before it is answered."""
    queue: Queue = asyncio.Queue()
    queues.add(queue)

    async def events() -> AsyncIterator[dict[str, str]]:
        try:
            while True:
                yield await queue.get()
        finally:
            queues.discard(queue)

    response: Response = respond(events())
    return response


async def publishing() -> None:
    """Put what is asked for into every queue."""
    numbers = count()

    async def emit(events: int) -> None:
        for number in islice(numbers, events):
            message = {"id": f"{number}:{'0' * 8}", "data": line(delta(number), number)}
            for queue in queues:
                queue.put_nowait(message)

    await obey(emit)


def build(port: int) -> Starlette:
    """The application; while it runs, it takes commands."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(publishing())
        announce(port, "/", [])
        yield
        task.cancel()

    return Starlette(routes=[Route("/", follow)], lifespan=lifespan)


def main() -> None:
    """Serve until a stop signal."""
    allow_files()
    listener = listen("127.0.0.1", 0)
    config = uvicorn.Config(
        build(listener.getsockname()[1]),
        log_level="warning",
        access_log=False,
        loop="uvloop",
        http="httptools",
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
