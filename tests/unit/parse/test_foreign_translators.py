"""Translators on reports that the recordings do not have: models that do not stream, retries, odd values."""

from typing import Any

from tests.support.claude_vectors import counting
from tests.support.foreign_recordings import check_laws, visible_texts
from turnlog.events import (
    AgentHandoff,
    AgentStart,
    AgentUsage,
    AssistantBlock,
    AssistantThinking,
    BlockRetract,
    EventDraft,
    Payload,
    ToolAwait,
    ToolCall,
    ToolProgress,
    ToolResult,
    Usage,
)
from turnlog.parse import AgentEventBuilder, AgentInfo, RuntimeAgent
from turnlog.parse.foreign.common import render_text, to_usage
from turnlog.parse.foreign.langgraph import LangGraphTranslator
from turnlog.parse.foreign.pydantic_ai import PydanticAiTranslator


class Translated:
    """A builder with a root agent, and the events that it has built."""

    def __init__(self) -> None:
        self.builder = AgentEventBuilder(counting())
        self.root = self.builder.start(AgentInfo("Root"), "tr_1")
        self.drafts: list[EventDraft] = []

    def take(self) -> list[EventDraft]:
        self.drafts += self.builder.take_output()
        return self.drafts

    def found(self, payload_class: type[Payload]) -> list[Any]:
        return [draft.payload for draft in self.take() if isinstance(draft.payload, payload_class)]

    def check(self) -> None:
        self.builder.flush("error")
        check_laws(self.take())


def start_text(text: str, index: int = 0) -> dict[str, Any]:
    part = {"part_kind": "text", "content": text}
    return {"event_kind": "part_start", "index": index, "part": part}


def call_part(call_id: str = "c1", args: Any = "{}") -> dict[str, Any]:
    return {"part_kind": "tool-call", "tool_name": "look", "tool_call_id": call_id, "args": args}


class PydanticAi(Translated):
    def __init__(self) -> None:
        super().__init__()
        self.translator = PydanticAiTranslator(self.builder, self.root)
        self.translator.start_run("r1", AgentInfo("Root"))

    def feed(self, *events: dict[str, Any]) -> None:
        for event in events:
            self.translator.feed("r1", event)

    def respond(self, *parts: dict[str, Any], **fields: Any) -> None:
        self.translator.complete_response("r1", {"parts": list(parts), **fields})


def test_response_that_was_not_streamed_is_read_whole() -> None:
    at = PydanticAi()
    usage = {"input_tokens": 10, "output_tokens": 2, "cache_read_tokens": 4}
    at.respond(
        {"part_kind": "thinking", "content": "Hm.", "signature": "sig"},
        {"part_kind": "text", "content": "Hello."},
        call_part(args={"a": 1}),
        usage=usage,
        model_name="m",
        finish_reason="tool_call",
    )
    at.feed({"event_kind": "function_tool_call", "part": call_part()})
    [call] = at.found(ToolCall)
    assert call.args == {"a": 1}
    assert [thought.signature for thought in at.found(AssistantThinking)] == ["sig"]
    [event] = at.found(AgentUsage)
    assert (event.model, event.usage.input_tokens, event.usage.cache_read_tokens) == ("m", 6, 4)
    assert visible_texts(at.drafts) == [("Root", "Hello.")]
    at.check()


def test_model_that_is_asked_again_retracts_what_it_said() -> None:
    at = PydanticAi()
    at.feed(start_text("Hel"), start_text("Hello."))
    at.respond()
    assert len(at.found(BlockRetract)) == 1
    assert visible_texts(at.drafts) == [("Root", "Hello.")]
    at.check()


def test_parts_without_an_event_of_their_own_are_blocks() -> None:
    at = PydanticAi()
    at.feed(
        {"event_kind": "part_start", "part": {"part_kind": "file", "content": "x"}},
        {"event_kind": "part_start", "index": 5, "part": object()},
        {"event_kind": "part_delta", "index": 5, "delta": {"part_delta_kind": "speech"}},
        {"event_kind": "part_delta", "index": 5, "delta": {"part_delta_kind": "text"}},
        {"event_kind": "unknown"},
    )
    at.respond()
    assert [block.kind for block in at.found(AssistantBlock)] == ["file", "part"]
    at.check()


def test_results_that_failed_have_their_code() -> None:
    at = PydanticAi()
    outcomes = ["failed", "denied", "retried", "interrupted", "success"]
    at.respond(*[call_part(f"c{number}") for number in range(6)])
    for number, outcome in enumerate(outcomes):
        part = {"part_kind": "tool-return", "tool_call_id": f"c{number}", "outcome": outcome, "content": "x"}
        at.feed({"event_kind": "function_tool_result", "part": part})
    retry = {"part_kind": "retry-prompt", "tool_call_id": "c5", "content": [{"msg": "wrong"}]}
    at.feed({"event_kind": "function_tool_result", "part": retry})
    codes = [result.error.code if result.error else None for result in at.found(ToolResult)]
    assert codes == [
        "EXECUTION_ERROR",
        "DENIED",
        "VALIDATION_ERROR",
        "CANCELLED",
        None,
        "VALIDATION_ERROR",
    ]
    at.check()


