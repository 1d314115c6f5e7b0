"""The name that a principal gives its conversation leads to its own session, and to no other."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from turnlog import Agent, App
from turnlog.agents import Scripted, ToolUse, tool
from turnlog.app import Principal, session_creation, sessions
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.wire.sse import Decoder

CHOSEN = "5f0c3a52-9a1b-4c0e-8f43-2f1f7a1c9e10"


@tool(executor="frontend")
def confirm(question: str) -> bool:
    """Ask the reader."""
    raise NotImplementedError


def repeat(messages: list[Any]) -> list[Any]:
    """Repeat everything that was said, as a model may; ask on request."""
    texts = [part.get("text", "") for message in messages for part in message.content]
    if texts[-1] == "ask":
        return [ToolUse("confirm", {"question": "Sure?"}, "toolu_1")]
    return [" | ".join(texts)]


@pytest.fixture
def client() -> Iterator[TestClient]:
    names = {hash_token(name): Principal(name) for name in ("ada", "bob")}
    app = App("desk", Agent("Guide", "", Scripted(repeat), tools=[confirm]))
    with TestClient(
        create_app(app, "memory:", auth=BuiltinAuth(b"k" * 32, names)), base_url="http://localhost"
    ) as client:
        yield client


def ask(client: TestClient, who: str, path: str, **body: Any) -> tuple[int, str, str]:
    answer = client.post(
        path, json={"agent_uuid": CHOSEN, **body}, headers={"authorization": f"Bearer {who}"}
    )
    lines = [one.data for one in Decoder().feed(answer.content) if one.data.startswith("{")]
    said = "".join(message["delta"] for message in map(json.loads, lines) if message["type"] == "text")
    return answer.status_code, answer.headers.get("turnlog-session", ""), said


def test_alias_of_another_principal_leads_to_a_session_of_its_own(client: TestClient) -> None:
    _, hers, said = ask(client, "ada", "/agent/run", user_prompt="a secret")
    assert "a secret" in said
    status, his, said = ask(client, "bob", "/agent/run", user_prompt="hello")
    assert (status, said) == (200, "hello")
    assert his != hers
    assert ask(client, "ada", "/agent/run", user_prompt="again")[1] == hers


def test_calls_under_the_alias_of_another_principal_cannot_be_answered(client: TestClient) -> None:
    ask(client, "ada", "/agent/run", user_prompt="ask")
    results = [{"tool_use_id": "toolu_1", "content": True}]
    assert ask(client, "bob", "/agent/tool_results", tool_results=results)[0] == 404
    assert ask(client, "ada", "/agent/tool_results", tool_results=results)[0] == 200


def test_control_alias_without_its_principal_leads_to_the_other_session(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: an id that is not bound to the principal leads bob to ada's session, which refuses him."""

    def unbound(principal: Principal, app: App, alias: str) -> str:
        return session_creation.alias_session_id(Principal("anyone"), app, alias)

    monkeypatch.setattr(sessions, "alias_session_id", unbound)
    ask(client, "ada", "/agent/run", user_prompt="a secret")
    assert ask(client, "bob", "/agent/run", user_prompt="hello")[0] == 404
