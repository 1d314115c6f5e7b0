"""The translator of AG-UI on events that no recording has: old names, chunks, odd order and values."""

from typing import Any

import pytest
from ag_ui.core import EventType

from tests.support.claude_vectors import counting
from tests.support.foreign_recordings import check_laws, visible_texts
from tests.support.tables import for_each_row
from turnlog.events import (
    AgentEnd,
    AgentStart,
    AgentUsage,
    AssistantMessage,
    AssistantThinking,
    EventDraft,
    ParseReject,
    Payload,
    SessionError,
    ToolCall,
    ToolResult,
    Usage,
)
from turnlog.parse import AgentEventBuilder, AgentInfo
from turnlog.parse.foreign import ag_ui_streams
from turnlog.parse.foreign.ag_ui import CONTENT_TYPES, EVENT_READERS, AgUiQuestion, AgUiTranslator
from turnlog.parse.foreign.ag_ui_events import (
    CHUNK_FORMS,
    DROPPED_TYPES,
    OLD_NAMES,
    STATE_TYPES,
    EventNormalizer,
)
from turnlog.wire.dialects.ag_ui import events as dialect


class AgUi:
    """A root agent, and what a run of AG-UI makes of it."""

    def __init__(self, **options: Any) -> None:
        self.builder = AgentEventBuilder(counting())
        self.root = self.builder.start(AgentInfo("Root"), "tr_1")
        self.translator = AgUiTranslator(self.builder, self.root, **options)
        self.normalizer = EventNormalizer()
        self.drafts: list[EventDraft] = []

    def feed(self, *events: Any) -> "AgUi":
        for event in events:
            for normal in self.normalizer.normalize(event):
                self.translator.feed(normal)
        return self

    def finish(self, *page_tools: str, **fields: Any) -> list[AgUiQuestion]:
        self.feed({"type": "RUN_FINISHED", "threadId": "t", "runId": "r", **fields})
        return self.translator.finish(page_tools)

    def found(self, payload_class: type[Payload]) -> list[Any]:
        self.drafts += self.builder.take_output()
        return [draft.payload for draft in self.drafts if isinstance(draft.payload, payload_class)]

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.found(AssistantMessage)]

    def check(self) -> None:
        self.builder.flush("error")
        assert self.found(ParseReject) == []
        check_laws(self.drafts)


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def text(message_id: str, piece: str, **fields: Any) -> dict[str, Any]:
    return event("TEXT_MESSAGE_CONTENT", messageId=message_id, delta=piece, **fields)


def start_text(message_id: str, **fields: Any) -> dict[str, Any]:
    return event("TEXT_MESSAGE_START", messageId=message_id, **fields)


def end_text(message_id: str, **fields: Any) -> dict[str, Any]:
    return event("TEXT_MESSAGE_END", messageId=message_id, **fields)


def call(call_id: str, tool: str = "look", args: str = "{}", **fields: Any) -> list[dict[str, Any]]:
    return [
        event("TOOL_CALL_START", toolCallId=call_id, toolCallName=tool, **fields),
        event("TOOL_CALL_ARGS", toolCallId=call_id, delta=args, **fields),
        event("TOOL_CALL_END", toolCallId=call_id, **fields),
    ]


def result(call_id: str, content: Any = "seen", **fields: Any) -> dict[str, Any]:
    return event("TOOL_CALL_RESULT", messageId="m", toolCallId=call_id, content=content, **fields)


def subagent(run_id: str, **fields: Any) -> dict[str, Any]:
    return event("SUBAGENT_STARTED", subagentRunId=run_id, name="Child", **fields)


def interrupt(**fields: Any) -> dict[str, Any]:
    return {"type": "interrupt", "interrupts": [{"id": "i1", **fields}]}


