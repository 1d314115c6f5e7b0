"""Host applications with Turnlog inside: `python -m tests.e2e.mounted HOST FOLDER PORT` serves one."""

import contextlib
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from turnlog import Agent, App, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.agents.tools import ImageContent
from turnlog.app import Principal
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, Identity
from turnlog.state.history import Message

DOT = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c63606060f80f00010401005f0b2d5f0000000049454e44ae426082"
)
USERS = {"cookie-of-ada": Principal("ada"), "cookie-of-bob": Principal("bob")}


class Users:
    """The users that the host knows, by a cookie of its own."""

    async def authenticate(self, connection: HTTPConnection, now_s: float) -> Identity | None:
        principal = USERS.get(connection.cookies.get("user", ""))
        return Identity(principal) if principal else None


@tool
def draw() -> ImageContent:
    """Draw a dot."""
    return ImageContent(DOT, "image/png")


def script(messages: list[Message]) -> Iterator[str | ToolUse]:
    if messages[-1].content[-1]["type"] == "tool_result":
        yield "There it is."
    else:
        yield ToolUse("draw", {})


def turnlog_app(folder: str, auth: Any) -> Starlette:
    app = App("dots", Agent("Painter", "Draw.", Scripted(script), tools=(draw,)))
    return create_app(app, f"sqlite:///{folder}/log.db", auth=auth)


def in_fastapi(folder: str) -> FastAPI:
    """Its own lifespan runs that of Turnlog, and its own users are those of Turnlog."""
    inner = turnlog_app(folder, Users())

    @contextlib.asynccontextmanager
    async def lifespan(host: FastAPI) -> AsyncIterator[None]:
        host.state.ready = "yes"
        async with inner.router.lifespan_context(inner):
            yield

    host = FastAPI(lifespan=lifespan)

    @host.get("/hello")
    def hello() -> dict[str, str]:
        return {"ready": host.state.ready}

    host.mount("/log", inner)
    return host


async def hello(_: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


def in_starlette(folder: str) -> Starlette:
    """Two prefixes deep, with Turnlog's own sign-in; the lifespan of Turnlog is that of the host."""
    inner = turnlog_app(folder, BuiltinAuth(b"k" * 32))
    routes = [Route("/hello", hello), Mount("/a", routes=[Mount("/b", inner)])]
    return Starlette(routes=routes, lifespan=inner.router.lifespan_context)


def without_lifespan(folder: str) -> Starlette:
    """A host that has forgotten it."""
    return Starlette(routes=[Mount("/log", turnlog_app(folder, Users()))])


HOSTS: dict[str, Any] = {"fastapi": in_fastapi, "starlette": in_starlette, "forgotten": without_lifespan}


def main(name: str, folder: str, port: str) -> None:
    """Serve a host with plain uvicorn, as hosts are."""
    listener = socket.create_server(("127.0.0.1", int(port)))
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(HOSTS[name](folder), log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(*sys.argv[1:])
