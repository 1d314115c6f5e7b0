"""A server with all protocols in this process, and requests of their clients as plain JSON."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.testclient import TestClient

from tests.foreign_clients.apps import app
from turnlog import Agent, App, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.agents.models.script_turn import ScriptTurn
from turnlog.app import Principal, Roles
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.server.protocols import PROTOCOLS
from turnlog.wire.sse import Decoder


class ProtocolClient:
    """Requests of one principal."""

    def __init__(self, client: TestClient, who: str = "ada") -> None:
        self.client = client
        self.headers = {"authorization": f"Bearer {who}"}

    def get(self, path: str, **headers: str) -> Any:
        return self.client.get(path, headers=self.headers | headers)

    def post(self, path: str, body: Any, **headers: str) -> Any:
        return self.client.post(path, json=body, headers=self.headers | headers)

    def run(self, **body: Any) -> Any:
        """Send RunAgentInput."""
        return self.post("/ag-ui/desk", {"threadId": "t", "messages": [], "protocolVersion": "1.0", **body})

    def chat(self, *parts: Any, **body: Any) -> Any:
        """Send a chat whose last message has these parts."""
        message = {"id": body.pop("message_id", "m1"), "role": body.pop("role", "user"), "parts": list(parts)}
        return self.post("/ai-sdk/desk/chat", {"id": "t", "messages": [message], **body})


@contextmanager
def protocol_client(*apps: App) -> Iterator[ProtocolClient]:
    names = {hash_token(name): Principal(name) for name in ("ada", "bob")}
    application = create_app(
        apps or app,
        "memory:",
        auth=BuiltinAuth(b"k" * 32, names),
        protocols=[make() for make in PROTOCOLS.values()],
    )
    with TestClient(application, base_url="http://localhost") as client:
        yield ProtocolClient(client)


@tool(approval=True, roles=("boss",))
def erase() -> str:
    """Erase everything."""
    return "erased"


@tool(executor="frontend", roles=("boss",))
def paint() -> None:
    """Paint the page."""


def answer_boss(turn: ScriptTurn) -> Iterator[Any]:
    if turn.text in ("erase", "paint") and not turn.results:
        yield ToolUse(turn.text, {})
    else:
        yield f"You said {turn.text}."


@contextmanager
def boss_and_visitor_clients() -> Iterator[tuple[ProtocolClient, ProtocolClient, str]]:
    """Two members of one session, and its id. Only the boss may answer the calls of the agent."""
    roles = Roles(creator=("boss",), joiner=("visitor",))
    clerk = Agent("Clerk", "", Scripted(answer_boss), tools=[erase, paint])
    session = ""
    with protocol_client(App("desk", clerk, roles=roles, shared_session=True)) as boss:
        visitor = ProtocolClient(boss.client, "bob")
        for member in (boss, visitor):
            session = member.post("/api/send", {"message": "hello"}).json()["session"]
        yield boss, visitor, session


def messages_of(answer: Any) -> list[Any]:
    """Return the messages of a stream, without its end."""
    assert answer.status_code == 200, answer.text
    return [json.loads(one.data) for one in Decoder().feed(answer.content) if one.data.startswith("{")]


def user(content: Any) -> dict[str, Any]:
    return {"id": "m1", "role": "user", "content": content}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}