def test_every_event_of_the_protocol_and_of_our_own_dialect_is_read_or_dropped_on_purpose() -> None:
    known = {*EVENT_READERS, *DROPPED_TYPES, *CHUNK_FORMS, *OLD_NAMES, *STATE_TYPES}
    known |= {"SUBAGENT_STARTED", "RUN_STARTED"}
    assert {kind.value for kind in EventType} <= known
    ours = {
        item.__struct_config__.tag
        for item in vars(dialect).values()
        if isinstance(item, type) and issubclass(item, dialect.AgUiEvent)
    }
    assert ours - {None, "AgUiEvent", "OwnedEvent"} <= known
    assert set(EVENT_READERS) > CONTENT_TYPES


def test_texts_of_two_messages_that_interleave_are_two_texts() -> None:
    at = AgUi().feed(
        start_text("a"),
        text("a", "Hello "),
        start_text("b"),
        text("b", "Green "),
        text("a", "world."),
        text("b", "grass."),
        end_text("b"),
        start_text("c"),
        text("c", "Blue "),
        end_text("a"),
        text("c", "sky."),
        end_text("c"),
    )
    assert at.finish() == []
    assert at.texts == ["Hello world.", "Green grass.", "Blue sky."]
    at.check()


def test_text_that_never_ends_does_not_keep_the_others_back_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    at = AgUi().feed(start_text("a"), text("a", "One."), start_text("b"), text("b", "Two."), start_text("b"))
    assert at.finish() == []
    assert at.texts == ["One.", "Two."]
    at.check()

    monkeypatch.setattr(ag_ui_streams, "MAX_WAITING_CHARS", 3)
    at = AgUi().feed(start_text("a"), text("a", "One."), text("b", "Two."), text("a", " And a half."))
    assert at.finish() == []
    assert at.texts == ["One.", "Two.", " And a half."]
    at.check()


def test_text_inside_the_arguments_of_a_call_waits_for_their_end() -> None:
    start, args, end = call("c1", args='{"a": 1}')
    at = AgUi().feed(start, text("m", "Meanwhile."), args, end)
    assert at.texts == []
    at.feed(end_text("m"), result("c1"))
    assert at.finish() == []
    assert [item.args for item in at.found(ToolCall)] == [{"a": 1}]
    assert at.texts == ["Meanwhile."]
    at.check()


def test_call_inside_a_text_is_shown_at_once() -> None:
    at = AgUi().feed(start_text("m"), text("m", "Let me "), *call("c1"), text("m", "look."), end_text("m"))
    assert len(at.found(ToolCall)) == 1
    at.feed(result("c1"))
    assert at.finish() == []
    assert at.texts == ["Let me ", "look."]
    at.check()


def test_chunks_are_whole_messages_and_calls() -> None:
    at = AgUi().feed(
        event("TEXT_MESSAGE_CHUNK", delta="lost: it has no id"),
        event("TEXT_MESSAGE_CHUNK", messageId="a", delta="Hello "),
        event("RAW", event={}),
        event("STATE_DELTA", delta=[]),
        event("TEXT_MESSAGE_CHUNK", delta="world."),
        event("TEXT_MESSAGE_CHUNK", messageId="b", delta="Again."),
        event("TOOL_CALL_CHUNK", toolCallId="c1", toolCallName="look", delta='{"a"'),
        event("TOOL_CALL_CHUNK", delta=": 1}"),
        event("TOOL_CALL_CHUNK", toolCallId="c2", toolCallName="look"),
        event("REASONING_MESSAGE_CHUNK", messageId="r", delta="Hm.", subagentRunId="s"),
        event("TEXT_MESSAGE_CHUNK", messageId="x", delta="Below.", subagentRunId="s"),
        event("SUBAGENT_FINISHED", subagentRunId="s"),
        result("c1"),
        result("c2"),
    )
    assert at.finish() == []
    assert [item.args for item in at.found(ToolCall)] == [{"a": 1}, {}]
    assert visible_texts(at.drafts) == [("Root", "Again."), ("Root", "Hello world."), ("Subagent", "Below.")]
    assert [thought.text for thought in at.found(AssistantThinking)] == ["Hm."]
    at.check()


