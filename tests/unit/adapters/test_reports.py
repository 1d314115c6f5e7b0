"""What a worker reports, applied at the server, builds what its own builder has built."""

from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec
import pytest

from turnlog.adapters.remote.part_messages import PartMessage, describe_team, restore_team
from turnlog.adapters.remote.reports import (
    AnyReport,
    ClaudeLineReport,
    ReportingBuilder,
    TextReport,
    find_new_agents,
)
from turnlog.errors import InvalidEvent
from turnlog.events import Citation, Cost, EventDraft, Image, ParseReject, Usage
from turnlog.parse import AgentEventBuilder, AgentInfo
from turnlog.parse.claude.hosted_lines import HostedLines


def make_ids() -> Any:
    numbers = count(1)
    return lambda prefix: f"{prefix}{next(numbers)}"


def report_everything(builder: ReportingBuilder) -> None:
    """Call every method that a translator may call, also with what no event can carry."""
    [root] = builder.open_agents
    builder.begin_message(root, "model-1", "msg_1")
    builder.think(root, "Hm")
    builder.think(root, ", so.")
    builder.sign(root, "signature")
    for piece in ("Hello", " \ud800world", 7):
        builder.text(root, piece)  # type: ignore[arg-type]
    builder.cite(root, Citation(type="page", cited_text="a"))
    builder.other(root, "file", {"name": "a.txt"})
    builder.start_call(root, "search", "call_1")
    builder.arguments(root, "call_1", '{"q": ')
    builder.arguments(root, "call_1", '"a"}')
    builder.call(root, "look", {"at": 1}, "call_2")
    builder.call(root, "odd", [1, 2], "call_3")
    builder.call(root, "text", '{"b": 2}', "call_4")
    builder.complete_message(
        root, Usage(input_tokens=3, output_tokens=4), cost=Cost(total_cost=0.5), duration_ms=9
    )
    child = builder.start_child(root, "call_1", AgentInfo("Child", tools=("t",), prompt="Go"))
    builder.text(child, "Mine.")
    builder.progress(root, "call_2", "half")
    builder.result(root, "call_1", {"found": ["x"]})
    builder.result(root, "call_2", object())
    image = Image(src="data:image/png;base64,AA==", media_type="image/png")
    builder.result(root, "call_3", "seen", [image])
    builder.fail(root, "call_4", "EXECUTION_ERROR", "no", {"path": "$"})
    builder.text(root, "Again")
    builder.retract_message(root, "retry")
    builder.reuse_call_id(root, "call_2")
    builder.offer_page_tools(["page"])
    builder.call(root, "page", {}, "call_2")
    builder.error(root, "odd", "something", is_retriable=True)
    builder.complete_message(root)
    successor = builder.hand_off(root, AgentInfo("Next"), "call_2", "over")
    builder.text(successor, "Bye.")
    helper = builder.start_child(successor, None, AgentInfo("Helper", source_id="h"), is_background=True)
    builder.end(helper, "error", "stopped")
    builder.complete_message(successor)


def report_claude_lines(builder: ReportingBuilder) -> None:
    """Read the lines of a program whose agent calls another one and a tool, and that starts once more."""
    [root] = builder.open_agents
    HostedLines(builder, root)
    task = {"subagent_type": "Child", "prompt": "Go"}
    call = {"type": "tool_use", "id": "call_1", "name": "Agent", "input": task}
    message = {"id": "msg_1", "model": "m", "content": [{"type": "text", "text": "Hello."}, call]}
    builder.read_line(root, {"type": "system", "subtype": "init", "session_id": "s"})
    builder.read_line(root, {"type": "assistant", "message": message})
    inner = {"type": "tool_use", "id": "call_2", "name": "Bash", "input": {"command": "ls"}}
    builder.read_line(
        root,
        {
            "type": "assistant",
            "parent_tool_use_id": "call_1",
            "message": {"id": "msg_2", "model": "m", "content": [inner]},
        },
    )
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}, "tool_use_id": "call_3"}
    builder.read_line(root, {"type": "control_request", "request_id": "1", "request": request})
    builder.fail(root, "call_3", "DENIED", "no")
    for call_id in ("call_2", "call_1"):
        result = {"type": "tool_result", "tool_use_id": call_id, "content": "done"}
        builder.read_line(root, {"type": "user", "message": {"role": "user", "content": [result]}})
    totals = {"m": {"inputTokens": 5, "outputTokens": 3}}
    builder.read_line(root, {"type": "result", "subtype": "success", "modelUsage": totals})
    HostedLines(builder, root)
    builder.read_line(root, {"type": "result", "subtype": "success", "modelUsage": totals})


