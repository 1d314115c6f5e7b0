"""A client of document 003 knows the agent that `meta_init` names, and no session: it goes on with that."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from turnlog.agents import Agent, Scripted, ToolUse, tool
from turnlog.app import App, Principal
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.wire.sse import Decoder


@tool(executor="frontend")
def confirm(question: str) -> bool:
    """Ask the reader."""
    raise NotImplementedError


def mind(messages: list[Any]) -> list[Any]:
    last = messages[-1].content[-1]
    if last["type"] == "tool_result":
        return ["It is settled."]
    return [ToolUse("confirm", {"question": "Sure?"})] if "ask" in last["text"] else ["Hello."]


@pytest.fixture
def client() -> Iterator[TestClient]:
    names = {hash_token(name): Principal(name) for name in ("ada", "bob")}
    app = App("desk", Agent("Guide", "", Scripted(mind), tools=[confirm]))
    server = create_app(app, "memory:", auth=BuiltinAuth(b"k" * 32, names))
    with TestClient(server, base_url="http://localhost") as client:
        yield client


def asked(client: TestClient, path: str, body: Any, who: str = "ada") -> Any:
    answer = client.post(path, json=body, headers={"authorization": f"Bearer {who}"})
    if answer.status_code != 200:
        return answer.status_code
    messages = [json.loads(one.data) for one in Decoder().feed(answer.content) if one.data.startswith("{")]
    return answer.headers["turnlog-session"], messages


def first_agent(messages: list[Any]) -> str:
    begun = next(one for one in messages if one["type"] == "meta_init")
    name: str = json.loads(begun["delta"])["agent_uuid"]
    assert name == begun["agent"]
    return name


def text_of(messages: list[Any]) -> str:
    return "".join(one["delta"] for one in messages if one["type"] == "text")


def test_results_and_prompts_go_where_the_agent_is(client: TestClient) -> None:
    asked(client, "/agent/run", {"user_prompt": "another session"})
    session, told = asked(client, "/agent/run", {"user_prompt": "ask me"})
    agent = first_agent(told)
    wanted = next(one for one in told if one["type"] == "tool_call")["id"]
    results = [{"tool_use_id": wanted, "content": True}]
    for foreign in (agent[:-1] + "x", "", "sess_none"):
        assert asked(client, "/agent/tool_results", {"agent_uuid": foreign, "tool_results": results}) == 404
    body = {"agent_uuid": agent, "tool_results": results}
    assert asked(client, "/agent/tool_results", body, who="bob") == 404
    again, told = asked(client, "/agent/tool_results", body)
    assert (again, text_of(told)) == (session, "It is settled.")
    last, told = asked(client, "/agent/run", {"user_prompt": "and now?", "agent_uuid": f"agt_{agent}"})
    assert (last, text_of(told)) == (session, "Hello.")
    assert asked(client, "/agent/run", {"user_prompt": "mine?", "agent_uuid": agent}, who="bob") == 404
