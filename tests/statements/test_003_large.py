"""Statements of document 003 about payloads that do not fit into one message, on responses of a server."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from turnlog import Agent, App, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.app import LOCAL
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.state.history import Message

LARGE = '€ "quoted"\n' * 500
HISTORIES = "?stream_meta_history_and_tool_results=true"


@tool
def read_file(path: str) -> str:
    return LARGE


@tool(executor="frontend")
def user_confirm(question: str) -> bool:
    raise NotImplementedError


def script(messages: list[Message]) -> Iterator[str | ToolUse]:
    last = messages[-1].content[-1]
    if last["type"] == "tool_result":
        yield LARGE
    else:
        yield ToolUse("read_file", {"path": LARGE}, "toolu_01")
        yield ToolUse("user_confirm", {"question": LARGE}, "toolu_02")


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """The lines of both responses of a run: up to the pause, and after the answer."""
    app = App("reading", Agent("Guide", "", Scripted(script), tools=(read_file, user_confirm)))
    server = create_app(app, "memory:", auth=BuiltinAuth(b"k" * 32, {hash_token("t"): LOCAL}))
    with TestClient(server, base_url="http://localhost", headers={"authorization": "Bearer t"}) as client:
        body: dict[str, Any] = {"agent_uuid": "large", "user_prompt": LARGE}
        first = client.post("/agent/run" + HISTORIES, json=body).text
        body = {"agent_uuid": "large", "tool_results": [{"tool_use_id": "toolu_02", "content": LARGE}]}
        second = client.post("/agent/tool_results" + HISTORIES, json=body).text
    return [*first.split("\n"), *second.split("\n")]


@pytest.fixture(scope="module")
def messages(lines: list[str]) -> list[Any]:
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def test_every_message_is_one_short_line_with_the_base_fields(lines: list[str]) -> None:
    data = [line[6:] for line in lines if line.startswith("data: ")]
    assert data.count("[DONE]") == 2
    frames = [frame for frame in "\n".join(lines).split("\n\n") if "data: " in frame]
    assert len(frames) == len(data), "no message has two lines"
    for line in data:
        if line != "[DONE]":
            assert len(line.encode()) <= 2048
            assert list(json.loads(line))[:4] == ["type", "agent", "final", "delta"]
            assert json.loads(line)["agent"] == "large"


def read_blocks(messages: list[Any]) -> list[dict[str, Any]]:
    """The blocks as the document's reader makes them: open per agent and type."""
    blocks: list[dict[str, Any]] = []
    opened: dict[tuple[str, str], dict[str, Any]] = {}
    for message in messages:
        key = message["agent"], message["type"]
        extras = {name: message[name] for name in message if name not in ("type", "agent", "final", "delta")}
        if key not in opened:
            opened[key] = {"type": message["type"], "content": "", "extras": extras, "count": 0}
            blocks.append(opened[key])
        block = opened[key]
        assert block["extras"] == extras, "every chunk repeats them"
        block["content"] += message["delta"]
        block["count"] += 1
        if message["final"]:
            del opened[key]
    assert not opened
    return blocks


def test_large_payloads_are_cut_and_join_again(messages: list[Any]) -> None:
    blocks = read_blocks(messages)
    assert all(block["count"] > 1 for block in blocks)
    by_type: dict[str, list[str]] = {}
    for block in blocks:
        by_type.setdefault(block["type"], []).append(block["content"])
    [init] = by_type["meta_init"]
    assert json.loads(init)["user_query"] == LARGE
    assert [json.loads(args) for args in by_type["tool_call"]] == [{"path": LARGE}, {"question": LARGE}]
    assert by_type["tool_result"] == [LARGE, LARGE]
    [waiting] = by_type["awaiting_frontend_tools"]
    assert json.loads(waiting)[0]["input"] == {"question": LARGE}
    assert by_type["text"] == [LARGE]
    [summary] = by_type["meta_final"]
    history = json.loads(summary)["conversation_history"]
    assert history[0] == {"role": "user", "content": [{"type": "text", "text": LARGE}]}


def test_only_streamed_blocks_end_with_an_empty_message(messages: list[Any]) -> None:
    ends = [message for message in messages if message["final"]]
    assert {message["type"] for message in ends if message["delta"] == ""} == {"text"}
