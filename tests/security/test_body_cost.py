"""What one body may cost: the number of events in it, and where a large one is decoded."""

import threading
from contextlib import suppress
from typing import Any

import pytest

from tests.security.apps import plain
from tests.security.desk import desk, run
from tests.support.work import count_lines
from turnlog.errors import BadInput
from turnlog.events import strict_json
from turnlog.server.request_body import MAX_INLINE_DECODE_BYTES
from turnlog.server.routes.messages import MAX_EVENTS_PER_BODY

NOTE = {"type": "case.note", "payload": {"text": "milk"}}


def crowded(path: str, session: str) -> dict[str, Any]:
    """A body with more events than a route takes."""
    many, result = MAX_EVENTS_PER_BODY + 1, {"tool_use_id": "x", "content": 1}
    bodies: dict[str, dict[str, Any]] = {
        "/api/events": {"session": session, "events": [NOTE] * many},
        "/api/chat/owner": {"sessionId": session, "directEvents": [{"type": "note"}] * many},
        "/agent/tool_results": {
            "agent_uuid": session,
            "tool_results": [result] * many,
        },
    }
    return bodies[path]


@pytest.mark.parametrize("path", ["/api/events", "/api/chat/owner", "/agent/tool_results"])
def test_body_with_more_events_than_allowed_is_refused_whole(path: str) -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            session = await at.session("ada", "plain")
            before = await at.log("ada", session)
            answer = await at.post("ada", path, crowded(path, session))
            assert answer.status == 400
            assert f"<= {MAX_EVENTS_PER_BODY}" in answer.value["error"]
            assert await at.log("ada", session) == before

    run(scenario())


def is_decoded_on_the_loop(monkeypatch: pytest.MonkeyPatch, size: int) -> list[bool]:
    """Whether a message of so many characters is decoded where all requests wait for it."""
    threads = list[threading.Thread]()
    decode = strict_json.decode_strict_json

    def recording(data: bytes, kind: type[Any], *limit: int) -> Any:
        threads.append(threading.current_thread())
        return decode(data, kind, *limit)

    monkeypatch.setattr(strict_json, "decode_strict_json", recording)

    async def scenario() -> None:
        async with desk(plain) as at:
            session = await at.session("ada", "plain")
            threads.clear()
            await at.post("ada", "/api/send", {"session": session, "message": "m" * size})

    run(scenario())
    return [thread is threading.main_thread() for thread in threads]


@pytest.mark.parametrize(("size", "is_inline"), [(100, True), (MAX_INLINE_DECODE_BYTES + 1, False)])
def test_body_above_the_limit_is_decoded_outside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, size: int, is_inline: bool
) -> None:
    assert is_decoded_on_the_loop(monkeypatch, size) == [is_inline]


def test_control_with_a_high_limit_a_large_body_is_decoded_on_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("turnlog.server.request_body.MAX_INLINE_DECODE_BYTES", strict_json.MAX_JSON_BYTES)
    assert is_decoded_on_the_loop(monkeypatch, MAX_INLINE_DECODE_BYTES + 1) == [True]


KEYS = ",".join(f'"k{number}":{number}' for number in range(4000))
ACCEPTED = f"{{{KEYS}}}".encode()
REFUSED = {
    "a key twice": f'{{{KEYS},"k1":1}}'.encode(),
    "a number out of range": f'{{{KEYS},"large":1e999}}'.encode(),
    "a number of 400 digits": f'{{{KEYS},"large":{"9" * 400}}}'.encode(),
    "too deep": f'{{{KEYS},"deep":{"[" * 40}{"]" * 40}}}'.encode(),
}
MORE_LINES = 200  # what it takes to make a message


def lines_to_decode(data: bytes) -> int:
    def decode() -> None:
        with suppress(BadInput):
            strict_json.decode_strict_json(data, dict[str, Any])

    return count_lines(decode)


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_body_takes_no_more_steps_than_an_accepted_one(kind: str) -> None:
    assert lines_to_decode(REFUSED[kind]) <= lines_to_decode(ACCEPTED) + MORE_LINES


def test_control_where_the_place_in_large_bodies_is_named_a_refusal_walks_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(strict_json, "MAX_PATH_SEARCH_BYTES", strict_json.MAX_JSON_BYTES)
    assert lines_to_decode(REFUSED["a key twice"]) > lines_to_decode(ACCEPTED) + 4000
