"""A turn that is silent for 30 s between two words, with the default heartbeat.

The clients of all protocols wait side by side. The heartbeats of another connection measure the silence: they
come after 15 s each.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from durable_streams import stream

from tests.e2e.harness import Server, running
from tests.foreign_clients.apps import GATE_VARIABLE
from tests.foreign_clients.durable_streams import test_clients
from tests.foreign_clients.durable_streams.test_clients import Script, wait_for_heartbeats
from tests.foreign_clients.node import Client, running_client
from tests.foreign_clients.packages import workspace
from tests.foreign_clients.test_together import session_of
from tests.soak.figures import Measure

APP = "tests.foreign_clients.apps:app"
TEXT = "One two three four."
BEFORE = "three"  # the last word before the silence
HEARTBEATS = 2  # of 15 s
AI_SDK_VERSIONS = ("5", "6", "7")


def start_ag_ui(stack: ExitStack, server: Server) -> Client:
    """Return a client of AG-UI whose run is silent."""
    client = stack.enter_context(running_client("ag_ui.mjs", "ag-ui-1"))
    client.do("new", url=f"{server.url}/ag-ui/desk", headers=server.headers, thread="silent")
    client.start("say", text="wait", until="TEXT_MESSAGE_CONTENT", count=2, then="tell", pings=1)
    assert client.report() == {"step": "reached"}
    return client


def start_chat(stack: ExitStack, server: Server, version: str) -> Client:
    """Return a client of the AI SDK whose response is silent."""
    client = stack.enter_context(running_client("ai_sdk.mjs", f"ai{version}"))
    headers = {**server.headers, "turnlog-ai-sdk": version}
    client.do("new", url=f"{server.url}/ai-sdk/desk", headers=headers, id=f"silent {version}")
    client.start("say", text="wait", when=BEFORE, then="tell", pings=1)
    assert client.report() == {"step": "reached"}
    return client


def is_end(item: Any) -> bool:
    return bool(item["type"] == "agent.end")


def texts(items: list[Any]) -> list[str]:
    return [item["payload"]["text"] for item in items if item["type"] == "assistant.message"]


def test_all_clients_get_over_a_silence_of_30_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measure: Measure
) -> None:
    gate = tmp_path / "gate"
    monkeypatch.setenv(GATE_VARIABLE, str(gate))
    with ExitStack() as stack:
        server = stack.enter_context(running(APP, tmp_path))
        ag_ui = start_ag_ui(stack, server)
        session = session_of(server)
        chats = [start_chat(stack, server, version) for version in AI_SDK_VERSIONS]

        place = stack.enter_context(workspace(Path(test_clients.__file__).parent, tmp_path))
        url = f"{server.url}/v1/stream/{session}"
        readers = [
            Script(place, "read.mjs", [url, server.token, live, "9999"]) for live in ("sse", "long-poll")
        ]
        for reader in readers:
            stack.callback(reader.close)
            reader.read_lines(1)
        headers: dict[str, str | Callable[[], str]] = {**server.headers}
        response = stack.enter_context(stream(url, headers=headers, offset="-1", live="sse"))
        received = response.iter_json()
        items = [next(received)]

        asyncio.run(wait_for_heartbeats(server, f"{session}?offset=now&live=sse", HEARTBEATS))
        gate.touch()

        for client in (ag_ui, *chats):
            assert client.report() == {"step": "pinged"}
        report = ag_ui.report()
        assert (report["warnings"], report.get("failure")) == ([], None)
        [answer] = [one for one in report["messages"] if one["role"] == "assistant"]
        assert answer["content"] == TEXT
        for chat in chats:
            report = chat.report()
            problems = (report["warnings"], report["errors"], report.get("failure"), report["status"])
            assert problems == ([], [], None, "ready")
            parts = report["messages"][-1]["parts"]
            assert "".join(part["text"] for part in parts if part["type"] == "text") == TEXT

        while not is_end(items[-1]):
            items.append(next(received))
        assert texts(items) == [TEXT]
        for reader in readers:
            while not is_end(json.loads(reader.lines[-1])["item"]):
                reader.read_lines(len(reader.lines) + 1)
            assert [json.loads(line)["item"] for line in reader.lines] == items
    measure("30 s of silence", clients=1 + len(chats) + len(readers) + 1)