def test_call_without_an_id_completes_the_message_only() -> None:
    at = PydanticAi()
    at.feed(start_text("Hello."), {"event_kind": "function_tool_call", "part": {}})
    assert visible_texts(at.take()) == [("Root", "Hello.")]
    assert at.found(ToolCall) == []
    at.check()


def test_custom_event_of_a_call_is_progress_and_others_are_dropped() -> None:
    at = PydanticAi()
    at.respond(call_part())
    at.feed({"event_kind": "custom", "done": 1, "tool_call_id": "c1"}, {"event_kind": "custom", "done": 2})
    [progress] = at.found(ToolProgress)
    assert '"done":1' in progress.text
    at.check()


def test_two_agents_of_one_call_are_two() -> None:
    at = PydanticAi()
    at.respond(call_part())
    for run in ("r2", "r3"):
        at.translator.start_run(run, AgentInfo("Child"), "r1", "c1")
        at.translator.start_run(run, AgentInfo("Child"), "r1", "c1")
        at.translator.feed(run, start_text(f"I am {run}."))
    assert at.translator.agent_of("r2") is not at.translator.agent_of("r3")
    at.translator.end_run("r2", "end_turn", "two")
    at.translator.end_run("r3")
    at.translator.end_run("r9")
    at.translator.end_run("r1")  # the runtime ends the root
    assert visible_texts(at.take()) == [("Child", "I am r2."), ("Child", "I am r3.")]
    assert not at.translator.is_root("r2")
    assert at.builder.open_agents == [at.root]
    at.check()


def test_run_without_a_caller_beside_the_root_is_a_child_of_the_root() -> None:
    at = PydanticAi()
    at.translator.start_run("r2", AgentInfo("Child"))
    [_, start] = at.found(AgentStart)
    assert (start.parent_id, start.call_id) == (at.root.agent_id, None)
    at.check()


def test_calls_of_an_ended_agent_are_not_reported_again() -> None:
    at = Translated()
    translator = PydanticAiTranslator(at.builder, at.root, ["c1"])
    result = {"part_kind": "tool-return", "tool_call_id": "c1", "outcome": "denied", "content": "no"}
    translator.feed("r1", {"event_kind": "function_tool_call", "part": call_part()})
    translator.feed("r1", {"event_kind": "function_tool_result", "part": result})
    assert at.found(ToolCall) == []
    translator.feed("r1", {"event_kind": "part_start", "index": 0, "part": call_part()})
    translator.feed("r1", {"event_kind": "function_tool_call", "part": call_part()})
    assert len(at.found(ToolCall)) == 1
    at.check()


def test_langgraph_message_of_an_earlier_part_counts_once_unless_it_streams() -> None:
    at = LangGraph()
    at.translator = LangGraphTranslator(at.builder, at.root, {}, ["m1"])
    at.message(content="Old.")
    assert visible_texts(at.take()) == []
    at.chunk(content="New.", chunk_position="last")
    assert visible_texts(at.take()) == [("Root", "New.")]
    assert at.translator.message_ids == ["m1"]
    at.check()


def test_pydantic_ai_without_a_run_reports_to_the_root() -> None:
    at = Translated()
    translator = PydanticAiTranslator(at.builder, at.root)
    before = translator.root_run_id
    translator.feed("r1", start_text("Hello."))
    assert (before, translator.root_run_id, translator.is_root("r1")) == (None, "r1", True)
    at.check()


# LangGraph


class LangGraph(Translated):
    def __init__(self) -> None:
        super().__init__()
        self.translator = LangGraphTranslator(self.builder, self.root)

    def feed(self, kind: str, data: Any, *path: str) -> None:
        self.translator.feed({"type": kind, "ns": path, "data": data})

    def chunk(self, *path: str, metadata: Any = None, **fields: Any) -> None:
        message = {"type": "AIMessageChunk", "id": "m1", **fields}
        self.feed("messages", (message, metadata or {}), *path)

    def message(self, *path: str, message_id: str = "m1", **fields: Any) -> None:
        self.feed("messages", ({"type": "ai", "id": message_id, **fields}, {}), *path)

    def call(self, *call_ids: str, tool: str = "look", path: tuple[str, ...] = ()) -> None:
        calls = [{"name": tool, "args": {}, "id": call_id} for call_id in call_ids]
        self.message(*path, message_id=f"m_{'_'.join(call_ids)}", tool_calls=calls)

    def task(self, task_id: str, call_id: str, *path: str) -> None:
        task_input = {"__type": "tool_call_with_context", "tool_call": {"id": call_id}}
        self.feed("tasks", {"id": task_id, "name": "tools", "input": task_input}, *path)

    def result(self, call_id: str, *path: str, **fields: Any) -> None:
        message = {"type": "tool", "tool_call_id": call_id, "content": "x", **fields}
        self.feed("messages", (message, {}), *path)

    def interrupt(self, value: Any, interrupt_id: str = "i1", *path: str) -> None:
        self.feed("updates", {"__interrupt__": [{"id": interrupt_id, "value": value}]}, *path)


