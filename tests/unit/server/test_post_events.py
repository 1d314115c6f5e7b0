"""`POST /api/events` takes an envelope, a list of envelopes, or a session with events (protocol 8.6)."""

from typing import Any

import pytest

from tests.support.tables import for_each_row
from turnlog.app import ClientEvent
from turnlog.errors import BadInput
from turnlog.server.routes.messages import MAX_EVENTS_PER_BODY, parse_post

HELLO = {"text": "hello"}
ENVELOPE = {
    "type": "ui.message",
    "id": "evt_1",
    "ts": "2026-01-08T12:34:56.789Z",
    "trace_id": "tr_1",
    "session_id": "sess_1",
    "payload": HELLO,
}
WITHOUT_SESSION = {name: value for name, value in ENVELOPE.items() if name != "session_id"}


def expected(path: str) -> ClientEvent:
    return ClientEvent("ui.message", HELLO, "evt_1", path, "tr_1")


@for_each_row(
    ("body", "paths"),
    [
        (ENVELOPE, ["$"]),
        ([ENVELOPE], ["$[0]"]),
        ([ENVELOPE, WITHOUT_SESSION], ["$[0]", "$[1]"]),
        ({"session": "sess_1", "events": [ENVELOPE, WITHOUT_SESSION]}, ["$.events[0]", "$.events[1]"]),
        ({"session": "sess_1", "events": []}, []),
    ],
)
def test_parse_post_of_every_form_gives_the_session_and_the_events(body: Any, paths: list[str]) -> None:
    post = parse_post(body)
    assert post.session_id == "sess_1"
    assert post.events == [expected(path) for path in paths]


def test_parse_post_of_an_event_without_an_id_creates_one() -> None:
    [event] = parse_post({"type": "ui.message", "session_id": "sess_1", "payload": HELLO}).events
    assert event.id.startswith("evt_")
    assert event.trace_id is None


@for_each_row(
    ("body", "problem"),
    [
        (WITHOUT_SESSION, r"expected the session of the event \(at \$.session_id\)"),
        ([WITHOUT_SESSION], r"expected the session of the event \(at \$\[0\].session_id\)"),
        ([], "expected at least one envelope"),
        ([ENVELOPE, ENVELOPE | {"session_id": "sess_2"}], r"events of one session .* \$\[1\].session_id"),
        ([ENVELOPE] * (MAX_EVENTS_PER_BODY + 1), "length <= 100"),
        (ENVELOPE | {"seq": 7}, "unknown field seq"),
        (ENVELOPE | {"origin": "model"}, "unknown field origin"),
        ([ENVELOPE | {"agent_id": "agt_1"}], r"unknown field agent_id \(at \$\[0\]\)"),
        (ENVELOPE | {"payload": {"text": " "}}, r"expected a message with some text \(at \$.payload.text\)"),
        ([ENVELOPE | {"payload": {"text": "x" * 100_001}}], r"at most 100000 characters.*\$\[0\].payload"),
        (ENVELOPE | {"ts": 1767875696789}, r"expected str . null, got int \(at \$.ts\)"),
        ({"session": "sess_1"}, "missing required field events"),
        ({}, "missing required field session"),
        ("hello", "expected object, got str"),
    ],
)
def test_parse_post_of_a_wrong_body_says_where_it_is_wrong(body: Any, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        parse_post(body)
