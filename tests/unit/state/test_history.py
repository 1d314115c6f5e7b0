"""What the models of a session read, from its log alone (protocol section 4)."""

import json
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from msgspec import structs

from tests.support.folds import apply_events, root_messages
from tests.support.tables import check_laws, for_each_row
from tests.support.written_logs import Item, entry, log, place, scope, vector_log
from turnlog.events import (
    CORE,
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AssistantBlock,
    AssistantMessage,
    BlockRetract,
    Catalog,
    ErrorInfo,
    Origin,
    Payload,
    Scope,
    ToolCall,
    ToolResult,
    UiMessage,
    Vocabulary,
)
from turnlog.events.payload import ANY_ORIGIN
from turnlog.state.content_parts import result_text
from turnlog.state.history import History, Message

VECTORS = Path(__file__).parents[2] / "vectors" / "state" / "history.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["cases"]


def told(items: list[Item]) -> History:
    history = History()
    for envelope, payload in items:
        history.apply(envelope, payload)
    return history


def check_conversations(case: dict[str, Any]) -> None:
    history = told(vector_log(case["events"]))
    assert msgspec.to_builtins(root_messages(history)) == case["root"]
    called = {agent_id: one.messages for agent_id, one in history.by_agent.items()}
    assert msgspec.to_builtins(called) == case["called"]
    for agent_id, messages in case.get("read", {}).items():
        assert msgspec.to_builtins(history.messages(agent_id)) == messages


def check_a_model_is_asked_when_the_last_word_is_the_users(case: dict[str, Any]) -> None:
    items = vector_log(case["events"])
    for seq, agent_id in case["asked"]:
        messages = told(items[: seq + 1]).messages(agent_id)
        assert messages[-1].role == "user"
        roles = [message.role for message in messages]
        assert roles == [("user", "assistant")[number % 2] for number in range(len(roles))]
        assert all(message.content for message in messages)


def refusals(messages: list[Message]) -> list[str]:
    """What the Messages API would say against a conversation."""
    found = []
    open_calls: list[str] = []
    provided: set[str] = set()
    for number, message in enumerate(messages):
        kinds = [part["type"] for part in message.content]
        results = [part["tool_use_id"] for part in message.content if part["type"] == "tool_result"]
        if results != open_calls or "tool_result" in kinds[len(results) :]:
            found.append(f"{number}: expected the results of {open_calls} first, got {results}")
        if message.role == "assistant" and kinds[-1].endswith("thinking"):
            found.append(f"{number}: the final block cannot be a thinking")
        if any(not part["text"].strip() for part in message.content if part["type"] == "text"):
            found.append(f"{number}: text must not be blank")
        provided |= {part["id"] for part in message.content if part["type"] == "server_tool_use"}
        answered = {part["tool_use_id"] for part in message.content if part["type"].endswith("_tool_result")}
        found += [f"{number}: nobody called {call_id}" for call_id in answered - provided]
        open_calls = [part["id"] for part in message.content if part["type"] == "tool_use"]
    return found + [f"{call_id} is open" for call_id in open_calls]


def check_the_provider_accepts_what_a_model_reads(case: dict[str, Any]) -> None:
    items = vector_log([event for event in case["events"] if "mcp" not in json.dumps(event)])
    history = History()
    for envelope, payload in items:
        history.apply(envelope, payload)
        for agent_id in ("", *history.by_agent):
            assert refusals(history.messages(agent_id)) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_vector(case: dict[str, Any]) -> None:
    laws = [
        check_conversations,
        check_a_model_is_asked_when_the_last_word_is_the_users,
        check_the_provider_accepts_what_a_model_reads,
    ]
    check_laws(laws, case)


@for_each_row(
    "messages",
    [
        [Message("assistant", [{"type": "tool_use", "id": "c1"}])],
        [Message("user", [{"type": "tool_result", "tool_use_id": "c1"}])],
        [
            Message("assistant", [{"type": "tool_use", "id": "c1"}]),
            Message("user", [{"type": "text", "text": "Go."}, {"type": "tool_result", "tool_use_id": "c1"}]),
        ],
        [Message("assistant", [{"type": "thinking"}])],
        [Message("user", [{"type": "text", "text": " "}])],
        [Message("assistant", [{"type": "web_search_tool_result", "tool_use_id": "s1"}])],
    ],
)
def test_the_rules_see_what_they_forbid(messages: list[Message]) -> None:
    assert refusals(messages)


