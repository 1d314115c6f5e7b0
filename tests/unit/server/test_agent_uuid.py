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
    other, told = asked(client, "/agent/run", {"user_prompt": "mine?", "agent_uuid": agent}, who="bob")
    assert other != session
    assert (first_agent(told), text_of(told)) == (agent, "Hello.")


def test_conversation_under_an_id_of_the_client_goes_on_with_it(client: TestClient) -> None:
    chosen = "5f0c3a52-9a1b-4c0e-8f43-2f1f7a1c9e10"
    body = {"agent_uuid": chosen, "agent_type": "agent_frontend_tools", "tools": [], "stream": True}
    session, told = asked(client, "/agent/run", {"user_prompt": "ask me", **body})
    assert {one["agent"] for one in told} == {first_agent(told)} == {chosen}
    wanted = next(one for one in told if one["type"] == "tool_call")["id"]
    results = [{"tool_use_id": wanted, "content": True, "name": "confirm"}]
    again, told = asked(client, "/agent/tool_results", {**body, "tool_results": results})
    assert (again, text_of(told), {one["agent"] for one in told}) == (session, "It is settled.", {chosen})
    last, told = asked(client, "/agent/run", {"user_prompt": "and now?", **body})
    assert (last, first_agent(told), {one["agent"] for one in told}) == (session, chosen, {chosen})


@pytest.mark.parametrize("name", [None, ""])
def test_conversation_without_an_id_keeps_the_one_of_its_first_agent(
    client: TestClient, name: str | None
) -> None:
    session, told = asked(client, "/agent/run", {"user_prompt": "hi", "agent_uuid": name})
    agent = first_agent(told)
    for given in (agent, session):
        again, told = asked(client, "/agent/run", {"user_prompt": "go on", "agent_uuid": given})
        assert (again, {one["agent"] for one in told}) == (session, {agent})


@pytest.mark.parametrize("name", ["a b", "x" * 65, "../sess_1", "é"])
def test_conversation_under_an_id_that_no_message_can_carry_is_refused(client: TestClient, name: str) -> None:
    assert asked(client, "/agent/run", {"user_prompt": "hi", "agent_uuid": name}) == 400


def test_conversation_is_under_its_id_from_every_cursor(client: TestClient) -> None:
    client.headers["authorization"] = "Bearer ada"
    session, _ = asked(client, "/agent/run", {"user_prompt": "one", "agent_uuid": "my-agent"})
    client.post("/api/send", json={"session": session, "message": "two"})
    asked(client, "/agent/run", {"user_prompt": "three", "agent_uuid": "my-agent"})
    lines = [json.loads(line) for line in client.get(f"/api/log?session={session}").text.splitlines()]
    turns = {line["trace_id"] for line in lines if "trace_id" in line}
    assert len(turns) == 3
    for turn in turns:
        for after in range(-1, lines[-1]["seq"]):
            path = f"/api/events?session={session}&turn={turn}&dialect=blocks&after={after}"
            answer = client.get(path).content
            messages = [json.loads(one.data) for one in Decoder().feed(answer) if one.data[0] == "{"]
            assert {one["agent"] for one in messages} <= {"my-agent"}
