"""The JSON examples of document 002, posted to the real server as they stand there, and read back.

Only the placeholders of ids are filled in: `evt_...`, `tr_...`, `sess_...`, `view_...`. A `ts` stays `...`.
"""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.examples import over, read
from tests.e2e.harness import Reader, Server, kind, running
from tests.e2e.weights_desk import APP
from tests.statements.test_examples import EXAMPLES
from turnlog.ids import new_id
from turnlog.wire.sse import ServerSentEvent

Json = dict[str, Any]

DOCUMENT: dict[str, Json] = {case["name"]: case["example"] for case in EXAMPLES["002"]}
# What an envelope and a payload have beside the fields of the document.
ENVELOPE_EXTRAS = {"seq", "trace_id", "agent_id", "agent_name", "depth", "actor", "origin"}
PAYLOAD_EXTRAS = {
    "ui.message": set[str](),
    "ui.action": {"shown"},
    "assistant.message": {"block_id", "message_id"},
    "assistant.view": set[str](),
    "tool.call": {"call_id", "executor", "block_id", "message_id"},
    "tool.result": {"call_id"},
}


class Page:
    """A client that speaks document 002: it posts envelopes and reads envelopes."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.session = server.session()
        self.reader = Reader(server, self.session)

    def fill(self, name: str, trace: str = "", view: str = "") -> Json:
        """An example of the document with ids of this session."""
        envelope = copy.deepcopy(DOCUMENT[name])
        envelope |= {"id": new_id("evt_"), "session_id": self.session}
        if "trace_id" in envelope:
            envelope["trace_id"] = trace
        if view:
            envelope["payload"]["view_id"] = view
        return envelope

    def post(self, body: object) -> list[int]:
        status, answer = self.server.post("/api/events", body)
        assert status == 202, answer
        return list(answer["seqs"])

    def until(self, name: str) -> Json:
        """The next event of a type."""
        event: Json = read(self.reader, kind(name))[-1]
        return event

    def rest(self) -> list[Json]:
        return read(self.reader, over)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The example `weights`, without an executor: the test answers its calls."""
    with running(APP, tmp_path_factory.mktemp("envelopes")) as server:
        yield server


@pytest.fixture
def page(server: Server) -> Page:
    return Page(server)


def check_fields(event: Json, example: Json) -> None:
    """An event has every field of the example, and beside them only those that Turnlog adds."""
    assert event["type"] == example["type"]
    assert example.keys() <= event.keys() <= example.keys() | ENVELOPE_EXTRAS
    payload, shown = event["payload"], example["payload"]
    assert shown.keys() <= payload.keys() <= shown.keys() | PAYLOAD_EXTRAS[event["type"]]


def show_form(page: Page) -> tuple[Json, Json]:
    """The message of the document, and what the agent answers."""
    page.post(page.fill("ui.message"))
    events = page.rest()
    said = next(event for event in events if event["type"] == "assistant.message")
    view = next(event for event in events if event["type"] == "assistant.view")
    return said, view


def call_tool(page: Page) -> Json:
    """The turn of the document up to the call of the executor."""
    _, view = show_form(page)
    page.post([page.fill("ui.action", view=view["payload"]["view"]["view_id"])])
    return page.until("tool.call")


def test_ui_message_as_printed_starts_a_turn_and_is_read_back(page: Page) -> None:
    posted = page.fill("ui.message")
    [seq] = page.post(posted)
    assert page.post(posted) == [seq], "the same envelope again is the same event"
    event = page.until("ui.message")
    check_fields(event, DOCUMENT["ui.message"])
    assert (event["id"], event["seq"], event["payload"]) == (posted["id"], seq, posted["payload"])
    assert event["ts"] != posted["ts"]
    assert page.rest()[-1]["type"] == "agent.end"


def test_assistant_message_and_view_are_read_with_the_fields_of_the_document(page: Page) -> None:
    said, view = show_form(page)
    check_fields(said, DOCUMENT["assistant.message"])
    assert said["payload"]["text"] == "Got it. Please confirm the entry:"
    check_fields(view, DOCUMENT["assistant.view"])
    example = DOCUMENT["assistant.view"]["payload"]["view"]
    assert view["payload"]["view"].keys() == example.keys()
    assert view["payload"]["view"]["kind"] == "a2ui.v1"
    assert view["payload"]["view"]["view_id"].startswith("view_")


def test_ui_action_and_tool_call_are_read_with_the_fields_of_the_document(page: Page) -> None:
    call = call_tool(page)
    action = next(event for event in page.reader.events if event["type"] == "ui.action")
    check_fields(action, DOCUMENT["ui.action"])
    assert action["payload"]["action"] == DOCUMENT["ui.action"]["payload"]["action"]
    check_fields(call, DOCUMENT["tool.call"])
    assert call["payload"]["args"] == DOCUMENT["tool.call"]["payload"]["args"]
    assert call["payload"]["tool"] == "weight_entry_save_batch"
    assert call["trace_id"] == action["trace_id"]


@pytest.mark.parametrize(
    ("example", "answer"),
    [
        ("tool.result", "Saved: 187.6 lbs on 2026-01-08."),
        (
            "tool.result that failed",
            "That cannot be saved: weight_lbs must be > 0. Please correct it:",
        ),
    ],
)
def test_tool_result_as_printed_answers_the_open_call(page: Page, example: str, answer: str) -> None:
    call = call_tool(page)
    posted = page.fill(example, call["trace_id"])
    page.post({"session": page.session, "events": [posted]})
    result, *rest = page.rest()
    while result["type"] != "tool.result":
        result, *rest = rest
    check_fields(result, DOCUMENT[example])
    assert result["payload"] == {**posted["payload"], "call_id": call["payload"]["call_id"]}
    assert (result["trace_id"], result["origin"]) == (call["trace_id"], "tool")
    assert answer in [event["payload"].get("text") for event in rest]


