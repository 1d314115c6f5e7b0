"""Any runtime under the contract, served by a worker: reports go as JSON through the routes of a server.

The worker is in this process and nothing goes over a network. Bodies, routes, statuses and refusals are
those of a server.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from starlette.requests import Request

from turnlog import App, adapters
from turnlog.agents.remote.server_client import ServerUnavailable
from turnlog.app import Principal
from turnlog.connection.json_requests import JsonRequests, ServerRefused, read_refusal
from turnlog.connection.part_worker import PartWorker
from turnlog.errors import TurnlogError
from turnlog.events.roles import SOURCE
from turnlog.server.auth.credentials import Identity
from turnlog.server.error_responses import error_response
from turnlog.server.request_body import make_decoder_executor
from turnlog.server.routes.parts import PartRoutes
from turnlog.server.scope_keys import IDENTITY_KEY
from turnlog.server.session_access import SessionAccess
from turnlog.server.streaming.streams import StreamRegistry
from turnlog.testing.runtimes import AgentScript, Feature, RuntimeUnderTest, ScriptRecord

APP = "contract"
WORKER = Principal("worker", frozenset({SOURCE}))


class Served:
    """Another runtime, whose parts a worker runs. With `loses_answers` every first answer is lost."""

    def __init__(self, inner: RuntimeUnderTest, *, loses_answers: bool = False) -> None:
        self._inner = inner
        self._loses_answers = loses_answers

    @property
    def features(self) -> frozenset[Feature]:
        return self._inner.features

    def __str__(self) -> str:
        name = f"Served{type(self._inner).__name__}"
        return f"{name}WithLosses" if self._loses_answers else name

    def make_agent(self, script: AgentScript, record: ScriptRecord) -> adapters.RemoteAgent:
        agent = self._inner.make_agent(script, record)
        assert isinstance(agent, adapters.ForeignAgent)
        remote_agent = adapters.RemoteAgent(script.name, takes_client_tools=agent.takes_client_tools)
        requests = RoutedRequests(remote_agent)
        if self._loses_answers:
            requests = LossyRequests(remote_agent)
        start_worker(requests, agent.runner)
        return remote_agent


def start_worker(requests: "RoutedRequests", runner: adapters.AgentRunner) -> asyncio.Task[None]:
    """Run a worker until the test ends."""
    worker = PartWorker(cast(JsonRequests, requests), APP, runner, max_parts=4)
    return asyncio.create_task(worker.run())


class RoutedRequests:
    """Calls the routes of workers in place of a server."""

    def __init__(self, remote_agent: adapters.RemoteAgent, principal: Principal = WORKER) -> None:
        apps = {APP: App(APP, remote_agent)}
        access = cast(SessionAccess, SimpleNamespace(sessions=SimpleNamespace(apps=apps)))
        routes = PartRoutes(access, cast(StreamRegistry, SimpleNamespace(count_stream=count_nothing)))
        self._endpoints = {operation.path: operation.endpoint for operation in routes.operations()}
        self._state = SimpleNamespace(decoder=make_decoder_executor())
        self._identity = Identity(principal)

    async def post(
        self, path: str, body: Any, type_: type[Any], headers: Mapping[str, str] | None = None
    ) -> Any:
        data = msgspec.json.encode(body)
        try:
            response = await self._endpoints[path](self._make_request(path, data))
        except TurnlogError as error:
            response = error_response(error)
        if response.status_code >= 300:
            raise ServerRefused(response.status_code, read_refusal(bytes(response.body)))
        return msgspec.json.decode(bytes(response.body), type=type_)

    def _make_request(self, path: str, data: bytes) -> Request:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": data, "more_body": False}

        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "headers": [(b"content-type", b"application/json")],
            "app": SimpleNamespace(state=self._state),
            IDENTITY_KEY: self._identity,
        }
        return Request(scope, receive)


class LossyRequests(RoutedRequests):
    """The first answer to every request is lost: the server has done it, and the worker does not know."""

    def __init__(self, remote_agent: adapters.RemoteAgent, principal: Principal = WORKER) -> None:
        super().__init__(remote_agent, principal)
        self._last_bodies: dict[str, bytes] = {}  # by path: a worker polls while it reports

    async def post(
        self, path: str, body: Any, type_: type[Any], headers: Mapping[str, str] | None = None
    ) -> Any:
        answer = await super().post(path, body, type_, headers)
        data = msgspec.json.encode(body)
        is_first = data != self._last_bodies.get(path)
        self._last_bodies[path] = data
        if is_first:
            raise ServerUnavailable("the connection broke off")
        return answer


@contextmanager
def count_nothing(identity: Identity) -> Iterator[None]:
    yield