def test_names_before_1_0_are_read() -> None:
    at = AgUi().feed(
        event("THINKING_START"),
        event("THINKING_TEXT_MESSAGE_START"),
        event("THINKING_TEXT_MESSAGE_CONTENT", delta="Let me "),
        event("THINKING_TEXT_MESSAGE_CONTENT", delta="think."),
        event("THINKING_TEXT_MESSAGE_END"),
        event("THINKING_END"),
        text("m", "Forty two."),
    )
    assert at.finish() == []
    assert [thought.text for thought in at.found(AssistantThinking)] == ["Let me think."]
    assert at.texts == ["Forty two."]
    at.check()


def test_thinking_is_signed_once_and_only_by_its_own_value() -> None:
    signature = event("REASONING_ENCRYPTED_VALUE", subtype="message", entityId="r", encryptedValue="sig")
    at = AgUi().feed(
        event("REASONING_MESSAGE_START", messageId="r"),
        event("REASONING_MESSAGE_CONTENT", messageId="r", delta="Hm."),
        event("REASONING_MESSAGE_END", messageId="r"),
        {**signature, "subtype": "tool-call", "encryptedValue": "other"},
        signature,
        signature,
        start_text("m"),
        text("m", "Yes."),
        {**signature, "entityId": "m"},
    )
    assert at.finish() == []
    assert [(item.text, item.signature) for item in at.found(AssistantThinking)] == [("Hm.", "sig")]
    at.check()


def test_messages_of_people_are_not_those_of_the_agent() -> None:
    at = AgUi().feed(
        start_text("u", role="user"), text("u", "I am Bob."), end_text("u"), text("m", "Hi Bob.")
    )
    assert at.finish() == []
    assert at.texts == ["Hi Bob."]
    at.check()


def test_message_begins_with_thinking_or_a_text_after_calls() -> None:
    at = AgUi().feed(
        text("a", "One."),
        *call("c1"),
        result("c1"),
        start_text("empty"),
        end_text("empty"),
        *call("c2"),
        result("c2"),
        event("REASONING_MESSAGE_CONTENT", messageId="r", delta="Hm."),
        event("REASONING_MESSAGE_END", messageId="r"),
        event("REASONING_MESSAGE_CONTENT", messageId="r2", delta=""),
        event("REASONING_MESSAGE_END", messageId="r2"),
        text("b", "Two."),
        end_text("b"),
        text("c", "Three."),
    )
    assert at.finish() == []
    assert at.texts == ["One.", "Two.", "Three."]
    at.check()


def test_call_id_may_be_used_again_after_its_result() -> None:
    at = AgUi().feed(*call("c1"), result("c1"), *call("c1"), result("c1", "again"))
    assert at.finish() == []
    assert [item.result for item in at.found(ToolResult)] == ["seen", "again"]
    at.check()


def test_result_that_comes_again_or_without_a_call_is_dropped() -> None:
    at = AgUi().feed(*call("c1"), result("c1"), result("c1", "again"), result("c9"))
    at.feed(result("c9", subagentRunId="gone"), event("TOOL_CALL_START", toolCallName="no id"))
    assert at.finish() == []
    assert [item.result for item in at.found(ToolResult)] == ["seen"]
    at.check()


@for_each_row(
    ("content", "expected"),
    [
        ("a text", "a text"),
        ([{"type": "text", "text": "two "}, {"type": "text", "text": "parts"}], "two parts"),
        ([{"type": "text", "text": 1}], [{"type": "text", "text": 1}]),
        ([{"type": "image", "source": {}}], [{"type": "image", "source": {}}]),
        (None, None),
    ],
)
def test_result_is_a_text_or_its_parts(content: Any, expected: Any) -> None:
    at = AgUi().feed(*call("c1"), result("c1", content))
    [answer] = at.found(ToolResult)
    assert (answer.ok, answer.result) == (True, expected)
    at.check()


