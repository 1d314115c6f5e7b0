"""Statements of document 000 (statements.md) that no other test says in so many words."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

import turnlog
from tests.statements.room import (
    BROKERS,
    TOUR,
    Room,
    body,
    cities,
    of_type,
    opened,
    saying,
    tag,
    talk,
    touring,
    trip,
)
from tests.support.folds import root_messages
from tests.support.written_logs import entry, scope
from turnlog import Agent, App, events, open_log
from turnlog.agents import ReplyBuilder, Request
from turnlog.app import LOCAL, ClientEvent, Sessions
from turnlog.events import Envelope, EventType, Payload, UiMessage
from turnlog.parse import AgentStreamParser, ParsedText, TagEvent, strip_event_tags
from turnlog.state.history import History, Message
from turnlog.vocabularies import FULL_CATALOG
from turnlog_examples.broker.events import BROKER


def test_model_and_page_say_an_event_by_the_same_name_and_shape() -> None:
    def from_both(kind: EventType) -> bool:
        payload = msgspec.convert(kind.payload_class.EXAMPLE, kind.payload_class)
        return (
            kind.allows_origin(payload, "model")
            and kind.allows_origin(payload, "ui")
            and not kind.payload_class.LEGACY
        )

    both = [kind for kind in BROKER if from_both(kind)]
    assert len(both) == 13
    for kind in both:
        [found] = strip_event_tags(tag(kind.tag, kind.payload_class.EXAMPLE), BROKER).events
        sent = BROKERS.build_event(kind.name, kind.payload_class.EXAMPLE, id="evt_1", origin="ui")
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
        assert BROKERS.build_event(f"broker.{name}", data, id="evt_1", origin="ui").type == f"broker.{name}"
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
    assert [streaming.feed(character) for character in text[:-1]] == [ParsedText("", [], [])] * (
        len(text) - 1
    )
    assert streaming.feed(text[-1]).events == [TagEvent("t", {"a": 1})]


def test_the_results_of_the_parsers_have_the_names_of_the_document_in_json() -> None:
    """`{ displayText, events }` of a feed, `{ display, events }` of a whole text, each with its rejects."""
    text = "Hi. " + tag("t", {"a": 1})
    parser = AgentStreamParser()
    fed = msgspec.json.decode(msgspec.json.encode(parser.feed(text)))
    assert fed == {"displayText": "Hi.", "events": [{"type": "t", "data": {"a": 1}}], "rejects": []}
    assert msgspec.json.decode(msgspec.json.encode(parser.flush())) == {
        "displayText": "",
        "events": [],
        "rejects": [],
    }
    whole = msgspec.json.decode(msgspec.json.encode(strip_event_tags(text)))
    assert whole == {"display": "Hi.", "events": [{"type": "t", "data": {"a": 1}}], "rejects": []}


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


@dataclass
class Telling:
    """A model that says its text in these pieces."""

    pieces: Sequence[str]
    name: str = "telling"

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        for piece in self.pieces:
            yield reply.text(piece)
        yield reply.done("end_turn")


def test_a_turn_of_one_whole_text_is_that_of_its_pieces() -> None:
    text = f"Two trips. {trip('Oslo')} And {trip('Rome')}"
    turns = []
    for pieces in ([text], text):
        happened = [event for event in talk(touring(Telling(pieces)), "go") if event.type != "block.delta"]
        texts = [said["text"] for said in of_type(happened, "assistant.message")]
        turns.append(([event.type for event in happened], texts, of_type(happened, "tour.note_trip")))
    assert turns[0] == turns[1]
    assert (turns[0][1], len(turns[0][2])) == (["Two trips. And"], 2)


def test_a_turn_of_events_alone_applies_them_and_says_nothing() -> None:
    happened = talk(saying(lambda messages: [f" {trip('Oslo')}\n"]), "go")
    types = [event.type for event in happened]
    assert types[3:] == ["agent.start", "tour.note_trip", "agent.usage", "agent.end"]
    assert body(happened[-1])["steps"] == 1, "no round trip follows a tag"


def test_the_model_reads_no_blank_turn_and_no_two_turns_of_one_role() -> None:
    history = History()
    one, two = (events.AgentStart(name="Guide", via="prompt", prompt=text) for text in ("one", "two"))
    for payload in (one, events.AssistantMessage(text=" \n"), two):
        history.apply(*entry(payload, scope("agt_1")))
    assert root_messages(history) == [
        Message("user", [{"type": "text", "text": text} for text in ("one", "two")])
    ]


def test_state_is_made_of_the_events_of_its_session_and_nothing_else() -> None:
    async def play() -> None:
        async with opened(saying(lambda messages: [trip("Oslo")])) as room:
            other = await room.sessions.create(LOCAL)
            await room.send("go")
            _, state = await room.sessions.state(await room.seat())
            assert state == {"trips": [{"city": "Oslo", "weather": "rain"}]}
            assert (await room.sessions.state(other))[1] == {"trips": []}
            elsewhere = Sessions(room.log, [TOUR], 2)
            assert (await elsewhere.state(await room.seat()))[1] == state, "another process"

    asyncio.run(play())


@dataclass
class Watching:
    """A model that looks at the log when it is asked."""

    name: str = "watching"
    room: Room | None = None
    seen: list[str] = field(default_factory=list)

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        assert self.room
        self.seen += [row.type for row in await self.room.log.read(self.room.session)]
        yield [*reply.text("Hi."), *reply.done("end_turn")]


def test_direct_events_and_the_start_of_an_agent_are_there_before_its_model_is_asked() -> None:
    async def play() -> None:
        async with opened(App("broker", Agent("Broker", "", model), vocabulary=BROKER)) as model.room:
            posted = ClientEvent("broker.record_eligibility", eligible, "evt_1")
            assert await model.room.sessions.post(await model.room.seat(), [posted]) == [2]
            await model.room.send("hello")
            assert (model.room.events[2].origin, body(model.room.events[2])) == ("ui", eligible)

    model = Watching()
    eligible = {"isOver18": True, "isUkResident": True, "isHomeowner": True, "isEmployed": True}
    asyncio.run(play())
    assert model.seen == [
        "session.member",
        "process.start",
        "broker.record_eligibility",
        "ui.message",
        "agent.start",
    ]


def test_request_decision_is_a_legacy_type_that_is_still_read() -> None:
    kind = BROKERS.get_event_type("broker.request_decision")
    assert (kind.payload_class.LEGACY, kind.decoder.decode(b"{}")) == (True, kind.payload_class())


def test_no_type_and_no_envelope_has_a_version() -> None:
    assert not [name for name in (*FULL_CATALOG.types, *BROKERS.types) if re.search(r"v\d|version", name)]
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
