"""The stdout of a Claude CLI process: every vector whole, cut, broken off after each line."""

import json
from typing import Any

import pytest

from tests.support.claude_vectors import (
    VECTORS,
    assert_lawful,
    bytes_of,
    counting,
    parser_of,
    run,
    shown,
    types,
)
from tests.support.coverage_pause import without_coverage
from tests.support.tables import check_laws
from turnlog.events import (
    AgentEnd,
    AgentStart,
    ApprovalDecision,
    ApprovalRequest,
    BlockDelta,
    ErrorInfo,
    EventDraft,
    ParseReject,
    ProcessAuth,
    SessionError,
    ToolResult,
    Usage,
)
from turnlog.events.payload import MAX_COUNT
from turnlog.events.tool import hash_args
from turnlog.parse import CliParser, SentMessage
from turnlog.parse.blocks import MAX_REPLY_CHARS
from turnlog.parse.claude.lines import Line
from turnlog.parse.claude.results import MAX_MODELS
from turnlog.parse.claude.turns import MAX_OPEN_TURNS
from turnlog.parse.open_agents import MAX_KNOWN_CALLERS, MAX_OPEN_AGENTS, MAX_OPEN_CALLS
from turnlog.parse.reply import BLOCK_COST_CHARS
from turnlog.team.events import ArtifactWrite, ScreenCommand
from turnlog.team.markers import MarkerParser
from turnlog.team.tool_effects import TeamToolEffects

by_vector = pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])

Data = dict[str, Any]


def init() -> Data:
    return {"type": "system", "subtype": "init", "session_id": "s-1", "tools": [], "model": "m"}


def assistant(*blocks: Data, key: str | None = "msg_1", parent: str | None = None, **more: Any) -> Data:
    message = {"id": key, "model": "m", "content": list(blocks)}
    return {"type": "assistant", "message": message, "parent_tool_use_id": parent, **more}


def text(words: str) -> Data:
    return {"type": "text", "text": words}


def use(call_id: str, tool: str = "Bash", **args: Any) -> Data:
    return {"type": "tool_use", "id": call_id, "name": tool, "input": args}


def answer(call_id: str, content: Any = "ok", **more: Any) -> Data:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return {"type": "user", "message": {"role": "user", "content": [block]}, **more}


def permission(call_id: str, **args: Any) -> Data:
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": args, "tool_use_id": call_id}
    return {"type": "control_request", "request_id": f"r-{call_id}", "request": request}


def fed(parser: CliParser, *lines: Data) -> list[EventDraft]:
    return parser.feed(bytes_of(lines))


def check_events_and_replies(vector: Data) -> None:
    parser = parser_of(vector)
    said = parser.feed(bytes_of(vector["lines"]))
    replies = [json.loads(line)["response"] for line in parser.take_stdin_lines()]
    said += parser.flush()
    assert [shown(item) for item in said] == vector["expected"]
    assert [reply["request_id"] for reply in replies] == vector.get("replies", [])
    assert {reply["subtype"] for reply in replies} <= {"error"}
    assert (parser.take_stdin_lines(), parser.is_busy) == ([], False)


@without_coverage()
def check_any_cutting_gives_the_same(vector: Data) -> None:
    stream = bytes_of(vector["lines"])
    whole = run(vector, [stream])
    for size in (1, 7, 100):
        assert run(vector, [stream[at : at + size] for at in range(0, len(stream), size)]) == whole
    assert run(vector, [stream[:-1]]) == whole
    assert run(vector, [stream.replace(b"\n", b"\r\n\n")]) == whole


def check_whatever_line_is_the_last_everything_is_closed(vector: Data) -> None:
    for end in range(len(vector["lines"]) + 1):
        assert_lawful(run(vector, [bytes_of(vector["lines"][:end])]))


@without_coverage()
def check_half_a_line_at_the_end_is_refused_and_everything_is_closed(vector: Data) -> None:
    said = run(vector, [bytes_of(vector["lines"])[:-3]])
    assert [item.payload.reason for item in said if isinstance(item.payload, ParseReject)][-1] == "cut_line"
    assert_lawful(said)


@without_coverage()
def check_what_one_feed_returns_holds_an_end_with_its_twin(vector: Data) -> None:
    parser = parser_of(vector)
    for line in vector["lines"]:
        batch = [shown(item) for item in fed(parser, line)]
        complete = {item["block_id"] for item in batch if item.get("status") == "complete"}
        twins = {
            item["block_id"]
            for item in batch
            if item["type"].startswith(("assistant.", "tool.call")) and "block_id" in item
        }
        assert complete == twins


