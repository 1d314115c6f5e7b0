"""Turnlog as a candidate: the server that `turnlog serve` runs, and appends to its log from inside.

`python -m bench.fanout.served LOG_URL`. The events are real ones of a real session, appended with
`Log.append` in the process that serves them; readers come to `GET /api/events`, as one principal.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count, islice

from starlette.applications import Starlette

from bench.fanout.control import SESSION, allow_files, announce, begin, delta, obey
from bench.fanout.measure import READERS
from turnlog import App
from turnlog.agents import Agent
from turnlog.agents.models.scripted import Scripted
from turnlog.app import LOCAL, Sessions
from turnlog.log import Log
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.server.limits import Limits
from turnlog.server.uvicorn_server import listen, serve

TOKEN = "a-token-of-nobody-but-this-bench"


def opened(application: Starlette) -> Sessions:
    """The sessions of the running server."""
    sessions: Sessions = application.state.session_access.sessions
    return sessions


async def appending(log: Log) -> None:
    """Append what is asked for."""
    numbers = count()

    async def emit(events: int) -> None:
        await log.append(SESSION, [delta(number) for number in islice(numbers, events)])

    await obey(emit)


def build(log_url: str, port: int) -> Starlette:
    """The application; while it runs, it has a session and takes commands."""
    app = App("fanout", Agent("Nobody", "Nobody is asked.", Scripted(lambda _: [])))
    auth = BuiltinAuth(b"no link is signed with it", {hash_token(TOKEN): LOCAL})
    application = create_app(
        app, log_url, auth=auth, limits=Limits(program_streams=READERS, program_burst=READERS)
    )
    inner = application.router.lifespan_context

    @asynccontextmanager
    async def lifespan(running: Starlette) -> AsyncIterator[None]:
        async with inner(running):
            sessions = opened(application)
            await sessions.create(LOCAL, session_id=SESSION)
            await sessions.log.append(SESSION, [begin()])
            task = asyncio.create_task(appending(sessions.log))
            announce(port, f"/api/events?session={SESSION}", [f"Authorization: Bearer {TOKEN}"])
            yield
            task.cancel()

    application.router.lifespan_context = lifespan
    return application


def main(log_url: str) -> None:
    """Serve until a stop signal."""
    allow_files()
    listener = listen("127.0.0.1", 0)
    serve(build(log_url, listener.getsockname()[1]), listener)


if __name__ == "__main__":
    main(*sys.argv[1:])
