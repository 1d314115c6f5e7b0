"""Translators on recorded reports: whole, cut after every report, and with every report twice."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.support.foreign_recordings import (
    AgUiPlayer,
    ClaudeSdkPlayer,
    LangGraphPlayer,
    OpenAiAgentsPlayer,
    Player,
    PydanticAiPlayer,
    Report,
    check_laws,
    count_ends,
    load_recordings,
    play_all,
    visible_texts,
)
from tests.support.tables import for_each_row
from turnlog.events import AgentUsage, AssistantMessage, ParseReject

PLAYERS: dict[str, Callable[[], Player]] = {
    "pydantic_ai": PydanticAiPlayer,
    "langgraph": LangGraphPlayer,
    "openai_agents": OpenAiAgentsPlayer,
    "ag_ui": AgUiPlayer,
    "claude_sdk": ClaudeSdkPlayer,
}
ROWS = [
    (framework, name, reports)
    for framework in PLAYERS
    for name, reports in load_recordings(framework).items()
]
AG_UI_DELTAS = ("TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT", "TOOL_CALL_ARGS")
IDS = [f"{framework}-{name}" for framework, name, _ in ROWS]

ESTIMATED = ("interrupt", "team", "tools")  # their stand-in made the tokens of messages up

each_recording = for_each_row(("framework", "name", "reports"), ROWS, ids=IDS)


def is_delta(report: Report) -> bool:
    """Return whether a report only adds a piece: a piece has no identity, so twice is two pieces."""
    data: Any = report.get("data")
    kind = str(report.get("kind"))
    if kind == "PartDeltaEvent" or kind.endswith(".delta") or report.get("type") in AG_UI_DELTAS:
        return True
    if report.get("kind") == "StreamEvent":
        return bool(data["event"]["type"] == "content_block_delta")
    if report.get("type") != "messages":
        return False
    return bool(data[0]["type"] == "AIMessageChunk" and data[0].get("chunk_position") != "last")


@each_recording
def test_whole_recording_is_balanced(framework: str, name: str, reports: list[Report]) -> None:
    drafts = play_all(PLAYERS[framework], reports)
    check_laws(drafts)
    assert count_ends(drafts) >= 1
    assert [draft.payload for draft in drafts if isinstance(draft.payload, ParseReject)] == []


@each_recording
def test_recording_that_is_cut_after_any_report_is_balanced(
    framework: str, name: str, reports: list[Report]
) -> None:
    for length in range(len(reports)):
        check_laws(play_all(PLAYERS[framework], reports[:length]))


@each_recording
def test_every_report_twice_doubles_nothing(framework: str, name: str, reports: list[Report]) -> None:
    twice: list[Report] = []
    for report in reports:
        is_marker = report.get("kind") in ("run", "run_end", "result", "raised")
        twice += [report] if is_delta(report) or is_marker else [report, report]
    drafts = play_all(PLAYERS[framework], twice)
    check_laws(drafts)
    assert visible_texts(drafts) == visible_texts(play_all(PLAYERS[framework], reports))


@for_each_row(("name", "reports"), load_recordings("langgraph").items())
def test_langgraph_texts_are_those_of_the_messages_in_the_state(name: str, reports: list[Report]) -> None:
    expected: dict[str, str] = {}
    for report in reports:
        if report.get("type") == "updates":
            for update in report["data"].values():
                for message in (update or {}).get("messages", ()) if isinstance(update, dict) else ():
                    if message["type"] == "ai":
                        expected[message["id"]] = read_text(message.get("content", ""))
    drafts = play_all(LangGraphPlayer, reports)
    texts: dict[str, str] = {}
    for draft in drafts:
        if isinstance(draft.payload, AssistantMessage) and draft.payload.message_id in expected:
            assert draft.payload.message_id not in texts, "a message twice"
            texts[draft.payload.message_id] = draft.payload.text
    assert texts == {message_id: text for message_id, text in expected.items() if text.strip()}


def read_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content if block["type"] == "text")


@for_each_row(("name", "reports"), load_recordings("pydantic_ai").items())
def test_pydantic_ai_texts_are_those_of_the_ended_parts(name: str, reports: list[Report]) -> None:
    expected: Counter[str] = Counter()
    for report in reports:
        if report["kind"] == "PartEndEvent" and report["data"]["part"]["part_kind"] == "text":
            expected[report["data"]["part"]["content"]] += 1
    if name == "probe_tree":  # its children were recorded without their events
        expected = Counter({"Looking. ": 1, "Done.": 1})
    drafts = play_all(PydanticAiPlayer, reports)
    texts = Counter(text for _, text in visible_texts(drafts))
    assert {text: texts[text] for text in expected} == dict(expected)


@for_each_row(("name", "reports"), load_recordings("claude_sdk").items())
def test_claude_sdk_texts_are_those_of_the_whole_messages(name: str, reports: list[Report]) -> None:
    expected: Counter[str] = Counter()
    for report in reports:
        if report["kind"] == "AssistantMessage":
            expected.update(block["text"] for block in report["data"]["content"] if "text" in block)
    texts = Counter(text for _, text in visible_texts(play_all(ClaudeSdkPlayer, reports)))
    assert texts == expected


@for_each_row(("name", "reports"), load_recordings("claude_sdk").items())
def test_claude_sdk_tokens_are_those_of_the_result(name: str, reports: list[Report]) -> None:
    [result] = [report["data"] for report in reports if report["kind"] == "ResultMessage"]
    expected = sum(
        numbers["inputTokens"] + numbers["outputTokens"] for numbers in result["model_usage"].values()
    )
    for played in (reports, [report for report in reports for _ in range(2 - is_delta(report))]):
        usages = [
            draft.payload.usage
            for draft in play_all(ClaudeSdkPlayer, played)
            if isinstance(draft.payload, AgentUsage)
        ]
        total = sum(usage.input_tokens + usage.output_tokens for usage in usages)
        assert total >= expected, "tokens are missing"
        if name not in ESTIMATED:
            assert total == expected


@for_each_row(("name", "reports"), load_recordings("openai_agents").items())
def test_openai_agents_texts_are_those_of_the_ended_items(name: str, reports: list[Report]) -> None:
    expected: Counter[tuple[str, str]] = Counter()
    for report in reports:
        if report["kind"] == "item.message_output_created":
            agent = report["data"]["agent"]
            expected[agent, read_parts(report["data"]["raw_item"])] += 1
    drafts = play_all(OpenAiAgentsPlayer, reports)
    texts: Counter[tuple[str, str]] = Counter()
    names = {agent for agent, _ in expected}
    for agent_name, text in visible_texts(drafts):
        # the player cannot know the name of the first agent before it starts
        texts[agent_name if agent_name in names else first_agent(reports), text] += 1
    assert texts == expected


def read_parts(message: Any) -> str:
    return "".join(part["text"] for part in message["content"])


def first_agent(reports: list[Report]) -> str:
    return str(next(report for report in reports if report["kind"] == "agent_updated")["data"]["new_agent"])


@for_each_row(("name", "reports"), load_recordings("ag_ui").items())
def test_ag_ui_texts_are_those_of_the_messages(name: str, reports: list[Report]) -> None:
    expected: dict[str, str] = {}
    for report in reports:
        if report["type"] == "TEXT_MESSAGE_CONTENT":
            expected[report["messageId"]] = expected.get(report["messageId"], "") + report["delta"]
    texts = visible_texts(play_all(AgUiPlayer, reports))
    assert Counter(text for _, text in texts) == Counter(expected.values())


@for_each_row(
    ("name", "asked"),
    {
        "pydantic_ai_approval": [("Root", "call_d1", "approval")],
        "langgraph_approval": [("Root", "call_d1", "decisions")],
        "langgraph_attributed_nested_interrupt": [("Child", "call_d1", "decisions")],
        "langgraph_attributed_subagent": [],
        "langgraph_subagent": [],
        "pydantic_ai_subagent": [],
    }.items(),
)
def test_ag_ui_questions_are_asked_by_the_agent_of_the_call(name: str, asked: list[Any]) -> None:
    player = AgUiPlayer()
    for report in load_recordings("ag_ui")[name]:
        player.play(report)
    questions = [
        (question.agent.scope.agent_name, question.call_id, question.form) for question in player.questions
    ]
    assert questions == asked
    assert bool(asked) == any(agent.open_calls for agent in player.builder.open_agents)
