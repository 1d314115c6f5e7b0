"""Clients of several protocols read one session at the same time, and end with the same text."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Reader, Server, kind, running
from tests.foreign_clients.apps import GATE_VARIABLE
from tests.foreign_clients.node import running_client

APP = "tests.foreign_clients.apps:app"
TEXT = "One two three four."


def session_of(server: Server) -> str:
    status, answer = server.get("/api/sessions")
    assert status == 200
    [session] = answer["sessions"]
    return str(session["session_id"])


def is_end(message: Any) -> bool:
    """The last line of a text in `blocks`."""
    line = json.loads(message.data)
    return bool(line["type"] == "text" and line["final"])


async def read_both(server: Server, session: str, gate: Path) -> tuple[str, str]:
    """Read the session in `turnlog` and `blocks` while it goes on. Return both texts."""
    own = Reader(server, session)
    blocks = Reader(server, session, "&dialect=blocks")
    reading = [
        asyncio.create_task(own.read(kind("agent.end"))),
        asyncio.create_task(blocks.read(is_end)),
    ]
    await asyncio.to_thread(gate.touch)
    await asyncio.gather(*reading)
    texts = [event["payload"]["text"] for event in own.events if event["type"] == "assistant.message"]
    lines = [json.loads(message.data) for message in blocks.messages]
    return "".join(texts), "".join(line["delta"] for line in lines if line["type"] == "text")


def test_four_readers_of_one_turn_have_the_same_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = tmp_path / "gate"
    monkeypatch.setenv(GATE_VARIABLE, str(gate))
    with (
        running_client("ag_ui.mjs", "ag-ui-1") as ag_ui,
        running_client("ai_sdk.mjs", "ai7") as ai_sdk,
        running(APP, tmp_path) as server,
    ):
        ag_ui.do("new", url=f"{server.url}/ag-ui/desk", headers=server.headers, thread="shared")
        ag_ui.start("say", text="wait", until="TEXT_MESSAGE_CONTENT", count=2, then="tell")
        ag_ui.report()
        headers = {**server.headers, "turnlog-ai-sdk": "7"}
        ai_sdk.do("new", url=f"{server.url}/ai-sdk/desk", headers=headers, id="shared")
        ai_sdk.start("reload", when="three", then="tell")
        ai_sdk.report()

        texts = asyncio.run(read_both(server, session_of(server), gate))
        assert texts == (TEXT, TEXT)
        [message] = [one for one in ag_ui.report()["messages"] if one["role"] == "assistant"]
        assert message["content"] == TEXT
        parts = ai_sdk.report()["messages"][-1]["parts"]
        assert "".join(part["text"] for part in parts if part["type"] == "text") == TEXT