def test_error_code_of_a_server_of_ours_is_read() -> None:
    at = AgUi().feed(*call("c1"), result("c1", "no", metadata={"turnlog": {"error": "DENIED"}}))
    [answer] = at.found(ToolResult)
    assert (answer.error.code, answer.error.message) == ("DENIED", "no")
    at.check()


# sub-agents


def test_subagent_belongs_to_its_call_and_its_parent() -> None:
    at = AgUi().feed(
        *call("c1", "ask"),
        subagent("s1", parentToolCallId="c1", description="Find out."),
        subagent("s1", parentToolCallId="c1"),
        *call("c1", "ask", subagentRunId="s1"),
        subagent("s2", parentSubagentRunId="s1", parentToolCallId="c1"),
        subagent("s3", parentToolCallId="c1"),
        text("m", "Deep.", subagentRunId="s2"),
        event("SUBAGENT_FINISHED", subagentRunId="s2", result={"a": 1}),
        result("c1", subagentRunId="s1"),
        event("SUBAGENT_FINISHED", subagentRunId="s1", result="Found."),
        event("SUBAGENT_FINISHED", subagentRunId="s1"),
        text("m2", "late", subagentRunId="s1"),
        result("c1"),
    )
    assert at.finish() == []
    starts = at.found(AgentStart)
    assert [(start.call_id, start.prompt) for start in starts[1:]] == [
        ("c1", "Find out."),
        ("c1", None),
        (None, None),  # the call has its agent
    ]
    depths = [draft.scope.depth for draft in at.drafts if isinstance(draft.payload, AgentStart)]
    assert depths == [0, 1, 2, 1]
    assert [end.result for end in at.found(AgentEnd)] == ['{"a":1}', "Found.", None]
    at.check()


def test_subagent_whose_parent_has_ended_belongs_to_the_root() -> None:
    at = AgUi().feed(
        subagent("s1"),
        event("SUBAGENT_FINISHED", subagentRunId="s1"),
        subagent("s2", parentSubagentRunId="s1"),
        subagent("s1"),
        event("SUBAGENT_STARTED", name="no id"),
    )
    assert at.finish() == []
    assert [start.name for start in at.found(AgentStart)] == ["Root", "Child", "Child", "Child"]
    at.check()


def test_subagent_that_fails_ends_with_its_reason() -> None:
    at = AgUi().feed(
        subagent("s1"),
        event("SUBAGENT_ERROR", subagentRunId="s1", message="Out of ink.", code="ink"),
        subagent("s2"),
        event("SUBAGENT_ERROR", subagentRunId="s2", message="stopped", code="cancelled"),
        subagent("s3"),
        event("SUBAGENT_ERROR", subagentRunId="s3"),
        event("SUBAGENT_ERROR", message="no id"),
        event("SUBAGENT_FINISHED"),
        event("SUBAGENT_ERROR", subagentRunId="unknown"),
    )
    assert at.finish() == []
    assert [end.stop_reason for end in at.found(AgentEnd)] == ["error", "cancelled", "error"]
    problems = [(error.code, error.message) for error in at.found(SessionError)]
    assert problems == [("ink", "Out of ink."), ("subagent_failed", "The sub-agent failed.")]
    at.check()