def test_root_agents_read_the_same_conversation_and_called_ones_their_own() -> None:
    history = told(
        [
            entry(AgentStart(name="Guide", via="prompt", prompt="Oslo"), scope("agt_1"), 0),
            entry(AgentStart(name="Scout", via="call", prompt="sights"), scope("agt_2", 1), 1),
            entry(AgentStart(name="Writer", via="handoff", prompt="go on"), scope("agt_3"), 2),
        ]
    )
    assert history.messages("agt_1") == history.messages("agt_3") == root_messages(history)
    assert history.messages("agt_2") == [Message("user", [{"type": "text", "text": "sights"}])]
    assert history.messages("agt_9") == root_messages(history)


class Chosen(Payload, frozen=True, kw_only=True):
    """A page, or a rule, chose something."""

    ORIGINS: ClassVar = ANY_ORIGIN

    city: str


def test_events_that_ask_for_a_turn_are_read_when_it_begins() -> None:
    catalog = Catalog(CORE, Vocabulary("trip", [Chosen]))
    history, seq = History(), 0

    def apply(payload: Payload, trace_id: str | None, origin: Origin, agent_id: str | None = None) -> None:
        nonlocal seq
        at = Scope(trace_id=trace_id, agent_id=agent_id, depth=0 if agent_id else None)
        history.apply(
            *place(catalog.build_event(payload, id=f"evt_{seq}", origin=origin, scope=at), seq, catalog)
        )
        seq += 1

    def cities() -> list[str]:
        texts = [part["text"] for message in root_messages(history) for part in message.content]
        return [text.partition('city":"')[2][:4] or text for text in texts]

    apply(AgentStart(name="Guide", via="prompt", prompt="hi"), "tr_1", "system", "agt_1")
    apply(Chosen(city="Oslo"), "tr_2", "ui")
    apply(Chosen(city="Rome"), "tr_2", "app")
    apply(Chosen(city="Bonn"), "tr_1", "ui")
    apply(Chosen(city="Wien"), None, "ui")
    apply(AssistantMessage(text="said"), "tr_1", "model", "agt_1")
    apply(AgentEnd(stop_reason="end_turn"), "tr_1", "system", "agt_1")
    apply(Chosen(city="Lyon"), "tr_1", "app")
    assert cities() == ["hi", "Bonn", "Wien", "said", "Lyon"]
    apply(AgentStart(name="Guide", via="prompt"), "tr_2", "system", "agt_2")
    assert cities()[5:] == ["Oslo", "Rome"]
    assert root_messages(history)[-1].role == "user"


def test_what_a_model_reads_does_not_change_under_its_eyes() -> None:
    start = entry(AgentStart(name="Guide", via="prompt", prompt="Oslo"), scope("agt_1"))
    history = told([start])
    before = history.messages("agt_1")
    history.apply(*entry(UiMessage(text="Rome"), scope("agt_1")))
    assert before == [Message("user", [{"type": "text", "text": "Oslo"}])] != history.messages("agt_1")


@for_each_row(
    ("result", "text"),
    [("as it is\n", "as it is\n"), ("", ""), (3, "3"), (None, "null"), ([1, "ü"], '[1,"ü"]'), (True, "true")],
)
def test_results_that_are_not_text_are_json(result: object, text: str) -> None:
    assert result_text(ToolResult(call_id="c", tool="t", ok=True, result=result)) == text


def test_a_failure_is_told_by_its_error() -> None:
    fault = ErrorInfo(code="TIMEOUT", message="It took too long.", details={"s": 30})
    failed = ToolResult(call_id="c", tool="t", ok=False, result="half", error=fault)
    assert json.loads(result_text(failed)) == {
        "code": "TIMEOUT",
        "message": "It took too long.",
        "details": {"s": 30},
    }


def finished(call_id: str) -> Item:
    return entry(ToolResult(call_id=call_id, tool="t", ok=True, result=call_id), scope("agt_1"))


def test_results_are_read_in_the_order_of_their_calls() -> None:
    start = entry(AgentStart(name="Guide", via="prompt", prompt="Oslo"), scope("agt_1"))
    calls = [
        entry(ToolCall(call_id=call_id, tool="t", args={}), scope("agt_1"))
        for call_id in ("call_1", "call_2")
    ]
    history = told([start, *calls, finished("call_2"), finished("call_1")])
    assert [part["tool_use_id"] for part in root_messages(history)[-1].content] == ["call_1", "call_2"]