@by_vector
def test_vector(vector: Data) -> None:
    laws = [
        check_events_and_replies,
        check_any_cutting_gives_the_same,
        check_whatever_line_is_the_last_everything_is_closed,
        check_half_a_line_at_the_end_is_refused_and_everything_is_closed,
        check_what_one_feed_returns_holds_an_end_with_its_twin,
    ]
    check_laws(laws, vector)


def test_a_line_that_is_no_json_leaves_a_trace_and_nothing_else() -> None:
    parser = CliParser(counting())
    said = parser.feed(b"Debugger attached.\n[]\n7\n\n  \n") + fed(parser, init()) + parser.feed(b"{oops\n")
    assert types(said) == ["parse.reject", "parse.reject", "parse.reject", "agent.start", "parse.reject"]
    assert said[-1].scope == said[-2].scope


def test_a_process_that_was_stopped_was_cancelled() -> None:
    parser = CliParser(counting(), "Julian")
    fed(parser, init(), assistant(use("toolu_1")))
    assert (parser.is_busy, parser.source_session) == (True, "s-1")
    said = parser.flush(reason="cancelled")
    assert types(said) == ["tool.result", "agent.end"]
    assert said[-1].payload == AgentEnd(stop_reason="cancelled", steps=1)
    assert said[-1].scope.agent_name == "Julian"
    assert parser.flush() == []


def test_a_process_that_is_gone_says_why() -> None:
    parser = CliParser(counting())
    fed(parser, init())
    error, end = parser.flush(ErrorInfo(code="inactivity_timeout", message="15 minutes"))
    assert error.payload == SessionError(code="inactivity_timeout", message="15 minutes")
    assert end.payload == AgentEnd(stop_reason="error")


def test_a_message_that_no_turn_took_up_stays_pending() -> None:
    parser = CliParser(counting())
    parser.expect("u-1", SentMessage("tr_a"))
    assert parser.flush() == []


def approved(parser: CliParser, decision: Any, args: Data, **more: Any) -> Data | None:
    decided = ApprovalDecision(call_id="toolu_1", args_hash=hash_args(args), decision=decision)
    line = parser.decide(decided, **more)
    return json.loads(line)["response"] if line else None


def test_a_permission_is_bound_to_its_call_and_arguments_and_counts_once() -> None:
    parser = CliParser(counting())
    said = fed(parser, init(), assistant(use("toolu_1", command="ls")), permission("toolu_1", command="ls"))
    request = said[-1].payload
    assert isinstance(request, ApprovalRequest)
    assert request.args_hash == hash_args({"command": "ls"})
    assert approved(parser, "approve", {"command": "rm"}) is None
    wanted = {"behavior": "allow", "updatedInput": {"command": "ls"}}
    assert approved(parser, "approve", {"command": "ls"}) == {
        "subtype": "success", "request_id": "r-toolu_1", "response": wanted,
    }  # fmt: skip
    assert approved(parser, "approve", {"command": "ls"}) is None


def test_answers_to_a_question_go_back_in_its_arguments() -> None:
    parser = CliParser(counting())
    fed(parser, init(), permission("toolu_1", questions=[]))
    answers = {"questions": [], "answers": {"Which?": "This."}}
    response = approved(parser, "approve", {"questions": []}, updated_args=answers)
    assert response
    assert response["response"]["updatedInput"] == answers


def test_a_call_that_a_person_denied_is_denied() -> None:
    parser = CliParser(counting())
    fed(parser, init(), assistant(use("toolu_1")), permission("toolu_1"))
    response = approved(parser, "expired", {})
    assert response
    assert response["response"] == {"behavior": "deny", "message": "The answer is: expired."}
    refusal = answer("toolu_1")
    refusal["message"]["content"][0]["is_error"] = True
    (result,) = fed(parser, refusal)
    assert isinstance(result.payload, ToolResult)
    assert result.payload.error == ErrorInfo(code="DENIED", message="ok")


def test_a_permission_of_a_call_that_is_over_is_forgotten() -> None:
    parser = CliParser(counting())
    fed(parser, init(), assistant(use("toolu_1")), permission("toolu_1"), answer("toolu_1"))
    assert approved(parser, "deny", {}) is None
    fed(parser, assistant(use("toolu_2")), permission("toolu_2"))
    assert parser.decide(ApprovalDecision(call_id="toolu_1", args_hash="x", decision="deny")) is None