def test_subagent_that_waits_is_continued() -> None:
    at = AgUi().feed(
        *call("c1", "ask"),
        subagent("s1", parentToolCallId="c1"),
        *call("c2", "delete", subagentRunId="s1"),
        event("SUBAGENT_FINISHED", subagentRunId="s1", outcome={"type": "suspended"}),
        subagent("s2"),
        *call("c3", subagentRunId="s2"),
        event("SUBAGENT_FINISHED", subagentRunId="s2", result="Nothing waits here."),
    )
    [question] = at.finish(outcome=interrupt(reason="tool_call", toolCallId="c2", message="Sure?"))
    child = at.translator.open_agents["s1"]
    assert (question.agent, question.form, question.reason) == (child, "approval", "Sure?")
    assert list(at.translator.open_agents) == ["s1"]

    at.translator = AgUiTranslator(at.builder, at.root, at.translator.open_agents)
    at.feed(
        subagent("s1"),
        result("c2", "deleted"),  # not tagged
        event("SUBAGENT_FINISHED", subagentRunId="s1", result="Done."),
        result("c1"),
    )
    assert at.finish() == []
    assert [item.result for item in at.found(ToolResult)] == [None, "deleted", "seen"]
    at.check()


# questions


def test_calls_without_a_result_are_for_the_page() -> None:
    at = AgUi().feed(*call("c1"), text("m", "The model went on."), end_text("m"), *call("c2"), *call("c3"))
    questions = at.finish()
    assert [(question.call_id, question.interrupt) for question in questions] == [("c2", None), ("c3", None)]
    at.check()

    at = AgUi().feed(*call("c1"), *call("c2"))
    assert [question.call_id for question in at.finish(outcome={"pendingToolCallIds": ["c2", 7]})] == ["c2"]
    at.check()

    at = AgUi().feed(*call("c1"))
    assert at.finish(outcome={"type": "success", "pendingToolCallIds": []}) == []
    assert [item.ok for item in at.found(ToolResult)] == [True]
    at.check()


def test_call_that_a_subagent_works_on_is_not_for_the_page() -> None:
    at = AgUi().feed(
        *call("c1", "ask"), subagent("s1", parentToolCallId="c1"), *call("c2", subagentRunId="s1")
    )
    assert [question.call_id for question in at.finish()] == ["c2"]
    at.check()


def test_with_an_interrupt_only_offered_tools_are_for_the_page() -> None:
    at = AgUi().feed(*call("c1", "delete"), *call("c2", "confirm"), *call("c3", "look"))
    questions = at.finish("confirm", "delete", outcome=interrupt(reason="tool_call", toolCallId="c1"))
    assert [question.call_id for question in questions] == ["c1", "c2"]
    assert list(at.root.open_calls) == ["c1", "c2", "c3"]
    at.check()


@for_each_row(
    ("fields", "form", "reason_field"),
    [
        ({"reason": "tool_call"}, "approval", "reason"),
        ({"reason": "confirmation"}, "approval", "reason"),
        ({"reason": "input_required"}, "value", "reason"),
        (
            {"reason": "x", "responseSchema": {"properties": {"approved": {}, "notes": {}}}},
            "approval",
            "notes",
        ),
        ({"reason": "x", "responseSchema": {"properties": 7}}, "value", "reason"),
    ],
)
def test_interrupt_has_the_form_of_its_answer(fields: Any, form: str, reason_field: str) -> None:
    at = AgUi().feed(*call("c1"))
    [question] = at.finish(outcome=interrupt(toolCallId="c1", **fields))
    assert question.interrupt is not None
    assert (question.call_id, question.form, question.interrupt.reason_field) == ("c1", form, reason_field)
    at.check()


def test_interrupt_without_a_call_gets_one() -> None:
    at = AgUi().feed(subagent("s1"), text("m", "Hm.", subagentRunId="s1"))
    [question] = at.finish(outcome=interrupt(reason="input_required", message="Why?", subagentRunId="s1"))
    assert question.agent.scope.agent_name == "Child"
    assert at.found(ToolCall)[-1].args == {"question": "Why?"}
    at.check()

    at = AgUi().feed(subagent("s1"), event("SUBAGENT_FINISHED", subagentRunId="s1"))
    [question] = at.finish(outcome=interrupt(subagentRunId="s1", toolCallId="c9"))
    assert (question.agent, question.args) == (at.root, {"question": None})
    at.check()