@for_each_row("prompt", ["", " \n", None])
def test_a_blank_prompt_of_a_called_agent_is_dropped(prompt: str | None) -> None:
    start = AgentStart(name="Scout", via="call", parent_id="agt_1", call_id="call_1", prompt=prompt)
    assert told([entry(start, scope("agt_2", 1))]).messages("agt_2") == []


def test_what_was_retracted_was_never_said() -> None:
    at, other = scope("agt_1"), scope("agt_2", 1)
    start = AgentStart(name="Guide", via="prompt", prompt="Oslo")
    search = ToolCall(call_id="s1", tool="web_search", args={}, executor="provider", block_id="b2")
    found = ToolResult(call_id="s1", tool="web_search", ok=True, result=[], kind="web_search_tool_result")
    kept, void = (AssistantMessage(text=text, block_id=key) for text, key in (("Yes.", "b0"), ("No.", "b1")))
    retract = BlockRetract(block_ids=("b1", "b2", "b3"), reason="overloaded_error")
    user = Message("user", [{"type": "text", "text": "Oslo"}])
    said = Message("assistant", [{"type": "text", "text": "Yes."}])

    def read(*payloads: Payload) -> list[Message]:
        return root_messages(told([entry(payload, at) for payload in (start, *payloads)]))

    assert read(void, search, found, retract) == [user]
    assert read(kept, void, search, found, retract, retract) == [user, said]
    assert read(retract, kept) == [user, said]
    assert read(void, retract, kept) == [user, said]
    child = AgentStart(name="Scout", via="call", prompt="Oslo")
    history = told([entry(start, at), entry(void, at), entry(child, other), entry(retract, other)])
    assert root_messages(history)[-1].content == [{"type": "text", "text": "No."}], "each agent its own"


def test_a_blank_text_is_retracted_from_a_conversation_without_a_word() -> None:
    payloads: list[Payload] = [
        AgentStart(name="Guide", via="prompt"),
        AssistantMessage(text=" ", block_id="b1"),
        BlockRetract(block_ids=("b1",), reason="overloaded_error"),
    ]
    assert root_messages(told([entry(payload, scope("agt_1")) for payload in payloads])) == []


def test_a_retraction_joins_what_stood_around_it() -> None:
    at = scope("agt_1")
    calls = [ToolCall(call_id=f"c{key}", tool="t", args={}, block_id=f"b{key}") for key in "123"]
    results = [ToolResult(call_id=f"c{key}", tool="t", ok=True, result=key) for key in "123"]
    payloads: list[Payload] = [
        AgentStart(name="Guide", via="prompt", prompt="Go"),
        *(calls[0], calls[1], results[1], calls[2], results[2]),
        BlockRetract(block_ids=("b2",), reason="r"),
        results[0],
    ]
    history = told([entry(payload, at) for payload in payloads])
    answered = [part.get("tool_use_id") for part in root_messages(history)[2].content]
    assert [message.role for message in root_messages(history)] == ["user", "assistant", "user"]
    assert answered == ["c1", "c3"], "the call that was moved has its result behind it"


def test_what_was_said_in_another_channel_is_not_there_to_be_retracted() -> None:
    said, void = AssistantMessage(text="Yes.", block_id="b1"), BlockRetract(block_ids=("b1",), reason="r")
    at = scope("agt_1")
    history = told([entry(said, structs.replace(at, channel="customer")), entry(void, at)])
    assert root_messages(history) == []
    assert len(history.messages("agt_1", "customer")) == 1


@for_each_row(
    ("kind", "data"),
    [
        ("odd", {"tool_use_id": [1]}),
        ("odd", {"id": {}}),
        ("odd_tool_use", {"id": 7}),
        ("odd", {"type": ["odd"]}),
        ("odd", {"type": "text"}),
        ("odd", {"type": "text", "text": 3}),
    ],
)
def test_a_block_that_only_its_provider_knows_may_hold_anything(kind: str, data: dict[str, Any]) -> None:
    start, block = AgentStart(name="Guide", via="prompt"), AssistantBlock(kind=kind, data=data, block_id="b1")
    retract = BlockRetract(block_ids=("b1",), reason="overloaded_error")
    items = [entry(payload, scope("agt_1")) for payload in (start, block, retract)]
    known = isinstance(data.get("type", kind), str) and data.get("type") != "text"
    parts = [part for message in told(items[:2]).messages("agt_1") for part in message.content]
    assert parts == ([{"type": kind, **data}] if known else [])
    assert root_messages(told(items)) == []


