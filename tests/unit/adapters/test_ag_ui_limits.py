"""The limits of what a server of AG-UI may send, each with a control; and definitions that are refused."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.support.tables import for_each_row
from tests.unit.adapters.ag_ui_peer import Json, call, encode, event
from turnlog import adapters, tool
from turnlog.adapters import UnreadableState, ag_ui_request, ag_ui_thread
from turnlog.adapters.ag_ui_request import decode_ag_ui_event, read_events
from turnlog.adapters.ag_ui_thread import ClientThread, StoredThread, decode_thread, trim_history
from turnlog.agents.remote import server_client
from turnlog.errors import CallerError, PeerError

URL = "http://127.0.0.1:1/agent"


async def in_chunks(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def read_all(*chunks: bytes) -> list[Json]:
    async def collect() -> list[Json]:
        return [item async for item in read_events(in_chunks(*chunks))]

    return asyncio.run(collect())


CUSTOM = encode(event("CUSTOM", name="x", value="y" * 10))


@pytest.mark.parametrize(
    ("limit", "value", "enough"),
    [
        ("MAX_EVENT_BYTES", 20, 1000),
        ("MAX_RUN_EVENTS", 2, 3),
        ("MAX_RUN_BYTES", len(CUSTOM) * 2, len(CUSTOM) * 3),
    ],
)
def test_stream_over_a_limit_is_refused(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int, enough: int
) -> None:
    monkeypatch.setattr(ag_ui_request, limit, value)
    with pytest.raises(PeerError, match="expected a"):
        read_all(CUSTOM, CUSTOM, CUSTOM)
    monkeypatch.setattr(ag_ui_request, limit, enough)
    assert len(read_all(CUSTOM, CUSTOM, CUSTOM)) == 3


def test_line_without_an_end_is_not_buffered_beyond_its_limit() -> None:
    with pytest.raises(PeerError, match="SSE message"):
        read_all(*[b"data: " + b"x" * (1 << 20)] * 11)


def test_event_that_nothing_reads_may_have_any_depth() -> None:
    deep = "[" * 100 + "]" * 100
    assert decode_ag_ui_event(f'{{"type": "RAW", "event": {deep}}}') is None
    with pytest.raises(PeerError, match="levels"):
        decode_ag_ui_event(f'{{"type": "CUSTOM", "value": {deep}}}')


def test_events_are_the_same_however_the_stream_is_cut() -> None:
    stream = encode(event("CUSTOM", name="a", value="ä"), event("RAW"), event("CUSTOM", name="b"))
    assert read_all(*(stream[at : at + 1] for at in range(len(stream)))) == read_all(stream)
    assert [item["name"] for item in read_all(b": ping\n\n", stream, b"data: cut")] == ["a", "b"]


# threads


def test_oldest_turns_are_dropped_from_a_long_history(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[Json] = []
    for number in range(20):
        messages.append({"id": f"u{number}", "role": "user", "content": "x" * 50})
        messages.append({"id": f"a{number}", "role": "assistant", "content": "y" * 50})
    assert trim_history(messages) == messages
    monkeypatch.setattr(ag_ui_thread, "MAX_HISTORY_BYTES", 1000)
    kept = trim_history(messages)
    assert kept[0]["role"] == "user"
    assert kept == messages[-len(kept) :]
    assert 0 < len(msgspec.json.encode(kept)) < 1100
    assert trim_history([{"role": "user", "content": "x" * 2000}]) == []
    assert trim_history([]) == []


def test_state_that_is_too_large_or_too_deep_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = ClientThread(StoredThread())
    thread.feed(event("STATE_SNAPSHOT", snapshot={"a": "x" * 100}))
    assert thread.state == {"a": "x" * 100}
    monkeypatch.setattr(ag_ui_thread, "MAX_STATE_BYTES", 50)
    assert thread.state == {}
    deep: Any = 1
    for _ in range(40):
        deep = {"d": deep}
    thread.feed(event("STATE_SNAPSHOT", snapshot=deep))
    assert thread.state == {}


def test_patch_that_does_not_fit_drops_the_state(caplog: pytest.LogCaptureFixture) -> None:
    thread = ClientThread(StoredThread(state={"n": 1}))
    thread.feed(event("STATE_DELTA", delta=[{"op": "remove", "path": "/none"}]))
    assert thread.state == {}
    assert "dropped" in caplog.text


def test_snapshot_replaces_the_messages() -> None:
    thread = ClientThread(StoredThread(messages=[{"id": "u1", "role": "user", "content": "Hi"}]))
    calls = [{"id": "c9", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    messages = [
        {"id": "u1", "role": "user", "content": "Hi"},
        {"id": "a1", "role": "assistant", "toolCalls": calls},
    ]
    thread.feed(event("TEXT_MESSAGE_CONTENT", messageId="a0", delta="gone"))
    thread.feed(event("MESSAGES_SNAPSHOT", messages=[*messages, "no message"]))
    thread.feed(event("MESSAGES_SNAPSHOT", messages=None))
    assert thread.messages == messages
    assert thread.open_calls == ["c9"]


def test_calls_belong_to_their_message() -> None:
    thread = ClientThread(StoredThread())
    thread.feed(event("TEXT_MESSAGE_START", messageId="m1"))
    for item in (*call("c1"), *call("c1"), *call("c2")):
        thread.feed({**item, "parentMessageId": "m1"})
    for item in (*call("c3"), *call("c4")):
        thread.feed(item)
    thread.feed(event("TOOL_CALL_ARGS", toolCallId="none", delta="{}"))
    thread.feed(event("TEXT_MESSAGE_CONTENT", messageId="below", delta="of a sub-agent", subagentRunId="s"))
    thread.feed(event("TEXT_MESSAGE_START", messageId="empty"))
    ids = [[item["id"] for item in message["toolCalls"]] for message in thread.messages]
    assert ids == [["c1", "c2", "c3", "c4"]]
    assert thread.open_calls == ["c1", "c2", "c3", "c4"]


def test_stored_thread_of_another_form_is_unreadable() -> None:
    with pytest.raises(UnreadableState):
        decode_thread(b'{"messages": 7}')
    assert decode_thread(json.dumps({"messages": [], "new": 1}).encode()) == StoredThread()


# definitions


@tool
def look() -> str:
    """Look."""
    raise NotImplementedError


@for_each_row(
    ("url", "options", "problem"),
    [
        ("ftp://host/agent", {}, "expected a URL"),
        ("agent", {}, "expected a URL"),
        ("http://user:pass@host/", {}, "expected a URL"),
        (URL, {"token": "a b"}, "expected a token"),
        (URL, {"headers": {"Host": "x"}}, "expected no header host"),
        (URL, {"history": "none"}, "expected messages or thread"),
        (URL, {"file_parts": "none"}, "expected media, binary or labels"),
        (URL, {"tools": [look]}, "expected tools that the page runs, got look"),
        (URL, {"silence_timeout_s": 0}, "expected a silence_timeout_s above 0"),
    ],
)
def test_definition_that_cannot_work_is_refused(url: str, options: Any, problem: str) -> None:
    with pytest.raises(CallerError, match=problem):
        adapters.ag_ui(url, **options)


def test_missing_http_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_client, "find_spec", lambda _: None)
    with pytest.raises(CallerError, match=r"turnlog\[remote\]"):
        adapters.ag_ui(URL)


def test_checkpoint_of_another_protocol_version_is_not_read() -> None:
    runner = adapters.ag_ui(URL).runner
    assert (runner.source, runner.can_read("1.7"), runner.can_read("2.0")) == ("ag_ui", True, False)
    assert runner.describe_agent(None).name == "Agent"