def test_interrupt_without_a_call_is_that_of_the_only_open_call() -> None:
    at = AgUi().feed(
        *call("c1", "ask"), subagent("s1", parentToolCallId="c1"), *call("c2", subagentRunId="s1")
    )
    [question] = at.finish(outcome=interrupt(reason="input_required", message="Why?"))
    assert (question.call_id, question.agent.scope.agent_name) == ("c2", "Child")
    at.check()

    at = AgUi().feed(*call("c1"), *call("c2"))
    [question] = at.finish(outcome=interrupt(reason="input_required"))
    assert question.call_id not in ("c1", "c2")
    at.check()

    at = AgUi().feed(*call("c1"))
    questions = at.finish(outcome={"interrupts": [{"id": "i1"}, {"id": "i2"}]})
    assert "c1" not in [question.call_id for question in questions]
    at.check()


def test_calls_of_an_earlier_agent_are_not_reported_again() -> None:
    at = AgUi(ended_calls=["c1"]).feed(*call("c1"), result("c1"), *call("c2"), result("c2"))
    assert at.finish() == []
    assert [item.call_id for item in at.found(ToolCall)] == ["c2"]
    at.check()


def middleware(*actions: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"action_requests": [{"name": name, "args": args} for name, args in actions]}


def test_actions_of_langgraph_are_matched_with_their_calls() -> None:
    raw = middleware(("delete", {"p": 1}), ("delete", {"p": 1}))
    at = AgUi().feed(*call("c1", "delete", '{"p": 1}'), *call("c2", "delete", '{"p": 1}'))
    questions = at.finish(outcome=interrupt(metadata={"langgraph": {"raw": raw}}))
    assert [(question.call_id, question.form) for question in questions] == [
        ("c1", "decisions"),
        ("c2", "decisions"),
    ]
    at.check()

    at = AgUi().feed(*call("c1", "delete", '{"p": 2}'))
    [question] = at.finish(outcome=interrupt(metadata={"langgraph": {"raw": raw}}))
    assert (question.call_id, question.form, question.args) == ("c1", "value", None)
    at.check()


@for_each_row(
    ("value", "form", "args"),
    [
        ('{"action_requests": [{"name": "look", "args": {}}]}', "decisions", None),
        ("Which one?", "value", {"question": "Which one?"}),
        ({"options": [1, 2]}, "value", {"options": [1, 2]}),
    ],
)
def test_custom_event_of_servers_without_interrupts_is_a_question(value: Any, form: str, args: Any) -> None:
    custom = event("CUSTOM", name="on_interrupt", value=value)
    at = AgUi().feed(*call("c1"), custom, custom, event("CUSTOM", name="weather", value="rain"))
    [question] = at.finish()
    assert question.interrupt is not None
    assert (question.interrupt.interrupt_id, question.form, question.args) == (None, form, args)
    at.check()


# ends


def test_run_ends_once() -> None:
    at = AgUi().feed(event("RUN_STARTED"), event("RUN_ERROR", message="No.", code="x"), text("m", "late"))
    assert at.translator.end is not None
    assert (at.translator.end.kind, at.translator.end.message) == ("failed", "x: No.")
    at.feed(event("RUN_FINISHED"))
    assert at.translator.end.kind == "failed"
    assert at.texts == []
    at.check()
    end = AgUi().feed(event("RUN_ERROR")).translator.end
    assert end is not None
    assert end.message == "The run failed."


def test_run_that_was_cancelled_asks_nothing() -> None:
    at = AgUi().feed(*call("c1"))
    assert at.finish(outcome={"type": "cancelled"}, result={"a": 1}) == []
    assert at.translator.end is not None
    assert (at.translator.end.stop_reason, at.translator.end.result) == ("cancelled", {"a": 1})
    at.check()


