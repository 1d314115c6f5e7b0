"""The translator of the OpenAI Agents SDK beyond its recordings, and histories of its models."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.claude_vectors import counting
from tests.support.foreign_recordings import (
    TOOL_FAILED,
    OpenAiAgentsPlayer,
    check_laws,
    load_recordings,
    visible_texts,
)
from turnlog.events import (
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AgentUsage,
    AssistantBlock,
    AssistantThinking,
    BlockEnd,
    BlockRetract,
    EventDraft,
    ParseReject,
    Payload,
    ToolCall,
    ToolResult,
)
from turnlog.parse import AgentEventBuilder, AgentInfo
from turnlog.parse.foreign import openai_agents
from turnlog.parse.foreign.openai_agents import OpenAiAgentsTranslator, describe_agent
from turnlog.parse.foreign.openai_history import (
    answer_open_calls,
    find_unanswered_calls,
    rename_counted_calls,
)

Item = dict[str, Any]


class Translated:
    def __init__(self) -> None:
        self.builder = AgentEventBuilder(counting())
        self.root = self.builder.start(AgentInfo("Root"), "tr_1")
        self.drafts: list[EventDraft] = []
        self.restart()

    def restart(self) -> None:
        """Begin another part with the agents that are open."""
        self.translator = OpenAiAgentsTranslator(self.builder, self.root, TOOL_FAILED)

    def found(self, payload_class: type[Payload], agent: str | None = None) -> list[Any]:
        self.drafts += self.builder.take_output()
        return [
            draft.payload
            for draft in self.drafts
            if isinstance(draft.payload, payload_class) and agent in (None, draft.scope.agent_name)
        ]

    def texts(self) -> list[tuple[str | None, str]]:
        self.found(Payload)
        return visible_texts(self.drafts)

    def raw(self, kind: str, call: Any = None, agent: str = "Child", **fields: Any) -> None:
        event = {"type": "raw_response_event", "data": {"type": f"response.{kind}", **fields}}
        self.translator.feed(event, call, {"name": agent})

    def respond(self, *output: Item, call: Any = None, agent: str = "Child", **fields: Any) -> None:
        self.raw("completed", call, agent, response={"output": list(output), **fields})

    def check(self) -> None:
        self.builder.flush("error")
        self.found(AgentEnd)
        check_laws(self.drafts)


def call_item(call_id: str = "c1", name: str = "look", arguments: Any = "{}") -> Item:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def message(*texts: str) -> Item:
    return {"type": "message", "content": [{"type": "output_text", "text": text} for text in texts]}


def say(at: Translated, text: str, call: Any = None, agent: str = "Child") -> None:
    at.raw("output_text.delta", call, agent, output_index=0, delta=text)


def test_response_that_was_not_streamed_is_read_whole() -> None:
    at = Translated()
    summary = [{"text": "Hm."}, {"text": "Yes."}]
    usage = {"input_tokens": 10, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}
    at.respond(
        {"type": "reasoning", "summary": summary, "encrypted_content": "sig"},
        message("Hel", "lo.", ""),
        call_item(arguments='{"a": 1}'),
        usage=usage,
        model="m",
    )
    [thought] = at.found(AssistantThinking)
    assert (thought.text, thought.signature) == ("Hm.\n\nYes.", "sig")
    [call] = at.found(ToolCall)
    assert call.args == {"a": 1}
    [event] = at.found(AgentUsage)
    assert (event.model, event.usage.input_tokens, event.usage.cache_read_tokens) == ("m", 6, 4)
    assert at.texts() == [("Root", "Hello.")]
    at.check()


def test_response_without_usage_counts_no_tokens() -> None:
    at = Translated()
    at.respond(message("Hello."))
    assert at.found(AgentUsage) == []
    at.check()


def test_responses_with_one_id_are_two_unless_one_is_reported_twice() -> None:
    at = Translated()
    usage = {"input_tokens": 1, "output_tokens": 1}
    at.respond(message("One."), id="same", usage=usage)
    at.respond(message("One."), id="same", usage=usage)
    at.raw("created")
    at.respond(message("Two."), id="same", usage=usage)
    say(at, "Three.")
    at.respond(message("Three."), id="same", usage=usage)
    assert [text for _, text in at.texts()] == ["One.", "Three.", "Two."]
    assert len(at.found(AgentUsage)) == 3
    at.check()


def test_summary_parts_are_paragraphs() -> None:
    at = Translated()
    for index, text in enumerate(("One.", "Two.")):
        for _ in range(2):  # the same part again is no new paragraph
            at.raw("reasoning_summary_part.added", output_index=0, summary_index=index)
        at.raw("reasoning_summary_text.delta", output_index=0, delta=text)
    at.raw("reasoning_text.delta", output_index=0, delta="")
    at.raw("output_item.done", output_index=0, item={"type": "reasoning", "summary": [{"text": "One."}]})
    at.respond()
    [thought] = at.found(AssistantThinking)
    assert thought.text == "One.\n\nTwo."
    at.check()


def test_model_that_is_asked_again_retracts_what_it_said() -> None:
    at = Translated()
    at.raw("created")
    say(at, "Hel")
    at.raw("created")
    say(at, "Hello.")
    at.respond(id="r1")
    assert len(at.found(BlockRetract)) == 1
    assert at.texts() == [("Root", "Hello.")]
    at.check()


def test_message_whose_calls_have_results_is_not_retracted() -> None:
    at = Translated()
    at.raw("output_item.done", output_index=0, item=call_item())
    output = {"raw_item": {"call_id": "c1"}, "output": "seen"}
    at.translator.feed({"type": "run_item_stream_event", "name": "tool_output", "item": output})
    at.raw("created")
    assert at.found(BlockRetract) == []
    at.check()


@pytest.mark.parametrize(
    "speak",
    [
        lambda at: at.raw("refusal.delta", output_index=0, delta="I will not."),
        lambda at: at.raw(
            "output_item.done",
            output_index=0,
            item={"type": "message", "content": [{"type": "refusal", "refusal": "I will not."}]},
        ),
    ],
    ids=["streamed", "whole"],
)
def test_calls_of_a_refusal_do_not_run(speak: Callable[[Translated], None]) -> None:
    at = Translated()
    speak(at)
    at.raw("output_item.done", output_index=1, item=call_item())
    at.respond()
    assert at.found(ToolCall) == []
    assert "aborted" in [end.status for end in at.found(BlockEnd)]
    at.check()


def test_response_that_is_incomplete_ends_its_message() -> None:
    at = Translated()
    say(at, "Hel")
    at.raw("incomplete", response={"incomplete_details": {"reason": "max_output_tokens"}})
    assert at.texts() == [("Root", "Hel")]
    at.check()


def test_arguments_that_were_not_streamed_are_read_from_the_item() -> None:
    at = Translated()
    at.raw("output_item.added", output_index=0, item=call_item(arguments=""))
    at.raw("function_call_arguments.delta", output_index=7, delta="of no call")
    at.raw("output_item.done", output_index=0, item=call_item(arguments='{"a": 1}'))
    at.raw("output_item.added", output_index=1, item=call_item("c2", arguments=""))
    at.raw("output_item.done", output_index=1, item=call_item("c2", arguments=None))
    at.respond()
    assert [call.args for call in at.found(ToolCall)] == [{"a": 1}, {}]
    at.check()


def test_calls_that_were_not_streamed_are_read_from_the_response() -> None:
    at = Translated()
    say(at, "Hello.")
    at.raw("output_item.done", output_index=1, item=call_item("c2"))
    at.raw("output_item.added", output_index=2, item=call_item("c1", arguments=""))
    calls = [call_item(call_id, arguments='{"a": 1}') for call_id in ("c1", "c2", "c3")]
    at.respond(message("Hello."), *calls)
    found = {call.call_id: call.args for call in at.found(ToolCall)}
    assert found == {"c1": {"a": 1}, "c2": {}, "c3": {"a": 1}}
    assert at.texts() == [("Root", "Hello.")]
    at.check()


def test_tool_that_failed_by_default_is_an_error() -> None:
    at = Translated()
    calls = [call_item("c1"), call_item("c2"), call_item("c3")]
    at.respond(*calls)
    at.translator.add_result(calls[0], TOOL_FAILED)
    at.translator.add_result(calls[1], {"text": TOOL_FAILED})
    at.translator = OpenAiAgentsTranslator(at.builder, at.root)
    at.translator.add_result(calls[2], "")
    assert [result.ok for result in at.found(ToolResult)] == [False, True, True]
    at.check()


def test_hook_and_sub_agent_that_are_ahead_of_the_stream_are_held() -> None:
    at = Translated()
    ask = call_item("c1", "ask", '{"input": "Go."}')
    look = call_item("c2")
    at.translator.add_result(look, "seen")
    say(at, "Green ", ask)
    say(at, "grass.", ask)
    at.respond(call=ask)
    assert at.found(ToolResult) == []
    assert len(at.found(AgentStart)) == 1
    at.respond(ask, look)
    assert [result.result for result in at.found(ToolResult)] == ["seen"]
    start = at.found(AgentStart)[-1]
    assert (start.name, start.call_id, start.prompt) == ("Child", "c1", "Go.")
    assert at.texts() == [("Child", "Green grass.")]
    at.check()


def test_agents_inside_two_that_use_the_same_call_id_stay_apart() -> None:
    at = Translated()
    first, second = call_item("c1", "ask"), call_item("c2", "ask")
    at.respond(first, second)
    inner = [call_item("same", "ask"), call_item("same", "ask")]
    at.respond(inner[1], call=second, agent="B")
    say(at, "Oslo", inner[0], "InA")
    say(at, "Bergen", inner[1], "InB")
    at.respond(inner[0], call=first, agent="A")
    at.respond(call=inner[0], agent="InA")
    at.respond(call=inner[1], agent="InB")
    assert at.texts() == [("InA", "Oslo"), ("InB", "Bergen")]
    parents = {start.name: start.parent_id for start in at.found(AgentStart)}
    ids = {draft.scope.agent_name: draft.scope.agent_id for draft in at.drafts}
    assert (parents["InA"], parents["InB"]) == (ids["A"], ids["B"])
    at.check()


def test_agent_whose_caller_is_not_watched_is_shown_in_the_end() -> None:
    at = Translated()
    hidden = call_item("hidden", "ask")
    other = call_item("other", "ask")
    say(at, "Hello", hidden)
    say(at, "Bye", other, "Other")
    at.respond(call=hidden)
    at.translator.finish()
    assert [start.call_id for start in at.found(AgentStart)] == [None, None, None]
    assert ("Child", "Hello") in at.texts()
    at.check()


def test_reports_that_are_held_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_agents, "MAX_HELD_REPORTS", 2)
    at = Translated()
    hidden = call_item("hidden", "ask")
    for word in ("Hel", "lo", " world"):
        say(at, word, hidden)
    assert [start.name for start in at.found(AgentStart)] == ["Root", "Child"]
    at.check()


def test_calls_that_were_open_before_a_pause_are_known_by_their_id() -> None:
    at = Translated()
    ask = call_item("c1", "ask")
    at.respond(ask, call_item("c2"))
    at.respond(call_item("same"), call=ask)
    at.restart()
    ask_again, same_again = dict(ask), call_item("same")
    at.translator.add_result(same_again, "did it")
    at.translator.add_result(same_again, "did it")
    say(at, "Done.", ask_again)
    at.respond(call=ask_again)
    at.translator.add_result(call_item("c1"), "claimed by another object")
    assert [result.result for result in at.found(ToolResult, "Child")] == ["did it"]
    assert len(at.found(AgentStart, "Child")) == 1
    assert at.texts() == [("Child", "Done.")]
    at.check()


def test_owner_of_a_question_is_the_agent_that_made_the_call() -> None:
    at = Translated()
    ask = call_item("c1", "ask")
    inner = call_item("d1", "delete")
    at.respond(ask)
    at.respond(inner, call=ask)
    owner = at.translator.find_owner(inner, "Child")
    assert owner is not None
    assert owner.scope.agent_name == "Child"
    at.restart()
    assert at.translator.find_owner(dict(inner), "Child") is owner
    assert at.translator.find_owner(dict(inner), "Root") is None
    assert at.translator.find_owner(call_item("none"), "Child") is None
    at.check()


def test_hand_off_that_a_hook_reports_answers_its_call() -> None:
    at = Translated()
    at.translator.complete_response({"output": [call_item("h1", "transfer_to_billing")]})
    at.translator.hand_off({"name": "Billing", "model": "m"}, "transfer_to_billing")
    [handoff] = at.found(AgentHandoff)
    assert handoff.to == "Billing"
    assert [result.ok for result in at.found(ToolResult)] == [True]
    at.translator.hand_off({"name": "Third"}, "of no call")
    assert [start.name for start in at.found(AgentStart)] == ["Root", "Billing", "Third"]
    at.check()


def test_call_of_a_remote_server_that_was_approved_answers_its_request() -> None:
    at = Translated()
    requests = [
        {"type": "mcp_approval_request", "id": f"mcpr_{number}", "name": "search", "arguments": "{}"}
        for number in (1, 2)
    ]
    at.respond(*requests)
    at.respond(
        {"type": "mcp_call", "approval_request_id": "mcpr_1", "output": "found", "error": None},
        {"type": "mcp_call", "approval_request_id": "mcpr_2", "error": "no network"},
        {"type": "mcp_call", "name": "free", "output": "found"},
    )
    assert [(result.call_id, result.ok) for result in at.found(ToolResult)] == [
        ("mcpr_1", True),
        ("mcpr_2", False),
    ]
    assert [block.kind for block in at.found(AssistantBlock)] == ["mcp_call"]
    at.check()


def test_other_items_are_blocks_and_calls() -> None:
    at = Translated()
    at.respond(
        {"type": "web_search_call", "id": "ws_1"},
        {"no": "type"},
        {"type": "broken", "value": object()},
        "no item",  # type: ignore[arg-type]
        {"type": "custom_tool_call", "call_id": "c1", "name": "run", "input": "ls"},
        {"type": "computer_call", "call_id": "c2", "action": {"type": "click"}},
        {"type": "local_shell_call", "call_id": "c3"},
        {"type": "shell_call", "call_id": "c4", "action": object()},
    )
    assert [block.kind for block in at.found(AssistantBlock)] == ["web_search_call", "item", "broken", "item"]
    assert [(call.tool, call.args) for call in at.found(ToolCall)] == [
        ("run", {"input": "ls"}),
        ("computer_call", {"action": {"type": "click"}}),
        ("local_shell_call", {}),
        ("shell_call", {"action": None}),
    ]
    at.check()


def test_events_that_are_not_known_are_dropped() -> None:
    at = Translated()
    at.translator.feed({"type": "new_kind"})
    at.translator.feed({"type": "run_item_stream_event", "name": "mcp_list_tools"})
    at.raw("new_kind")
    at.raw("output_item.added", item={"type": "message"})
    assert at.found(ParseReject) == []
    at.check()


def test_agent_describes_itself() -> None:
    assert describe_agent({"name": "A", "model": "m"}) == AgentInfo("A", "m")
    assert describe_agent({"name": "A", "model": {"model": "m"}}) == AgentInfo("A", "m")
    assert describe_agent(None) == AgentInfo("Agent")


HISTORY = [
    {"role": "user", "content": "Hi"},
    call_item("c1"),
    {"type": "function_call_output", "call_id": "c1", "output": "seen"},
    call_item("c2"),
    {"type": "custom_tool_call", "call_id": "c3", "name": "run", "input": ""},
    {"type": "computer_call", "call_id": "c4"},
    {"type": "mcp_approval_request", "id": "m1"},
    {"type": "mcp_approval_request", "id": "m2"},
    {"type": "mcp_approval_response", "approval_request_id": "m2", "approve": True},
]


def test_open_calls_of_a_history_are_closed() -> None:
    closed = answer_open_calls(HISTORY, lambda call_id: f"{call_id} did not run")
    assert find_unanswered_calls(closed) == []
    assert HISTORY[5] not in closed
    assert closed[-3:] == [
        {"type": "function_call_output", "call_id": "c2", "output": "c2 did not run"},
        {"type": "custom_tool_call_output", "call_id": "c3", "output": "c3 did not run"},
        {
            "type": "mcp_approval_response",
            "approval_request_id": "m1",
            "approve": False,
            "reason": "m1 did not run",
        },
    ]


def test_calls_that_a_model_counts_are_renamed_with_their_results_and_only_once() -> None:
    unique = "call_4fGhJk2LmN8pQrStUvWx"
    items = [
        {"type": "function_call_output", "call_id": "lost", "output": "without a call"},
        call_item("c1"),
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        call_item("c1"),
        {"type": "function_call_output", "call_id": "c1", "output": "two"},
        call_item(unique),
        {"role": "user", "content": "Hi"},
    ]
    renamed = rename_counted_calls(items)
    ids = [item.get("call_id") for item in renamed]
    assert ids[0] == "lost"
    assert ids[1] == ids[2] != ids[3] == ids[4]
    assert ids[5:] == [unique, None]
    assert rename_counted_calls(renamed) == renamed
    assert items[1] == call_item("c1")


RECORDINGS = load_recordings("openai_agents")
ODD_VALUES: list[Any] = [None, 5, -1, "", "x\ud800", [], ["x"], {}, {"a": object()}]


def replace_leaf(value: Any, choose: Callable[[int], int], odd: Any) -> Any:
    """Return a copy in which one field, chosen at random, has an odd value."""
    if isinstance(value, dict) and value:
        key = sorted(value)[choose(len(value))]
        return {**value, key: replace_leaf(value[key], choose, odd)}
    return odd


@settings(max_examples=50)
@given(choices=st.randoms(use_true_random=False), name=st.sampled_from(sorted(RECORDINGS)))
def test_recording_with_odd_values_never_raises_and_stays_balanced(choices: Random, name: str) -> None:
    player = OpenAiAgentsPlayer()
    for report in RECORDINGS[name]:
        kind = report["kind"]
        data = report.get("data")
        if kind.startswith("raw.") and choices.random() < 0.2:
            data = replace_leaf(data, choices.randrange, choices.choice(ODD_VALUES))
            event = {"type": "raw_response_event", "data": data}
            player.translator.feed(event)
        else:
            player.play(report)
    player.builder.flush("error")
    check_laws(player.builder.take_output())