def test_the_agent_of_a_message_starts_with_its_text() -> None:
    parser = CliParser(counting())
    parser.expect("u-1", SentMessage("tr_a", text="Hello"))
    [start] = fed(parser, init())
    assert isinstance(start.payload, AgentStart)
    assert start.payload.prompt == "Hello"


def test_the_answer_to_a_routed_message_has_its_speaker_and_a_sub_agent_has_not() -> None:
    parser = CliParser(counting())
    parser.expect("u-1", SentMessage("tr_a", speaker="Lyra"))
    said = fed(
        parser, init(), assistant(text("Hi."), use("toolu_1")), assistant(text("Yo."), parent="toolu_1")
    )
    speakers = [shown(item).get("speaker") for item in said if "assistant.message" in types([item])]
    assert speakers == ["Lyra", None]


def test_markers_in_a_text_become_events_with_its_end() -> None:
    parser = CliParser(counting(), make_text_parser=MarkerParser)
    words = 'Here:\n[AGENT_STATUS] {"agents": []}\nDone.'
    said = fed(parser, init(), assistant(text(words)))
    assert types(said)[-3:] == ["block.end", "assistant.message", "roster.status"]
    assert shown(said[-2])["text"] == "Here:\nDone."


def test_an_artifact_is_written_when_the_result_says_so_and_a_screen_commanded_with_the_call() -> None:
    parser = CliParser(counting(), tool_effects=TeamToolEffects("/opt/julian/memory", "localhost:3848/cmd"))
    write = use("toolu_1", "Write", file_path="/opt/julian/memory/foo.html", content="<html>hello</html>")
    command = "curl -s -X POST localhost:3848/cmd -d 'FACE talking'"
    said = fed(parser, init(), assistant(write, use("toolu_2", command=command)))
    assert said[-1].payload == ScreenCommand(command="FACE talking", expression="talking")
    said = fed(parser, answer("toolu_1", tool_use_result={"type": "update"}), answer("toolu_2"))
    assert types(said) == ["tool.result", "artifact.write", "tool.result"]
    wanted = ArtifactWrite(filename="foo.html", path="memory/foo.html", is_new=False, size_bytes=18)
    assert (said[1].payload, said[1].origin) == (wanted, "tool")


def test_the_number_of_agents_is_bounded() -> None:
    parser = CliParser(counting())
    said = fed(parser, init(), *(assistant(text("x"), parent=f"toolu_{n}") for n in range(MAX_OPEN_AGENTS)))
    assert sum(isinstance(item.payload, AgentStart) for item in said) == MAX_OPEN_AGENTS
    lines = [
        {"type": "stream_event", "event": {"type": "ping"}, "parent_tool_use_id": "toolu_x"},
        assistant(text("y"), parent="toolu_x"),
        {"type": "system", "subtype": "task_started", "tool_use_id": "toolu_x", "subagent_type": "a"},
        {"type": "user", "message": {"content": "Look"}, "parent_tool_use_id": "toolu_x"},
    ]
    beyond = fed(parser, *lines)
    assert [type(item.payload) for item in beyond] == [Line] * 4
    assert_lawful(said + beyond + parser.flush())


def test_the_number_of_open_calls_is_bounded() -> None:
    parser = CliParser(counting())
    said = fed(parser, init(), assistant(*(use(f"toolu_{n}") for n in range(MAX_OPEN_CALLS + 2))))
    answers = [item.payload.call_id for item in said if isinstance(item.payload, ToolResult)]
    assert answers == ["toolu_0", "toolu_1"]
    lines = [line for n in range(MAX_KNOWN_CALLERS) for line in (assistant(use(f"t_{n}")), answer(f"t_{n}"))]
    said += fed(parser, *lines)
    assert types(fed(parser, answer("toolu_9"))) == ["claude_cli.line"], "nobody knows whose call it was"
    assert_lawful(said + parser.flush())


def test_the_number_of_models_is_bounded() -> None:
    parser = CliParser(counting())
    models = {f"m{n}": {"inputTokens": 1} for n in range(MAX_MODELS + 1)}
    said = fed(parser, init(), {"type": "result", "modelUsage": models})
    assert types(said).count("agent.usage") == MAX_MODELS
    more = {name: {"inputTokens": 2} for name in models}
    said = fed(parser, init(), {"type": "result", "modelUsage": more})
    assert types(said).count("agent.usage") == MAX_MODELS, "of those that are known"


