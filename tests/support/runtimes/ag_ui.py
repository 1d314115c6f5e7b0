"""Agents that speak AG-UI, behind real servers on loopback, under the contract of runtimes.

Two servers: Pydantic AI with its own AG-UI adapter, which keeps nothing, and a server of ours, which keeps
the threads. The servers outlive a restart of the runtime under test.
"""

from collections.abc import Callable
from typing import Any

from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import DeferredToolRequests
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.support.loopback import LoopbackServers
from tests.support.runtimes.own_loop import OwnLoop
from tests.support.runtimes.pydantic_ai import make_agent
from turnlog import App, adapters
from turnlog.app import Principal
from turnlog.log import MemoryStore
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.server.protocols.ag_ui.routes import AgUiProtocol
from turnlog.testing.runtimes import AgentScript, Feature, RuntimeUnderTest, ScriptRecord

TOKEN = "t"


def make_pydantic_application(agent: PydanticAgent[None, Any]) -> Starlette:
    """Make what a program with an agent of Pydantic AI serves as AG-UI."""

    async def run(request: Request) -> Response:
        output_type = [agent.output_type, DeferredToolRequests]
        return await AGUIAdapter.dispatch_request(
            request, agent=agent, output_type=output_type, include_usage=True
        )

    return Starlette(routes=[Route("/agent", run, methods=["POST"])])


def make_turnlog_application(app: App, store: MemoryStore) -> Starlette:
    auth = BuiltinAuth(b"k" * 32, {hash_token(TOKEN): Principal("relay")})
    return create_app(app, store, auth=auth, protocols=[AgUiProtocol()])


class PydanticAiOverAgUi:
    """The adapter of Pydantic AI tells nothing of structured outputs, limits and sub-agents."""

    features: frozenset[Feature] = frozenset({"thinking", "approvals", "page_calls", "files"})

    def __init__(self, servers: LoopbackServers) -> None:
        self._servers = servers

    def make_agent(self, script: AgentScript, record: ScriptRecord) -> adapters.ForeignAgent:
        url = self._servers.start(make_pydantic_application(make_agent(script, record)))
        return adapters.ag_ui(f"{url}/agent", name=script.name)


class TurnlogOverAgUi:
    """A server of ours. Hand-offs and the usage of a completion have no event in AG-UI.

    A client of ours that disconnects stops nothing: a stop here leaves the run of the server alone.
    """

    features: frozenset[Feature] = OwnLoop.features - {"hand_offs", "completion_usage"}
    history: Any = "messages"

    def __init__(self, servers: LoopbackServers) -> None:
        self._servers = servers
        self._url: str | None = None
        self.store = MemoryStore()

    def make_agent(self, script: AgentScript, record: ScriptRecord) -> adapters.ForeignAgent:
        if self._url is None:
            app = App("remote", OwnLoop().make_agent(script, record))
            self._url = self._servers.start(make_turnlog_application(app, self.store))
        return adapters.ag_ui(
            f"{self._url}/ag-ui/remote", name=script.name, token=TOKEN, history=self.history
        )


class TurnlogKeepsTheThread(TurnlogOverAgUi):
    history = "thread"


# A run of ours goes on if its client disconnects, so these cannot hold there.
STOPS = frozenset({"stop_in_text", "stop_in_tool"})

AG_UI_RUNTIMES: list[Callable[[LoopbackServers], RuntimeUnderTest]] = [
    PydanticAiOverAgUi,
    TurnlogOverAgUi,
    TurnlogKeepsTheThread,
]
