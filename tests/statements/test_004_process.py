"""Statements of document 004 about the model's process: what the lines of its stdout become in `office`."""

import json
from itertools import groupby
from typing import Any

from tests.support.claude_vectors import bytes_of, counting
from tests.support.written_logs import entry
from turnlog.parse import CliParser
from turnlog.team.office import Office

TOOLS = ("Read", "Write", "Edit", "Bash", "Glob", "Grep")
USES = [
    {"type": "tool_use", "id": f"toolu_{tool}", "name": tool, "input": {"file_path": "a.html"}}
    for tool in TOOLS
]


def assistant(message_id: str, *content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": message_id, "model": "m", "content": list(content)}}


def answer(tool: str) -> dict[str, Any]:
    failed = tool == "Grep"
    content = f"what {tool} says"
    block = {"type": "tool_result", "tool_use_id": f"toolu_{tool}", "content": content, "is_error": failed}
    return {"type": "user", "message": {"role": "user", "content": [block]}}


LINES = [
    {"type": "system", "subtype": "init", "session_id": "s-1", "tools": list(TOOLS), "model": "m"},
    assistant("msg_01", {"type": "thinking", "thinking": "A question.", "signature": "c2ln"}),
    assistant("msg_01", {"type": "text", "text": "I look."}),
    *[assistant("msg_01", use) for use in USES],
    *map(answer, TOOLS),
    assistant("msg_02", {"type": "text", "text": "Found."}),
    {"type": "result", "subtype": "success", "is_error": False, "num_turns": 2, "result": "Found."},
]


def told() -> list[Any]:
    """The messages of a turn of the process."""
    parser, office = CliParser(counting()), Office()
    said = [*parser.feed(bytes_of(LINES)), *parser.flush()]
    items = [entry(one.payload, one.scope, seq) for seq, one in enumerate(said)]
    return [json.loads(message) for item in items for message in office.convert(*item)]


def test_a_turn_of_the_process_has_the_order_of_its_lines() -> None:
    order = [name for name, _ in groupby(message["type"] for message in told())]
    assert order == ["claude_system", "claude_text", "claude_tool_result", "claude_text", "claude_result"]


def test_blocks_have_the_ids_that_the_model_gave_them() -> None:
    texts = [message for message in told() if message["type"] == "claude_text"]
    assert [message["messageId"] for message in texts] == ["msg_01"] * 8 + ["msg_02"]
    blocks = [{"type": "thinking", "thinking": "A question."}, {"type": "text", "text": "I look."}, *USES]
    assert [message["content"] for message in texts] == [
        *(blocks[: count + 1] for count in range(len(blocks))),
        [{"type": "text", "text": "Found."}],
    ]


def test_results_name_their_call_and_its_tool() -> None:
    results = [message for message in told() if message["type"] == "claude_tool_result"]
    fields = ("toolUseId", "toolName", "content", "isError")
    assert [tuple(message[field] for field in fields) for message in results] == [
        (f"toolu_{tool}", tool, f"what {tool} says", tool == "Grep") for tool in TOOLS
    ]


def test_the_turn_ends_with_its_last_text() -> None:
    system, *_, result = told()
    assert (system["claudeSessionId"], system["availableTools"]) == ("s-1", list(TOOLS))
    assert (result["subtype"], result["resultText"]) == ("success", "Found.")
