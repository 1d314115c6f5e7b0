"""A server that answers each POST with given events, and keeps the requests: real HTTP on loopback."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tests.support.loopback import LoopbackServers
from tests.unit.adapters.scripted_runner import OneRunner, open_session
from turnlog import adapters
from turnlog.testing.runtimes.harness import RuntimeHarness

Json = dict[str, Any]
Respond = Callable[[Request], Awaitable[Response]]


def event(kind: str, **fields: Any) -> Json:
    return {"type": kind, **fields}


def say(text: str, message_id: str = "m1") -> list[Json]:
    return [
        event("TEXT_MESSAGE_START", messageId=message_id, role="assistant"),
        event("TEXT_MESSAGE_CONTENT", messageId=message_id, delta=text),
        event("TEXT_MESSAGE_END", messageId=message_id),
    ]


def call(call_id: str, tool: str = "confirm", args: str = "{}") -> list[Json]:
    return [
        event("TOOL_CALL_START", toolCallId=call_id, toolCallName=tool),
        event("TOOL_CALL_ARGS", toolCallId=call_id, delta=args),
        event("TOOL_CALL_END", toolCallId=call_id),
    ]


def run(*events: Json, **end: Any) -> list[Json]:
    return [event("RUN_STARTED"), *events, event("RUN_FINISHED", threadId="t", runId="r", **end)]


def encode(*events: Json) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(item).encode() for item in events)


class Peer:
    """Answers the runs of a test in their order; `bodies` and `headers` are those of its requests."""

    def __init__(self, *runs: Sequence[Json] | Respond) -> None:
        self._runs = list(runs)
        self.bodies: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.application = Starlette(routes=[Route("/{path:path}", self._answer, methods=["POST"])])

    async def _answer(self, request: Request) -> Response:
        self.headers.append(dict(request.headers))
        self.bodies.append(await request.json())
        answer = self._runs.pop(0)
        if callable(answer):
            return await answer(request)
        return Response(encode(*answer), media_type="text/event-stream")


def respond(body: bytes = b"", status: int = 200, **headers: str) -> Respond:
    """Make an answer with these bytes and headers."""
    fields = {"content-type": "text/event-stream", **{k.replace("_", "-"): v for k, v in headers.items()}}

    async def answer(_: Request) -> Response:
        return Response(body, status, fields)

    return answer


def hang_after(*events: Json, closed: asyncio.Event) -> Respond:
    """Make an answer that never ends. `closed` is set when its client is gone."""

    async def stream() -> AsyncIterator[bytes]:
        try:
            yield encode(*events)
            await asyncio.get_running_loop().create_future()
        finally:
            closed.set()

    async def answer(_: Request) -> Response:
        return StreamingResponse(stream(), media_type="text/event-stream")

    return answer


def talk(
    peer: Peer, act: Callable[[RuntimeHarness], Awaitable[Any]], path: str = "/agent", **options: Any
) -> None:
    """Open a session whose agent is behind a server, and act in it."""

    async def scenario() -> None:
        async with asyncio.timeout(60), LoopbackServers() as servers:
            url = servers.start(peer.application)
            agent = adapters.ag_ui(url + path, name="Lead", **options)
            async with open_session(OneRunner(agent.runner)) as session:
                await act(session)
                await session.check_laws()

    asyncio.run(scenario())
