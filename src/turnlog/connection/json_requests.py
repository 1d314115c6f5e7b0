"""JSON requests to a server: each is sent again while the server cannot answer, and has its effect once.

A request that changes something carries a key, or events with ids: the server recognises one that it has
answered already. After `RETRY.max_attempts` the last `ServerUnavailable` is raised. A refusal raises
`ServerRefused` with the status and the text of the server.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from turnlog.agents.remote.server_client import TOO_MANY_REQUESTS, ServerClient, ServerUnavailable
from turnlog.agents.retry import RetryPolicy
from turnlog.errors import PeerError, quote

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]

RETRY = RetryPolicy(max_attempts=8, initial_delay_s=0.1, max_delay_s=10.0)  # a restart takes a few seconds
MAX_RESPONSE_BYTES = 16 << 20  # a page of sessions has some 100 KiB, the state of an application may be large
MAX_REFUSAL_CHARS = 500


class ServerRefused(PeerError):
    """The server refused a request: `status` is that of HTTP, the message says what the server said."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(f"the server refused with {status}: {problem}")
        self.status = status
        self.problem = problem


class Refusal(msgspec.Struct):
    """The body of a response that refuses."""

    error: str


class JsonRequests:
    """Sends JSON to one server and decodes what it answers."""

    def __init__(self, client: ServerClient, sleep: Sleep = asyncio.sleep) -> None:
        self.client = client
        self.sleep = sleep

    async def get(self, path: str, type_: type[T]) -> T:
        async def send() -> tuple[int, bytes]:
            return await self.client.get(path, MAX_RESPONSE_BYTES)

        return decode_response(path, await self._send_until_answered(send), type_)

    async def post(self, path: str, body: Any, type_: type[T], headers: Mapping[str, str] | None = None) -> T:
        data = msgspec.json.encode(body)

        async def send() -> tuple[int, bytes]:
            return await self.client.post(path, data, MAX_RESPONSE_BYTES, headers or {})

        return decode_response(path, await self._send_until_answered(send), type_)

    async def _send_until_answered(self, send: Callable[[], Awaitable[tuple[int, bytes]]]) -> bytes:
        """Return the body of the first response that accepts. Raise `ServerRefused` for one that refuses."""
        failures = 0
        while True:
            try:
                status, body = await send()
                if 200 <= status < 300:
                    return body
                if status < 500 and status != TOO_MANY_REQUESTS:
                    raise ServerRefused(status, read_refusal(body))
                raise ServerUnavailable(f"the server answered {status}: {read_refusal(body)}")
            except ServerUnavailable as error:
                failures += 1
                if failures >= RETRY.max_attempts:
                    problem = f"{self.client.base_url} did not answer after {failures} tries: {error}"
                    raise ServerUnavailable(problem) from error
                await self.sleep(RETRY.delay_s(failures))


def read_refusal(body: bytes) -> str:
    """Return the message of a response that refuses."""
    try:
        return msgspec.json.decode(body, type=Refusal).error[:MAX_REFUSAL_CHARS]
    except msgspec.DecodeError:
        return quote(body[:MAX_REFUSAL_CHARS].decode(errors="replace"))


def decode_response(path: str, body: bytes, type_: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.DecodeError as error:
        raise PeerError(f"expected an answer of a Turnlog server to {path}: {error}") from None