def test_every_event_that_is_read_has_the_common_envelope(page: Page) -> None:
    call = call_tool(page)
    page.post(page.fill("tool.result", call["trace_id"]))
    page.rest()
    common = DOCUMENT["the common envelope"]
    for event in page.reader.events:
        of_turn = event["type"].partition(".")[0] not in ("session", "process")
        assert (common.keys() if of_turn else common.keys() - {"trace_id"}) <= event.keys(), event["type"]
        assert type(event["type"]) is str
        assert event["id"].startswith("evt_")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event["ts"])
        assert event.get("trace_id", "tr_").startswith("tr_")
        assert event["session_id"] == page.session
        assert page.session.startswith("sess_")
        assert type(event["payload"]) is dict


def test_an_executor_reads_the_calls_alone(page: Page) -> None:
    call = call_tool(page)
    executor = Reader(page.server, page.session, "&types=tool.call")

    def is_remote(message: ServerSentEvent) -> bool:
        if message.event != "message":
            return False
        return bool(json.loads(message.data)["payload"].get("executor") == "remote")

    *others, event = read(executor, is_remote)
    assert event == call
    assert {other["type"] for other in others} <= {"tool.call"}


def test_a_view_with_an_empty_tree_is_read_as_printed(tmp_path: Path) -> None:
    with running("tests.e2e.envelope_apps:viewing", tmp_path) as server:
        page = Page(server)
        page.post(page.fill("ui.message"))
        view = page.until("assistant.view")
    check_fields(view, DOCUMENT["assistant.view"])
    assert view["payload"] == {"view": {"kind": "a2ui.v1", "view_id": "view_1", "tree": {}}}


@pytest.mark.parametrize("name", ["assistant.message", "assistant.view", "tool.call"])
def test_a_page_posts_no_event_of_the_agent(page: Page, name: str) -> None:
    envelope = page.fill(name, "tr_1")
    envelope["payload"] |= {"call_id": "c"} if name == "tool.call" else {}
    status, answer = page.server.post("/api/events", envelope)
    assert (status, answer["error"]) == (400, f"{name} may not come from ui (at $.origin)")


def test_placeholders_that_are_not_filled_in_are_refused_with_their_place(page: Page) -> None:
    message = DOCUMENT["ui.message"] | {"session_id": page.session}
    status, answer = page.server.post("/api/events", message)
    assert status == 400
    assert answer["error"] == "expected `evt_` and 1 to 64 of A-Z a-z 0-9 _ -, got 'evt_...' (at $.id)"
    assert page.server.post("/api/events", DOCUMENT["ui.message"])[0] == 404
    common = page.fill("the common envelope", "tr_1")
    status, answer = page.server.post("/api/events", common)
    assert (status, answer["error"]) == (400, "expected a declared type, got 'string'")


@pytest.mark.parametrize("field", ["seq", "origin", "agent_id", "actor"])
def test_a_field_that_the_server_sets_is_refused(page: Page, field: str) -> None:
    status, answer = page.server.post("/api/events", page.fill("ui.message") | {field: "x"})
    assert (status, answer["error"]) == (400, f"object contains unknown field {field} (at $)")


@pytest.mark.parametrize(
    "change",
    [
        {"ok": True, "error": {"code": "X", "message": "x"}},
        {"ok": False, "error": None},
        {"ok": False, "error": {"code": "X", "message": "x"}},
    ],
)
def test_a_result_that_contradicts_itself_is_refused_and_its_call_stays_open(
    page: Page, change: Json
) -> None:
    call = call_tool(page)
    posted = page.fill("tool.result", call["trace_id"])
    wrong = posted | {"payload": posted["payload"] | change}
    status, answer = page.server.post("/api/events", wrong)
    assert status == 400
    assert "in a result" in answer["error"] or "beside an error" in answer["error"]
    page.post(posted)
    assert page.rest()[-1]["type"] == "agent.end"


def test_a_result_without_an_open_call_is_a_conflict_that_names_the_open_ones(page: Page) -> None:
    call = call_tool(page)
    other = page.fill("tool.result", call["trace_id"])
    other["payload"]["tool"] = "weight_entry_delete"
    status, answer = page.server.post("/api/events", other)
    assert status == 409
    open_call = f"{call['payload']['call_id']} (weight_entry_save_batch)"
    assert answer["error"].startswith("expected one open call of 'weight_entry_delete', got 0; ")
    assert f"; open calls: {open_call};" in answer["error"]


def test_a_list_of_envelopes_is_appended_in_its_order(page: Page) -> None:
    envelopes = [page.fill("ui.message"), page.fill("ui.message")]
    seqs = page.post(envelopes)
    page.rest()
    page.rest()
    messages = [event for event in page.reader.events if event["type"] == "ui.message"]
    assert [(event["id"], event["seq"]) for event in messages] == [
        (envelope["id"], seq) for envelope, seq in zip(envelopes, seqs, strict=True)
    ]
    assert len({event["trace_id"] for event in messages}) == 2, "each message has its turn"