def test_sums_that_no_count_can_hold_are_cut() -> None:
    parser = CliParser(counting())
    models = {name: {"inputTokens": MAX_COUNT} for name in ("m1", "m2")}
    said = fed(parser, init(), {"type": "result", "modelUsage": models})
    (end,) = (item.payload for item in said if isinstance(item.payload, AgentEnd))
    assert end.usage == Usage(input_tokens=MAX_COUNT, output_tokens=0)
    assert_lawful(said)


def test_the_number_of_turns_without_a_result_is_bounded() -> None:
    parser = CliParser(counting())
    said = fed(parser, *[init()] * (MAX_OPEN_TURNS + 2))
    assert types(said) == ["agent.start"] * MAX_OPEN_TURNS + ["agent.end", "agent.start"] * 2
    ends = [item.payload for item in said if isinstance(item.payload, AgentEnd)]
    assert ends == [AgentEnd(stop_reason="error")] * 2
    assert_lawful(said + parser.flush())


def test_a_streamed_block_that_has_no_room_is_not_remembered() -> None:
    parser = CliParser(counting())
    large = {"type": "text", "text": "x" * (MAX_REPLY_CHARS - BLOCK_COST_CHARS)}
    starts = [{"type": "content_block_start", "index": n, "content_block": large} for n in range(3)]
    events = [{"type": "message_start", "message": {"id": "msg_1"}}, *starts]
    said = fed(parser, init(), *({"type": "stream_event", "event": event} for event in events))
    assert types(said)[-2:] == ["parse.reject"] * 2
    again = fed(parser, assistant(large), assistant(text("y")))
    assert types(again) == ["parse.reject"], "the first only repeats a block that was streamed"


def test_deltas_are_handed_on_at_once() -> None:
    parser = CliParser(counting())
    start = {"type": "content_block_start", "index": 0, "content_block": text("")}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}
    events = [{"type": "message_start", "message": {"id": "msg_1"}}, start, delta]
    said = fed(parser, init(), *({"type": "stream_event", "event": event} for event in events))
    assert isinstance(said[-1].payload, BlockDelta)


def test_a_text_that_is_void_is_no_result() -> None:
    parser = CliParser(counting())
    fed(parser, init(), assistant(text("Kept."), uuid="l-1"), assistant(text("Void."), uuid="l-2"))
    void = {"type": "system", "subtype": "model_refusal_no_fallback", "retracted_message_uuids": ["l-2"]}
    fed(parser, void)
    (end,) = fed(parser, {"type": "result"})
    assert end.payload == AgentEnd(stop_reason="end_turn", steps=1)


def auths(parser: CliParser, *lines: dict[str, Any]) -> list[Any]:
    events = parser.feed(bytes_of(list(lines)))
    return [event.payload for event in events if isinstance(event.payload, ProcessAuth)]


def init_line(source: str | None) -> dict[str, Any]:
    return {"type": "system", "subtype": "init", "session_id": "s-1", "tools": [], "apiKeySource": source}


RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": ""}
SETUP_TOKEN = ProcessAuth(method="setup_token", needs_setup=False)


def test_a_sign_in_by_a_setup_token_is_reported_once_and_after_a_change() -> None:
    parser = CliParser(counting(), sign_in_method="setup_token")
    failed = {"type": "auth_status", "isAuthenticating": False, "output": [], "error": "Token expired."}
    assert auths(parser, init_line("none"), RESULT, init_line("none"), RESULT) == [SETUP_TOKEN]
    assert auths(parser, failed) == [ProcessAuth(method="none", needs_setup=True)]
    assert auths(parser, init_line("none"), RESULT) == [SETUP_TOKEN]


def test_a_sign_in_is_reported_as_far_as_the_process_tells_it() -> None:
    oauth = ProcessAuth(method="oauth", needs_setup=False)
    for source, known in (("oauth", [oauth]), ("none", []), ("ANTHROPIC_API_KEY", []), (None, [])):
        assert auths(CliParser(counting()), init_line(source)) == known
    key = CliParser(counting(), sign_in_method="setup_token")
    assert auths(key, init_line("ANTHROPIC_API_KEY")) == [], "the key wins over the token"
    status = {"type": "auth_status", "isAuthenticating": False, "output": [], "expiresInMinutes": 55}
    [told] = auths(CliParser(counting()), status)
    assert told == ProcessAuth(method="oauth", needs_setup=False, expires_in_minutes=55)
    [told] = auths(CliParser(counting()), {**status, "expiresInMinutes": "soon"})
    assert told.expires_in_minutes is None