def test_langgraph_reports_that_are_not_known_are_dropped() -> None:
    at = LangGraph()
    at.translator.feed({"type": "values", "ns": (), "data": {}})
    at.translator.feed({"type": "messages", "ns": None, "data": "nothing"})
    at.feed("updates", None)
    at.feed("updates", {"model": None, "__interrupt__": None})
    at.feed("messages", ({"type": "human", "content": "Hi"}, {}))
    at.chunk(content=[{"type": "image"}, "Hello.", {"type": "thinking", "signature": "sig"}])
    at.chunk(additional_kwargs={"reasoning_content": "Hm."}, content=None)
    assert [thought.text for thought in at.found(AssistantThinking)] == []
    at.check()


def test_langgraph_message_that_was_not_streamed_is_read_whole() -> None:
    at = LangGraph()
    usage = {"input_tokens": 7, "output_tokens": 1, "input_token_details": {"cache_read": 2}}
    at.message(content="Hello.", usage_metadata=usage, response_metadata={"finish_reason": "length"})
    at.message(content="Hello.")
    assert visible_texts(at.take()) == [("Root", "Hello.")]
    [event] = at.found(AgentUsage)
    assert event.usage == Usage(input_tokens=5, output_tokens=1, cache_read_tokens=2)
    at.check()


def test_chunks_without_a_last_one_end_with_the_message_in_the_state() -> None:
    at = LangGraph()
    at.chunk(content="Hel")
    at.chunk(content="lo.")
    usage = {"input_tokens": 5, "output_tokens": 1}
    state = [{"type": "ai", "id": "m1", "content": "Hello.", "usage_metadata": usage}]
    at.feed("updates", {"model": {"messages": state}})
    assert visible_texts(at.take()) == [("Root", "Hello.")]
    assert len(at.found(AgentUsage)) == 1
    at.chunk(content="late")
    assert visible_texts(at.take()) == [("Root", "Hello.")]
    at.check()


def test_update_without_ids_repeats_nothing() -> None:
    at = LangGraph()
    at.call("c1")
    repeated = [
        {"type": "ai", "id": "", "content": "Old."},
        {"type": "ai", "id": "m_new", "content": "Old.", "tool_calls": [{"id": "c1", "name": "look"}]},
    ]
    at.feed("updates", {"model": {"messages": repeated}})
    assert visible_texts(at.take()) == []
    at.check()


def test_agent_of_a_call_that_has_a_result_does_not_start() -> None:
    at = LangGraph()
    at.call("c1")
    at.task("t1", "c1")
    at.result("c1", status="error")
    at.chunk("tools:t1", "model:t2", content="late")
    at.message("tools:t1", message_id="m9", content="late")
    assert len(at.found(AgentStart)) == 1
    [result] = at.found(ToolResult)
    assert result.error.code == "EXECUTION_ERROR"
    at.check()


def test_agent_starts_before_the_message_of_its_call_is_known_to_be_complete() -> None:
    at = LangGraph()
    at.chunk(tool_call_chunks=[{"name": "look", "args": "{}", "id": "c1", "index": 0}])
    at.task("t1", "c1")
    at.chunk("tools:t1", id="m2", content="Hello.", metadata={"lc_agent_name": "Child"})
    [_, start] = at.found(AgentStart)
    assert (start.name, start.call_id) == ("Child", "c1")
    at.check()


def test_task_with_a_list_of_one_call_runs_it() -> None:
    at = LangGraph()
    at.call("c1", "c2")
    at.feed("tasks", {"id": "t1", "name": "tools", "input": [{"id": "c2", "name": "look"}]})
    at.chunk("tools:t1", id="m2", content="")
    assert at.found(AgentStart)[1].call_id == "c2"
    at.check()


def test_call_that_a_person_answered_in_the_log_has_no_second_result() -> None:
    at = LangGraph()
    at.call("c1")
    at.builder.note_result(at.root, "c1")
    at.result("c1")
    assert at.found(ToolResult) == []


