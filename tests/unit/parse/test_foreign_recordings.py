"""Translators on recorded reports: whole, cut after every report, and with every report twice."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.support.foreign_recordings import (
    LangGraphPlayer,
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
from turnlog.events import AssistantMessage, ParseReject

PLAYERS: dict[str, Callable[[], Player]] = {"pydantic_ai": PydanticAiPlayer, "langgraph": LangGraphPlayer}
ROWS = [
    (framework, name, reports)
    for framework in PLAYERS
    for name, reports in load_recordings(framework).items()
]
IDS = [f"{framework}-{name}" for framework, name, _ in ROWS]

each_recording = for_each_row(("framework", "name", "reports"), ROWS, ids=IDS)


def is_delta(report: Report) -> bool:
    """Return whether a report only adds a piece: a piece has no identity, so twice is two pieces."""
    data: Any = report.get("data")
    if report.get("kind") == "PartDeltaEvent":
        return True
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
        is_marker = report.get("kind") in ("run", "run_end")
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
