"""Statements of document 004 (docs/seeds.md) that no other test says in so many words."""

import asyncio
import re
from pathlib import Path

from tests.e2e import harness
from tests.test_seed_names import NAMES, mapping
from turnlog.events import CATALOG

CATEGORIES = {
    "session lifecycle": "session_start session_end auth_state",
    "model output": "claude_system claude_text claude_tool_result claude_result claude_compact",
    "user input": "user_message user_summon user_wake user_session_start user_session_end",
    "agent lifecycle": "agent_registered agent_status agent_work_offered agent_message",
    "artifacts": "artifact_written",
    "screen": "screen_command",
    "jobs": "job_help",
    "server health": "heartbeat server_error",
}


def test_the_22_event_types_in_8_categories_are_said_by_the_vocabulary() -> None:
    names = " ".join(CATEGORIES.values()).split()
    assert (len(names), len(CATEGORIES), set(names)) == (22, 8, set(NAMES["004"]))
    homes: dict[str, set[str]] = {}
    for row in mapping():
        for name in re.findall(r"`([^`]+)`", row[6]):
            homes.setdefault(name, set()).update(re.findall(r"`(\w+\.\w+)`", row[0]))
    assert {home for name in names for home in homes[name]} <= set(CATALOG.kinds)
    assert [name for name in names if not homes[name]] == ["heartbeat"], "that one is on the wire only"


def test_a_message_is_accepted_at_once_and_answered_on_the_stream(tmp_path: Path) -> None:
    async def raw(reader: harness.Reader) -> bytes:
        data, dechunker = b"", harness.Dechunker()
        async for piece in reader.pieces():
            data += dechunker.feed(piece)
            if b'"tool.await"' in data and data.endswith(b"\n\n"):
                break
        return data

    with harness.running("fast", tmp_path) as server:
        session = server.session()
        sent = {"session": session, "message": "hello", "targetAgent": "Lyra"}
        status, answer = server.post("/api/send", sent)
        assert (status, set(answer), type(answer["eventId"])) == (202, {"eventId", "id", "turn"}, int)
        reader = harness.Reader(server, session)
        assert asyncio.run(reader.read(harness.kind("assistant.message")))
        assert reader.events[answer["eventId"]]["payload"] == {"text": "hello", "target": "Lyra"}
        assert reader.events[-1]["trace_id"] == answer["turn"]
        frames = asyncio.run(raw(harness.Reader(server, session)))
        assert re.fullmatch(rb'retry: \d+\n\n(id: [0-9a-f]+:\d+\ndata: \{"type":.*\}\n\n)+', frames)
        assert server.post("/api/chat", sent)[0] == 404