def test_model_inside_a_tool_is_an_agent_of_its_call() -> None:
    at = LangGraph()
    at.call("c1")
    at.task("t1", "c1")
    metadata = {"langgraph_checkpoint_ns": "tools:t1", "lc_agent_name": "Root"}
    at.chunk(id="m2", content="Inside.", chunk_position="last", metadata=metadata)
    at.feed("messages", ({"type": "ai", "id": "m3", "content": "Again."}, metadata))
    assert visible_texts(at.take()) == [("tools", "Again."), ("tools", "Inside.")]
    at.check()


def test_node_that_ends_without_handing_over_has_ended() -> None:
    at = LangGraph()
    metadata = {"lc_agent_name": "Writer"}
    at.feed("tasks", {"id": "t2", "name": "model", "input": {}, "metadata": metadata}, "write:t1")
    at.feed("messages", ({"type": "human"}, metadata), "write:t1")
    at.feed("tasks", {"id": "t1", "name": "write", "result": {}, "interrupts": []})
    at.feed("tasks", {"id": "t1", "name": "write", "result": {}, "interrupts": []})
    assert at.builder.open_agents == [at.root]
    at.check()


def test_node_that_is_open_at_the_end_of_the_graph_ends() -> None:
    at = LangGraph()
    at.chunk("write:t1", content="Hello.", chunk_position="last")
    at.call("c1", tool="transfer_to_x", path=("write:t1",))
    at.result("c1")  # in the state of the graph around it
    at.feed("tasks", {"id": "t1", "name": "write", "result": {}, "interrupts": []})
    assert at.found(AgentHandoff) == []
    at.translator.finish()
    assert at.builder.open_agents == [at.root]
    at.check()


def test_task_whose_input_cannot_be_read_runs_the_next_call() -> None:
    at = LangGraph()
    at.feed("tasks", {"id": "t0", "name": "tools", "input": "..."}, "unknown:t9")
    at.call("c1", "c2")
    for task_id in ("t1", "t2", "t3"):
        at.feed("tasks", {"id": task_id, "name": "tools", "input": "..."})
    at.chunk("tools:t2", id="m2", content="Hello.")
    assert at.found(AgentStart)[1].call_id == "c2"
    at.check()


def ask(at: LangGraph, *interrupt_ids: str) -> list[tuple[RuntimeAgent, str, bool]]:
    questions = at.translator.list_questions(interrupt_ids)
    return [(question.agent, question.call_id, question.is_decision) for question in questions]


def test_approvals_are_matched_with_calls_by_name_and_arguments() -> None:
    at = LangGraph()
    at.call("c1", "c2")
    request = {"name": "look", "args": {}}
    at.interrupt({"action_requests": [request, request]})
    assert ask(at, "i1") == [(at.root, "c1", True), (at.root, "c2", True)]
    at.check()


def test_approval_of_an_unknown_call_is_a_question_to_the_page() -> None:
    at = LangGraph()
    at.call("c1")
    at.interrupt({"action_requests": [{"name": "other", "args": {}}]})
    assert ask(at, "i1") == [(at.root, "i1", False)]
    assert at.found(ToolCall)[-1].tool == "interrupt"
    at.check()


def test_interrupt_in_a_node_becomes_a_call() -> None:
    at = LangGraph()
    at.interrupt("Sure?")
    assert ask(at, "i1", "i_unknown") == [(at.root, "i1", False), (at.root, "i_unknown", False)]
    at.builder.await_page(at.root, ["i1"], (), {"question": "Sure?"})
    [question] = at.found(ToolAwait)
    assert question.calls[0].args == {"question": "Sure?"}
    at.check()


def test_interrupt_of_an_inner_graph_stays_with_its_agent() -> None:
    at = LangGraph()
    at.call("c1")
    at.task("t1", "c1")
    at.call("c2", path=("tools:t1",))
    value = {"tool_call_id": "c2", "description": "May I?"}
    at.interrupt(value, "i1", "tools:t1")
    task_end = {"id": "t5", "name": "x", "result": {}, "interrupts": [{"id": "i1", "value": value}]}
    at.feed("tasks", task_end, "tools:t1")
    at.interrupt(value, "i1", "tools:t1")
    at.interrupt(value, "i1")
    [question] = at.translator.list_questions(["i1"])
    assert (question.agent.scope.agent_name, question.call_id) == ("tools", "c2")
    assert (question.is_single, question.reason) == (True, "May I?")
    at.check()


def test_usage_counts_cached_tokens_once() -> None:
    assert to_usage(10, 2, 4, 3) == Usage(
        input_tokens=3, output_tokens=2, cache_read_tokens=4, cache_creation_tokens=3
    )
    assert to_usage(None, "x", -1, 2.5) == Usage(input_tokens=0, output_tokens=0)


def test_value_that_is_no_json_has_no_text() -> None:
    assert (render_text("a"), render_text({"a": 1}), render_text(object())) == ("a", '{"a":1}', "")
