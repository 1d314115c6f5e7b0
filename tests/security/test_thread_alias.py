"""The thread or chat id that a client of another protocol chooses leads to its own session only."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.security.test_conversation_alias import confirm, repeat
from turnlog import Agent, App
from turnlog.agents import Scripted
from turnlog.app import Principal, session_creation, sessions
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.server.protocols import PROTOCOLS
from turnlog.wire.sse import Decoder

CHOSEN = "thread-1"
EACH = pytest.mark.parametrize("protocol", ["ag-ui", "ai-sdk"])


@pytest.fixture
def client() -> Iterator[TestClient]:
    names = {hash_token(name): Principal(name) for name in ("ada", "bob")}
    app = App("desk", Agent("Guide", "", Scripted(repeat), tools=[confirm]))
    application = create_app(
        app,
        "memory:",
        auth=BuiltinAuth(b"k" * 32, names),
        protocols=[make() for make in PROTOCOLS.values()],
    )
    with TestClient(application, base_url="http://localhost") as client:
        yield client


def say(client: TestClient, protocol: str, who: str, text: str, thread: str = CHOSEN) -> tuple[str, str]:
    """Send a message. Return the session, and the text of the answer."""
    if protocol == "ag-ui":
        path = "/ag-ui/desk"
        message: dict[str, Any] = {"id": "m1", "role": "user", "content": text}
        body: dict[str, Any] = {"threadId": thread, "runId": f"{who}-{text}", "messages": [message]}
    else:
        path = "/ai-sdk/desk/chat"
        message = {"id": f"{who}-{text}", "role": "user", "parts": [{"type": "text", "text": text}]}
        body = {"id": thread, "messages": [message]}
    answer = client.post(path, json=body, headers={"authorization": f"Bearer {who}"})
    assert answer.status_code == 200, answer.text
    return answer.headers["turnlog-session"], said(answer.content)


def said(content: bytes) -> str:
    messages = [json.loads(one.data) for one in Decoder().feed(content) if one.data.startswith("{")]
    texts = [one["delta"] for one in messages if one["type"] in ("TEXT_MESSAGE_CONTENT", "text-delta")]
    return "".join(texts)


@EACH
def test_a_thread_of_another_principal_is_a_session_of_its_own(client: TestClient, protocol: str) -> None:
    hers, text = say(client, protocol, "ada", "a secret")
    assert "a secret" in text
    his, text = say(client, protocol, "bob", "hello")
    assert text == "hello"
    assert his != hers
    assert say(client, protocol, "ada", "again")[0] == hers


def test_one_thread_is_one_session_in_both_protocols(client: TestClient) -> None:
    session, _ = say(client, "ag-ui", "ada", "a secret")
    assert say(client, "ai-sdk", "ada", "again")[0] == session


@EACH
def test_a_session_of_another_principal_is_not_found_by_its_id(client: TestClient, protocol: str) -> None:
    session, _ = say(client, protocol, "ada", "a secret")
    assert say(client, protocol, "ada", "again", session)[0] == session
    paths = [f"/ag-ui/desk/{session}", f"/ai-sdk/desk/chat/{session}", f"/ai-sdk/desk/chat/{session}/stream"]
    for path in paths:
        assert client.get(path, headers={"authorization": "Bearer bob"}).status_code == 404
    bodies = {
        "/ag-ui/desk": {"threadId": session, "runId": "r", "messages": []},
        "/ai-sdk/desk/chat": {"id": session, "messages": []},
    }
    for path, body in bodies.items():
        assert client.post(path, json=body, headers={"authorization": "Bearer bob"}).status_code == 404


@EACH
def test_control_a_thread_without_its_principal_leads_to_the_other_session(
    client: TestClient, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: an id that is not bound to the principal leads bob to ada's session, which refuses him."""

    def unbound(principal: Principal, app: App, alias: str) -> str:
        return session_creation.alias_session_id(Principal("anyone"), app, alias)

    monkeypatch.setattr(sessions, "alias_session_id", unbound)
    say(client, protocol, "ada", "a secret")
    with pytest.raises(AssertionError, match="no session"):
        say(client, protocol, "bob", "hello")