def contents(items: list[EventDraft]) -> list[Any]:
    """Return payloads and agents, without the ids of blocks, which each builder makes itself."""
    found = []
    for item in items:
        fields = msgspec.to_builtins(item.payload)
        for name in ("block_id", "block_ids", "sha256", "length"):
            fields.pop(name, None)
        found.append((type(item.payload).__name__, fields, item.scope, item.origin))
    return found


@pytest.mark.parametrize("report", [report_everything, report_claude_lines])
def test_reports_build_the_same_events_at_the_server(report: Callable[[ReportingBuilder], None]) -> None:
    server = AgentEventBuilder(make_ids())
    server.start(AgentInfo("Lead"), "tr_1")
    server.take_output()
    data = msgspec.json.encode(PartMessage(False, describe_team(server)))
    worker = ReportingBuilder(make_ids())
    worker.start(AgentInfo("Unused"), "tr_1")  # so that both make the same ids
    worker = ReportingBuilder(worker._new_id)
    restore_team(worker, msgspec.json.decode(data, type=PartMessage).team)

    report(worker)
    expected = worker.take_output()
    sent = msgspec.json.decode(msgspec.json.encode(worker.take_reports()), type=list[AnyReport])
    assert worker.take_reports() == []

    agents = {agent.agent_id: agent for agent in server.open_agents}
    assert [path for _, path in find_new_agents(sent, agents)]
    for item in sent:
        item.apply(server, agents)
    built = server.take_output()
    deltas = ("BlockDelta",)  # pieces are joined on their way
    assert [item for item in contents(built) if item[0] not in deltas] == [
        item for item in contents(expected) if item[0] not in deltas
    ]
    assert describe_team(server) == describe_team(worker)


def test_a_report_about_an_agent_of_another_part_is_refused() -> None:
    worker = ReportingBuilder(make_ids())
    root = worker.start(AgentInfo("Lead"), "tr_1")
    worker.text(root, "x")
    with pytest.raises(InvalidEvent, match="agent of this part"):
        find_new_agents(worker.take_reports(), {})


def test_a_line_before_its_program_has_begun_leaves_a_reject() -> None:
    builder = AgentEventBuilder(make_ids())
    root = builder.start(AgentInfo("Lead"), "tr_1")
    builder.take_output()
    builder.read_line(root, {"type": "system", "subtype": "init"})
    [item] = builder.take_output()
    assert isinstance(item.payload, ParseReject)
    assert item.payload.reason == "line_without_program"


def test_a_line_of_a_program_whose_agent_has_ended_leaves_a_reject() -> None:
    builder = AgentEventBuilder(make_ids())
    root = builder.start(AgentInfo("Lead"), "tr_1")
    builder.end(root, "end_turn")
    builder.take_output()
    builder.read_line(root, {"type": "system", "subtype": "init"})
    [item] = builder.take_output()
    assert isinstance(item.payload, ParseReject)
    assert item.payload.reason != "line_without_program"


def test_a_line_names_only_new_agents() -> None:
    line = ClaudeLineReport(agent_id="agt_1", line={}, child_ids=("agt_1",))
    builder = AgentEventBuilder(make_ids())
    root = builder.start(AgentInfo("Lead"), "tr_1")
    with pytest.raises(InvalidEvent, match="new agent"):
        find_new_agents([line], {"agt_1": root})


def test_what_is_reported_of_an_agent_that_no_line_has_started_is_refused() -> None:
    builder = AgentEventBuilder(make_ids())
    root = builder.start(AgentInfo("Lead"), "tr_1")
    HostedLines(builder, root)
    agents = {root.agent_id: root}
    ClaudeLineReport(agent_id=root.agent_id, line={"type": "keep_alive"}, child_ids=("agt_9",)).apply(
        builder, agents
    )
    builder.take_output()
    TextReport(agent_id="agt_9", piece="x").apply(builder, agents)
    [item] = builder.take_output()
    assert isinstance(item.payload, ParseReject)
    assert item.payload.reason == "agent_not_open"