def test_stop_reason_of_a_server_of_ours_is_read() -> None:
    at = AgUi()
    at.finish(metadata={"turnlog": {"stop_reason": "max_steps"}})
    assert at.translator.end is not None
    assert at.translator.end.stop_reason == "max_steps"


def test_run_without_an_end_has_no_questions_of_interrupts() -> None:
    at = AgUi().feed(*call("c1"))
    assert [question.call_id for question in at.translator.finish()] == ["c1"]
    at.check()


def test_usage_of_a_run_is_that_of_the_root() -> None:
    at = AgUi().feed(text("m", "Hi."))
    at.finish(
        usage=[
            {"model": "m1", "inputTokens": 10, "outputTokens": 2, "cachedInputTokens": 4},
            {"provider": "p", "inputTokens": 1, "outputTokens": 1},
            {"inputTokens": "many"},
        ]
    )
    usages = [(item.model, item.usage) for item in at.found(AgentUsage)]
    assert usages == [
        ("m1", Usage(input_tokens=6, output_tokens=2, cache_read_tokens=4)),
        ("p", Usage(input_tokens=1, output_tokens=1)),
        ("unknown", Usage(input_tokens=0, output_tokens=0)),
    ]
    at.check()


# snapshots


def test_messages_that_were_not_streamed_are_read_from_a_snapshot() -> None:
    calls = [{"id": "c1", "function": {"name": "look", "arguments": '{"a": 1}'}}]
    snapshot = event(
        "MESSAGES_SNAPSHOT",
        messages=[
            {"id": "a0", "role": "assistant", "content": "of an earlier turn"},
            {"id": "u1", "role": "user", "content": "Hi"},
            {"id": "known", "role": "assistant", "content": "of an earlier part"},
            {"id": "a1", "role": "assistant", "content": "Looking.", "toolCalls": calls},
            {"id": "t1", "role": "tool", "toolCallId": "c1", "content": "seen"},
            {"id": "t9", "role": "tool", "toolCallId": "c9", "content": "of no call"},
            {"id": "s", "role": "system", "content": "Be nice."},
            {"id": "a2", "role": "assistant", "content": "streamed"},
            {"id": "a3", "role": "assistant", "subagentRunId": "ended", "content": "streamed"},
            "no message",
        ],
    )
    at = AgUi(message_ids=["known"]).feed(
        subagent("ended"),
        event("SUBAGENT_FINISHED", subagentRunId="ended"),
        start_text("a2"),
        text("a2", "streamed"),
        end_text("a2"),
        snapshot,
        snapshot,
        event("MESSAGES_SNAPSHOT", messages=None),
    )
    assert at.finish() == []
    assert at.texts == ["streamed", "Looking."]
    assert [item.args for item in at.found(ToolCall)] == [{"a": 1}]
    assert [item.result for item in at.found(ToolResult)] == ["seen"]
    at.check()


def test_snapshot_message_with_calls_only_is_read() -> None:
    calls = [{"id": "c1", "function": {"name": "look", "arguments": "{}"}}]
    message = {"id": "a1", "role": "assistant", "toolCalls": calls}
    at = AgUi().feed(event("MESSAGES_SNAPSHOT", messages=[message]), result("c1"))
    assert at.finish() == []
    assert len(at.found(ToolCall)) == 1
    at.check()


@for_each_row(
    "value",
    [None, 7, "text", [], {}, {"type": 7}, {"type": "NEW_IN_2_0"}, {"type": "TEXT_MESSAGE_CONTENT"}]
    + [{"type": kind} for kind in EVENT_READERS]
    + [
        {"type": kind, "subagentRunId": "s", "messageId": 1, "toolCallId": [], "delta": {}}
        for kind in EVENT_READERS
    ],
)
def test_odd_event_raises_nothing(value: Any) -> None:
    at = AgUi()
    if isinstance(value, dict):
        at.feed(value)
    at.translator.feed(value)
    at.translator.finish()
    at.builder.flush("error")
    at.found(Payload)
    check_laws(at.drafts)