def test_a_call_that_repeats_an_id_has_a_result_of_its_own() -> None:
    payloads: list[Payload] = [
        AgentStart(name="Guide", via="prompt", prompt="Go"),
        *(
            part
            for text in ("one", "two")
            for part in (
                ToolCall(call_id="c", tool="t", args={}, block_id=text),
                ToolResult(call_id="c", tool="t", ok=True, result=text),
                ToolResult(call_id="c", tool="t", ok=True, result="late"),
            )
        ),
    ]
    history = told([entry(payload, scope("agt_1")) for payload in payloads])
    assert [message.content[0].get("content") for message in root_messages(history)[2::2]] == ["one", "two"]


class Noted(Payload, frozen=True, kw_only=True):
    """An event of an application."""

    ORIGINS: ClassVar = ANY_ORIGIN

    city: str


def in_channel(payload: Payload, seq: int, channel: str | None, origin: Origin) -> Item:
    envelope, _ = entry(UiMessage(text=""), Scope(), seq)
    changed = structs.replace(envelope, type="tour.noted", channel=channel, origin=origin)
    return changed, payload


def test_what_pages_sent_and_rules_said_is_told_in_the_conversation_of_its_channel() -> None:
    history = History()
    for item in (
        in_channel(Noted(city="Oslo"), 0, "customer", "ui"),
        in_channel(Noted(city="Rome"), 1, "customer", "app"),
        in_channel(Noted(city="Lima"), 2, "customer", "model"),
        in_channel(Noted(city="Bonn"), 3, None, "ui"),
    ):
        history.apply(*item)
    acted = '[The user acted: {"type":"noted","data":{"city":"Oslo"}}]'
    followed = '[It followed: {"type":"noted","data":{"city":"Rome"}}]'
    texts = [part["text"] for part in history.messages("agt_1", "customer")[0].content]
    assert texts == [acted, followed]
    assert [part["text"] for part in root_messages(history)[0].content] == [acted.replace("Oslo", "Bonn")]
    assert history.messages("agt_1", "installer") == []


def test_the_root_agents_of_two_channels_do_not_share_a_conversation() -> None:
    history = History()
    for number, channel in enumerate(("customer", "installer")):
        start = AgentStart(name="Guide", via="prompt", prompt=f"I am the {channel}")
        envelope, payload = entry(start, scope(f"agt_{number}"), number)
        history.apply(structs.replace(envelope, channel=channel), payload)
    assert [text["text"] for text in history.messages("agt_0", "customer")[0].content] == [
        "I am the customer"
    ]
    assert [text["text"] for text in history.messages("agt_1", "installer")[0].content] == [
        "I am the installer"
    ]


def test_who_only_looks_leaves_no_trace() -> None:
    history = History()
    assert history.messages("agt_1") == []
    assert history == History()


def test_who_takes_over_goes_on_with_the_same_conversation() -> None:
    one, two, heir = scope("agt_1"), scope("agt_2", 1), scope("agt_3", 1)
    called: dict[str, Any] = {"parent_id": "agt_1", "call_id": "c1"}
    items = log(
        (AgentStart(name="Guide", via="prompt", prompt="Go"), one),
        (ToolCall(call_id="c1", tool="scout", args={}), one),
        (AgentStart(name="Scout", via="call", prompt="Look", **called), two),
        (AssistantMessage(text="I pass it on.", block_id="b1"), two),
        (AgentHandoff(to="Heir", to_agent_id="agt_3"), two),
        (AgentStart(name="Heir", via="handoff", **called), heir),
    )
    history = apply_events(History(), items)
    assert history.by_agent["agt_3"] is history.by_agent["agt_2"]
    apply_events(history, log((BlockRetract(block_ids=("b1",), reason="x"), two)))
    assert [message.content for message in history.by_agent["agt_3"].messages] == [
        [{"type": "text", "text": "Look"}]
    ]


def test_an_agent_that_starts_twice_has_one_conversation() -> None:
    start, at = AgentStart(name="Scout", via="call", prompt="Look"), scope("agt_2", 1)
    said = AssistantMessage(text="I pass it on.", block_id="b1")
    history = apply_events(History(), log((start, at), (said, at), (start, at)))
    assert history.messages("agt_2") == [Message("user", [{"type": "text", "text": "Look"}])]
    apply_events(history, log((BlockRetract(block_ids=("b1",), reason="x"), at)))
    assert history.messages("agt_2") == [Message("user", [{"type": "text", "text": "Look"}])]
