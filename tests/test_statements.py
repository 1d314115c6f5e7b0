"""Statements of the source documents (docs/seeds.md) that no other test says in so many words."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

import turnlog
from tests.e2e import harness
from tests.logs import entry, scope, vector_log
from tests.test_seed_names import NAMES, mapping
from turnlog import Agent, App, Catalog, Scope, events, open_log, tool
from turnlog.agents import Model, Reply, Scripted, ToolUse
from turnlog.app import Sessions
from turnlog.app.sessions import Posted
from turnlog.errors import InvalidEvent
from turnlog.events import CATALOG, Envelope, Kind, Origin, Payload, UiMessage, decode, stamp
from turnlog.log import Log, line_of
from turnlog.parse import AgentStreamParser, Parsed, TagEvent, strip_event_tags
from turnlog.state.fold import fold
from turnlog.state.history import History, Message
from turnlog.testing.bench import following
from turnlog.wire.blocks import Blocks
from turnlog.wire.blocks_xml import BlocksXml
from turnlog.wire.chunks import LIMIT_BYTES, chunk
from turnlog.wire.dialect import BlocksOptions
from turnlog.wire.telling import Told, Wanted
from turnlog_examples.broker.events import BROKER
from turnlog_examples.tour import make_app

Script = Callable[[list[Message]], Iterable[str | ToolUse]]

TOUR = make_app()
BROKERS = Catalog(BROKER)
VECTORS = json.loads((Path(__file__).parent / "vectors" / "wire" / "blocks.json").read_text())["cases"]
SAID = {case["name"]: case["messages"] for case in VECTORS}  # what `blocks` says: shown by its own tests


def tag(name: str, data: object) -> str:
    return f"<agent-event type=\"{name}\" data='{json.dumps(data)}' />"


def trip(city: str) -> str:
    return tag("note_trip", {"city": city, "weather": "rain"})


def touring(model: Model) -> App:
    """The tour with another guide."""
    guide = Agent("Guide", "", model)
    return App("tour", guide, vocabulary=TOUR.vocabulary, reducers=TOUR.reducers, start=TOUR.start)


def saying(script: Script) -> App:
    return touring(Scripted(script))


@dataclass
class Room:
    """One session in memory, as its caller sees it."""

    log: Log
    sessions: Sessions
    session: str
    events: list[Envelope] = field(default_factory=list)

    async def send(self, text: str) -> None:
        """Send a message; take what comes until the top agent ends or waits."""
        await self.sessions.send(self.session, UiMessage(text=text))
        await self._take()

    async def answer(self, result: bool) -> None:
        """Answer the question that waits, like a page."""
        await (await self.sessions.driver(self.session)).reached(self.events[-1].seq)
        [call] = body(self.events[-1])["calls"]
        payload = {"call_id": call["call_id"], "tool": call["tool"], "ok": True, "result": result}
        await self.sessions.post(self.session, [Posted("tool.result", payload, turnlog.new_id("evt_"))])
        await self._take()

    async def _take(self) -> None:
        async with following(self.log, self.session, self.events[-1].seq if self.events else -1) as pages:
            async for page in pages:
                new = [decode(line_of(row)) for row in page]
                self.events += new
                if any(event.type in ("agent.end", "tool.await") and not event.depth for event in new):
                    return


@asynccontextmanager
async def opened(app: App) -> AsyncIterator[Room]:
    log = await open_log("memory:")
    sessions = Sessions(log, app, 1)
    room = Room(log, sessions, await sessions.create())
    try:
        yield room
    finally:
        await room.sessions.close()
        await log.close()


def talk(app: App, *moves: str | bool) -> list[Envelope]:
    """Everything that happens in a session: a text is sent, a truth value answers what waits."""

    async def play() -> list[Envelope]:
        async with opened(app) as room:
            for move in moves:
                await (room.send(move) if isinstance(move, str) else room.answer(move))
            return room.events

    return asyncio.run(play())


def body(event: Envelope) -> Any:
    return json.loads(bytes(event.payload))


def of_type(happened: list[Envelope], name: str) -> list[Any]:
    return [body(event) for event in happened if event.type == name]


def cities(app: App, happened: list[Envelope]) -> list[str]:
    """The trips in the state that these events make."""
    state = fold(app.reducers, map(app.catalog.payload, happened), app.start())
    return [noted["city"] for noted in state["trips"]]


# Document 000


def test_model_and_page_say_an_event_by_the_same_name_and_shape() -> None:
    def from_both(kind: Kind) -> bool:
        payload = msgspec.convert(kind.payload.EXAMPLE, kind.payload)
        return kind.admits(payload, "model") and kind.admits(payload, "ui") and not kind.payload.LEGACY

    both = [kind for kind in BROKER if from_both(kind)]
    assert len(both) == 13
    for kind in both:
        [found] = strip_event_tags(tag(kind.tag, kind.payload.EXAMPLE), BROKER).events
        sent = BROKERS.event(kind.name, kind.payload.EXAMPLE, id="evt_1", origin="ui")
        assert (f"broker.{found.type}", found.payload) == (sent.type, sent.payload)


def test_regulated_events_come_from_the_page_and_not_from_the_model() -> None:
    regulated: dict[str, dict[str, Any]] = {
        "acknowledge_disclosure": {"id": "credit_search_consent"},
        "capture_consent": {"consentType": "credit_search", "granted": True},
        "submit_application": {},
        "accept_counter_offer": {},
        "refuse_counter_offer": {},
        "select_offer": {"offerId": "offer_1"},
    }
    for name, data in regulated.items():
        assert BROKERS.event(f"broker.{name}", data, id="evt_1", origin="ui").type == f"broker.{name}"
        stripped = strip_event_tags("Done." + tag(name, data), BROKER)
        assert ([reject.reason for reject in stripped.rejects], stripped.events) == (["wrong_origin"], [])


def test_an_apostrophe_cuts_nothing_off() -> None:
    data = {"fullName": "Sarah John's", "town": "King's Lynn", "postcode": "PE30 1AA"}
    assert strip_event_tags(tag("record_personal_facts", data)).events[0].data == data


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ('{"id":"“x”"}', "“x”"),
        (r'{"id":"say \"x\""}', 'say "x"'),
        (r"{\"id\":\"“x”\"}", "“x”"),
        ("{“id”:“John’s”}", "John's"),
    ],
)
def test_three_forms_of_json_are_tried_in_order(data: str, value: str) -> None:
    stripped = strip_event_tags(f"<agent-event type='t' data='{data}' />")
    assert (stripped.events, stripped.rejects) == ([TagEvent("t", {"id": value})], [])


@pytest.mark.parametrize("data", ["{id:1}", '{"id":1,}', '{"id":1', '["id"]', "{&quot;id&quot;:1}"])
def test_no_fourth_form_is_read_and_the_text_goes_on(data: str) -> None:
    stripped = strip_event_tags(f"one <agent-event type='t' data='{data}' /> two")
    assert (stripped.display, stripped.events) == ("one two", [])
    assert len(stripped.rejects) == 1


def test_an_event_comes_when_its_tag_is_closed_and_not_before() -> None:
    streaming, text = AgentStreamParser(), tag("t", {"a": 1})
    assert streaming.feed("Hi. ").display_text == "Hi."
    assert [streaming.feed(character) for character in text[:-1]] == [Parsed("", [], [])] * (len(text) - 1)
    assert streaming.feed(text[-1]).events == [TagEvent("t", {"a": 1})]


def test_an_event_lost_in_a_malformed_tag_may_be_sent_again_on_the_next_turn() -> None:
    broken = trip("Oslo").replace("{", "{{")
    app = saying(lambda messages: ["Noted. " + (broken if len(messages) == 1 else trip("Oslo"))])
    happened = talk(app, "Oslo", "again")
    assert [said["text"] for said in of_type(happened, "assistant.message")] == ["Noted.", "Noted."]
    assert [end["stop_reason"] for end in of_type(happened, "agent.end")] == ["end_turn", "end_turn"]
    first = next(event.seq for event in happened if event.type == "agent.end")
    assert (cities(app, happened[: first + 1]), cities(app, happened)) == ([], ["Oslo"])


def test_the_events_of_a_turn_are_applied_in_the_order_they_are_written() -> None:
    app = saying(lambda messages: [f"Two trips. {trip('Oslo')} And {trip('Rome')}"])
    assert cities(app, talk(app, "go")) == ["Oslo", "Rome"]


def test_a_turn_of_events_alone_applies_them_and_says_nothing() -> None:
    happened = talk(saying(lambda messages: [f" {trip('Oslo')}\n"]), "go")
    types = [event.type for event in happened]
    assert types[2:] == ["agent.start", "tour.note_trip", "agent.usage", "agent.end"]
    assert body(happened[-1])["steps"] == 1, "no round trip follows a tag"


def test_the_model_reads_no_blank_turn_and_no_two_turns_of_one_role() -> None:
    history = History()
    one, two = (events.AgentStart(name="Guide", via="prompt", prompt=text) for text in ("one", "two"))
    for payload in (one, events.AssistantMessage(text=" \n"), two):
        history.apply(*entry(payload, scope("agt_1")))
    assert history.root == [Message("user", [{"type": "text", "text": text} for text in ("one", "two")])]


def test_state_is_made_of_the_events_of_its_session_and_nothing_else() -> None:
    async def play() -> None:
        async with opened(saying(lambda messages: [trip("Oslo")])) as room:
            other = await room.sessions.create()
            await room.send("go")
            seq, state = await room.sessions.state(room.session)
            assert state == {"trips": [{"city": "Oslo", "weather": "rain"}]}
            assert (await room.sessions.state(other))[1] == {"trips": []}
            assert await Sessions(room.log, TOUR, 2).state(room.session) == (seq, state), "another process"

    asyncio.run(play())


@dataclass
class Watching:
    """A model that looks at the log when it is asked."""

    name: str = "watching"
    room: Room | None = None
    seen: list[str] = field(default_factory=list)

    async def stream(
        self, instructions: str, messages: list[Message], reply: Reply
    ) -> AsyncIterator[list[Payload]]:
        assert self.room
        self.seen += [row.type for row in await self.room.log.read(self.room.session)]
        yield [*reply.text("Hi."), *reply.done("end_turn")]


def test_direct_events_and_the_start_of_an_agent_are_there_before_its_model_is_asked() -> None:
    async def play() -> None:
        async with opened(App("broker", Agent("Broker", "", model), vocabulary=BROKER)) as model.room:
            posted = Posted("broker.record_eligibility", eligible, "evt_1")
            assert await model.room.sessions.post(model.room.session, [posted]) == [1]
            await model.room.send("hello")
            assert (model.room.events[1].origin, body(model.room.events[1])) == ("ui", eligible)

    model = Watching()
    eligible = {"isOver18": True, "isUkResident": True, "isHomeowner": True, "isEmployed": True}
    asyncio.run(play())
    assert model.seen == ["process.start", "broker.record_eligibility", "ui.message", "agent.start"]


def test_request_decision_is_a_legacy_type_that_is_still_read() -> None:
    kind = BROKERS.kind("broker.request_decision")
    assert (kind.payload.LEGACY, kind.decoder.decode(b"{}")) == (True, kind.payload())


def test_no_type_and_no_envelope_has_a_version() -> None:
    assert not [name for name in (*CATALOG.kinds, *BROKERS.kinds) if re.search(r"v\d|version", name)]
    assert "version" not in Envelope.__struct_fields__


def test_the_log_counts_every_event_once_by_its_own_id() -> None:
    async def count() -> int:
        log = await open_log("memory:")
        session = await log.create("audit")
        first, second = (turnlog.event(UiMessage(text="hi"), origin="ui") for _ in range(2))
        for event in (first, second, second):
            await log.append(session, [event])
        rows = await log.read(session)
        await log.close()
        return len(rows)

    assert asyncio.run(count()) == 2


# Document 001


def result_count(messages: list[Message]) -> int:
    return sum(part["type"] == "tool_result" for message in messages for part in message.content)


def calling(name: str, *agents: Agent) -> Agent:
    """An agent that says something, calls these agents, and says something again."""

    def script(messages: list[Message]) -> Iterator[str | ToolUse]:
        yield f"{name} {'ends' if result_count(messages) else 'begins'}."
        if not result_count(messages):
            yield from [ToolUse(agent.tool_name, {"prompt": "go"}) for agent in agents]

    return Agent(name, "", Scripted(script), agents=agents)


@pytest.fixture(scope="module")
def tree() -> list[Envelope]:
    """What a caller gets of Agent A, which calls B and C; B calls D."""
    top = calling("Agent A", calling("Agent B", calling("Agent D")), calling("Agent C"))
    return talk(App("tree", top), "go")


def test_an_event_says_which_agent_made_it_and_how_deep_that_is(tree: list[Envelope]) -> None:
    made = {(event.agent_name, event.depth) for event in tree if event.agent_id}
    assert made == {("Agent A", 0), ("Agent B", 1), ("Agent C", 1), ("Agent D", 2)}


def test_the_caller_of_one_agent_gets_the_events_of_all_it_calls(tree: list[Envelope]) -> None:
    asked = [start["name"] for start in of_type(tree, "agent.start") if start["via"] == "prompt"]
    assert asked == ["Agent A"]
    for name in ("Agent A", "Agent B", "Agent C", "Agent D"):
        types = [event.type for event in tree if event.agent_name == name]
        assert (types[0], "assistant.message" in types, types[-1]) == ("agent.start", True, "agent.end")


def test_what_an_agent_says_comes_before_the_agent_it_then_calls(tree: list[Envelope]) -> None:
    said = next(event for event in tree if event.type == "assistant.message")
    called = next(event for event in tree if event.agent_name == "Agent B")
    assert (said.agent_name, said.seq < called.seq) == ("Agent A", True)
    assert body(called)["parent_id"] == said.agent_id


def test_a_reader_can_leave_out_sub_agents_by_depth(tree: list[Envelope]) -> None:
    shown = [body(event)["text"] for event in tree if event.type == "block.delta" and event.depth == 0]
    assert "".join(shown) == "Agent A begins.Agent A ends."


def test_the_types_of_a_turn_are_a_declared_set(tree: list[Envelope]) -> None:
    assert {event.type for event in tree} <= set(CATALOG.kinds)


def test_the_conversation_is_kept_as_long_as_the_session() -> None:
    def recall(messages: list[Message]) -> list[str | ToolUse]:
        return [" ".join(part["text"] for turn in messages[::2] for part in turn.content)]

    async def play() -> None:
        async with opened(saying(recall)) as room:
            await room.send("one")
            await room.send("two")
            await room.sessions.close()
            room.sessions = Sessions(room.log, room.sessions.app, 2)
            await room.send("three")
            assert of_type(room.events, "assistant.message")[-1]["text"] == "one two three"

    asyncio.run(play())


# Document 002

ENTRY = {"measured_at": "2026-01-08", "weight_lbs": 187.6}
ROW = {"measured_at": "2026-01-08T12:00:00-05:00", "weight_lbs": 187.6, "notes": ""}
SUBMIT = {"kind": "form.submit", "form_id": "weight_entry", "values": ENTRY}
SAVE = {"call_id": "toolu_01", "tool": "weight_entry_save_batch"}
SAVED = {"saved": 1, "ids": ["wt_1"]}
PATH = {"path": ["rows", 0, "weight_lbs"]}
FAULT = {"code": "VALIDATION_ERROR", "message": "weight_lbs must be > 0", "details": PATH}
EXAMPLES: list[tuple[str, Origin, dict[str, Any]]] = [
    ("ui.message", "ui", {"text": "Weigh-in 187.6 today"}),
    ("ui.action", "ui", {"view_id": "view_1", "action": SUBMIT}),
    ("assistant.message", "model", {"text": "Got it. Please confirm the entry:"}),
    ("assistant.view", "model", {"view": {"kind": "a2ui.v1", "view_id": "view_1", "tree": {}}}),
    ("tool.call", "model", {**SAVE, "args": {"rows": [ROW]}}),
    ("tool.result", "tool", {**SAVE, "ok": True, "result": SAVED, "error": None}),
    ("tool.result", "tool", {**SAVE, "ok": False, "result": None, "error": FAULT}),
]


def written(name: str, origin: Origin, payload: Mapping[str, Any], trace: str | None = "tr_1") -> Any:
    """An event as it stands in the log."""
    event = turnlog.event(name, payload, origin=origin, scope=Scope(trace_id=trace))
    return json.loads(stamp(event, session_id="sess_1", seq=7, ts_ms=1_767_875_696_789))


@pytest.mark.parametrize(("name", "origin", "payload"), EXAMPLES)
def test_an_example_is_written_as_it_stands_there(name: str, origin: Origin, payload: Any) -> None:
    said = written(name, origin, payload)
    assert said.pop("id").startswith("evt_")
    place = {"type": name, "ts": "2026-01-08T12:34:56.789Z", "session_id": "sess_1", "trace_id": "tr_1"}
    assert said == {**place, "seq": 7, "origin": origin, "payload": payload}


@pytest.mark.parametrize(("name", "origin", "payload"), EXAMPLES[:2])
def test_what_a_page_sends_needs_no_trace(name: str, origin: Origin, payload: Any) -> None:
    assert "trace_id" not in written(name, origin, payload, None)


@pytest.mark.parametrize("kind", list(CATALOG), ids=lambda kind: kind.name)
def test_every_event_has_the_common_envelope(kind: Kind) -> None:
    payload = msgspec.convert(kind.payload.EXAMPLE, kind.payload)
    origins: tuple[Origin, ...] = ("system", "model", "ui", "tool")
    origin = next(origin for origin in origins if kind.admits(payload, origin))
    said = written(kind.name, origin, kind.payload.EXAMPLE)
    assert (said["type"], type(said["payload"])) == (kind.name, dict)
    places = " ".join(said[name] for name in ("id", "ts", "trace_id", "session_id"))
    assert re.fullmatch(r"evt_\S+ \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z tr_\S+ sess_\S+", places)


def test_a_page_cannot_call_a_tool_and_a_model_cannot_speak_for_a_page() -> None:
    wrong: list[Origin] = ["model", "model", "ui"]
    for (name, _, payload), origin in zip((*EXAMPLES[:2], EXAMPLES[4]), wrong, strict=True):
        with pytest.raises(InvalidEvent, match=f"may not come from {origin}"):
            written(name, origin, payload)


# Document 003

CITATION = {
    "document_index": 0,
    "document_title": "My Document",
    "start_char_index": 0,
    "end_char_index": 20,
    "start_page_number": 1,
    "end_page_number": 2,
    "url": "https://example.com",
    "title": "Example",
}
EXTRA = {
    "citation": {"citation_type", *CITATION},
    "tool_call": {"id", "name"},
    "server_tool_call": {"id", "name"},
    "tool_result": {"id", "name"},
    "tool_result_image": {"id", "name", "src", "media_type"},
    "server_tool_result": {"id", "name"},
}
BASE = {"type": str, "agent": str, "final": bool, "delta": str}


def told(*payloads: Payload) -> list[Any]:
    """The messages of some events of one agent."""
    blocks = Blocks()
    converted = [blocks.convert(*entry(payload, scope("agt_1"), seq)) for seq, payload in enumerate(payloads)]
    return [json.loads(message) for messages in converted for message in messages]


def test_the_13_types_and_the_fields_of_each() -> None:
    found: dict[str, set[str]] = {}
    for message in (message for messages in SAID.values() for message in messages):
        assert {key: type(message[key]) for key in BASE} == BASE
        found.setdefault(message["type"], set()).update(set(message) - {*BASE, "index"})
    assert set(found) - {"rollback"} == set(NAMES["003"])
    assert len(NAMES["003"]) == 13
    for name, extra in found.items():
        assert extra <= EXTRA.get(name, set())
        assert extra == EXTRA.get(name, set()) or name == "citation", "which is tried with all of them"


def test_a_citation_with_every_field() -> None:
    cited = msgspec.convert({"type": "page_location", "cited_text": "x", **CITATION}, events.Citation)
    *_, citation = told(events.AssistantMessage(text="Green.", citations=(cited,)))
    assert citation.items() >= CITATION.items()
    assert (citation["citation_type"], citation["delta"]) == ("page_location", "x")


@pytest.mark.parametrize("name", NAMES["003"])
def test_streamed_types_end_with_an_empty_message_and_buffered_ones_with_content(name: str) -> None:
    for case, messages in SAID.items():
        mine = [message for message in messages if message["type"] == name]
        if name == "tool_result_image":
            assert not any(message["final"] or message["delta"] for message in mine)
        elif name in ("text", "thinking") or "image" in case:
            assert not any(message["delta"] for message in mine if message["final"])
        else:
            assert all(message["delta"] for message in mine if message["final"])


def test_two_deltas_and_a_stop_are_three_messages() -> None:
    deltas = [events.BlockDelta(block_id="b", text=text) for text in ("Hello", " world")]
    end = events.BlockEnd(block_id="b", status="complete")
    said = told(events.BlockStart(block_id="b", kind="text"), *deltas, end)
    finals = [(message["final"], message["delta"]) for message in said]
    assert finals == [(False, "Hello"), (False, " world"), (True, "")]


@pytest.mark.parametrize(
    ("case", "deltas"),
    [
        ("meta_init", '{"format":"json","user_query":"He|llo","model":"claude-sonnet-4-5"}'),
        ("tool_call", '{"pattern":"TODO","pa|th":"src/"}'),
        (
            "tool_result, lines of text",
            "Line 1: import os\nLine 2: import sy|s\nLine 3: from pathlib import Path",
        ),
        ("server_tool_result", '[{"title":"Resul|t 1"}]'),
        (
            "meta_files",
            '{"files":[{"file_id":"file_01","filename":"report.pdf","storage_lo|cation":"https://..."}]}',
        ),
    ],
)
def test_an_example_in_two_chunks_joins_to_what_one_message_says(case: str, deltas: str) -> None:
    [message] = SAID[case]
    fields = {key: value for key, value in message.items() if key not in ("delta", "final")}
    joined, whole = deltas.replace("|", ""), message["delta"]
    assert joined == whole or json.loads(joined).items() <= json.loads(whole).items()
    limit = len(chunk(**fields, payload="", final=False)[0]) + len(json.dumps(whole)) // 2 + 3
    first, second = (json.loads(part) for part in chunk(**fields, payload=whole, limit_bytes=limit))
    assert first == {**fields, "final": False, "delta": first["delta"]}
    assert second == {**fields, "final": True, "delta": whole.removeprefix(first["delta"])}


BIG = "long " * 2000
FILE = events.File(file_id="file_01", filename="report.pdf", storage_location="https://...")
LARGE: list[Payload] = [
    events.ToolCall(call_id="s", tool="web_search", args={"query": BIG}, executor="provider"),
    events.ToolResult(call_id="s", tool="web_search", ok=True, result=[BIG], kind="web_search_tool_result"),
    events.AssistantFiles(files=(FILE,) * 100),
    events.SessionError(code="api_error", message=BIG),
]


@pytest.mark.parametrize("payload", LARGE, ids=lambda payload: type(payload).__name__)
def test_what_is_large_is_cut_and_only_its_last_message_is_final(payload: Payload) -> None:
    messages = told(payload)
    assert [message["final"] for message in messages] == [False] * (len(messages) - 1) + [True]
    assert len({(message["type"], message.get("id"), message.get("name")) for message in messages}) == 1
    assert len(messages) > 3
    assert json.loads("".join(message["delta"] for message in messages))


@pytest.mark.parametrize("extra", [{}, {"id": "toolu_01", "name": "grep_search"}])
def test_the_room_for_a_delta_is_2048_bytes_less_the_empty_message(extra: dict[str, Any]) -> None:
    empty = len(chunk("tool_result", "abc-123", "", final=False, **extra)[0])
    first, *_ = chunk("tool_result", "abc-123", "x" * 5000, final=False, **extra)
    assert (LIMIT_BYTES, len(first), len(json.loads(first)["delta"])) == (2048, 2048, 2048 - empty)
    assert (empty > 65) == bool(extra), "extra fields take their room from the delta"


@tool
def weather(city: str) -> str:
    return "rain"


@tool(executor="frontend")
def confirm(question: str) -> bool:
    raise NotImplementedError


def asking(messages: list[Message]) -> Iterator[str | ToolUse]:
    """A tool and a question at once, then a question alone, then an answer."""
    yield f"Step {result_count(messages)}."
    if result_count(messages) == 0:
        yield ToolUse("weather", {"city": "Oslo"})
    if result_count(messages) < 3:
        yield ToolUse("confirm", {"question": "Go?"})


@pytest.fixture(scope="module")
def run() -> list[Envelope]:
    agent = Agent("Guide", "", Scripted(asking), tools=(weather, confirm))
    return talk(App("asking", agent), "Hi", True, False)


def projected(happened: list[Envelope], **options: bool) -> list[tuple[str, Any]]:
    """The messages of a session, each with the origin of its event."""
    dialect = Told(Wanted("blocks", BlocksOptions(**options)))
    converted = [(event.origin, dialect.convert(event, CATALOG.payload(event))) for event in happened]
    return [(origin, json.loads(message)) for origin, messages in converted for message in messages]


def test_a_run_with_questions_to_the_page_has_the_order_of_the_document(run: list[Envelope]) -> None:
    messages = [message for _, message in projected(run, stream_meta_history_and_tool_results=True)]
    order = " ".join(name for name, _ in groupby(message["type"] for message in messages))
    first = "text tool_call tool_result awaiting_frontend_tools tool_result"
    second = "text tool_call awaiting_frontend_tools tool_result"
    assert order == f"meta_init {first} {second} text meta_final"
    results = [message for message in messages if message["type"] == "tool_result"]
    calls = [(message["id"], message["name"]) for message in messages if message["type"] == "tool_call"]
    assert calls == [(result["id"], result["name"]) for result in results]
    assert [result["delta"] for result in results] == ["rain", "true", "false"]
    assert {UUID(message["agent"]).version for message in messages} == {7}


def test_who_makes_the_messages_of_a_run(run: list[Envelope]) -> None:
    made = {(m["type"], origin) for origin, m in projected(run, stream_meta_history_and_tool_results=True)}
    by_runtime = {(name, "system") for name in ("meta_init", "awaiting_frontend_tools", "meta_final")}
    by_others = {("text", "model"), ("tool_call", "model"), ("tool_result", "tool"), ("tool_result", "ui")}
    assert made == by_runtime | by_others


def test_histories_are_told_on_request_and_the_summary_at_the_end_of_the_run(run: list[Envelope]) -> None:
    plain = [message for _, message in projected(run)]
    assert "message_history" not in json.loads(plain[0]["delta"])
    assert "meta_final" not in {message["type"] for message in plain}
    full = [message for _, message in projected(run, stream_meta_history_and_tool_results=True)]
    assert json.loads(full[0]["delta"])["message_history"] == []
    summary = json.loads(full[-1]["delta"])
    assert (summary["stop_reason"], summary["total_steps"]) == ("end_turn", 3)
    assert [turn["role"] for turn in summary["conversation_history"]] == ["user", "assistant"] * 3


@pytest.mark.parametrize(
    ("tag", "names"),
    [
        ('<meta_init data="', {"meta_init"}),
        ("<content-block-thinking ", {"thinking"}),
        ("<content-block-text ", {"text"}),
        ("<citation ", {"citation"}),
        ("<content-block-tool_call ", {"tool_call"}),
        ("<content-block-server_tool_call ", {"server_tool_call"}),
        ("<content-block-tool_result ", {"tool_result", "tool_result_image"}),
        ("<content-block-server_tool_result ", {"server_tool_result"}),
        ('<awaiting_frontend_tools data="', {"awaiting_frontend_tools"}),
        ("<content-block-meta_files", {"meta_files"}),
        ("<content-block-error", {"error"}),
        ('<meta_final data="', {"meta_final"}),
    ],
)
def test_the_xml_from_before_has_a_tag_where_blocks_has_the_type(tag: str, names: set[str]) -> None:
    found = 0
    for case in VECTORS:
        xml = BlocksXml(msgspec.convert(case.get("options", {}), BlocksOptions))
        said = b"".join(message for item in vector_log(case["events"]) for message in xml.convert(*item))
        wanted = any(message["type"] in names and message["delta"] for message in case["messages"])
        assert (tag in said.decode()) == wanted, case["name"]
        found += wanted
    assert found


# Document 004

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
