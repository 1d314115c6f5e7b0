"""`blocks-raw` sends the blocks of the provider's own tools as the provider sent them."""

from typing import Any

import msgspec
import pytest

from tests.support.folds import root_messages
from tests.support.written_logs import entry, scope
from turnlog.events import ErrorInfo, Payload, Scope, ToolResult
from turnlog.parse import MessagesParser, ReplyBuilder
from turnlog.state.content_parts import provider_result_part
from turnlog.state.history import History
from turnlog.wire.dialects.blocks_raw import BlocksRaw

CALL = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "echo", "server_name": "tools", "input": {}}
FAILED = {
    "type": "mcp_tool_result",
    "tool_use_id": "mcptoolu_1",
    "is_error": True,
    "content": [{"type": "text", "text": "no such file"}],
}


def parsed(*blocks: dict[str, Any]) -> list[Payload]:
    parser = MessagesParser(ReplyBuilder(lambda prefix: f"{prefix}1"))
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "msg_1", "model": "claude"}}]
    for index, block in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_stop"})
    return [payload for event in events for payload in parser.feed(event)]


def content_blocks(payloads: list[Payload]) -> list[dict[str, Any]]:
    dialect, at = BlocksRaw(), scope("agt_1")
    lines = [line for seq, one in enumerate(payloads) for line in dialect.convert(*entry(one, at, seq))]
    messages = [msgspec.json.decode(line) for line in lines]
    return [message["content_block"] for message in messages if message["type"] == "content_block_start"]


@pytest.mark.parametrize("block", [CALL, FAILED, FAILED | {"is_error": False, "content": []}],
                         ids=["call", "failed result", "good result"])  # fmt: skip
def test_blocks_raw_with_a_block_of_an_mcp_tool_sends_it_as_it_came(block: dict[str, Any]) -> None:
    blocks = [CALL] if block is CALL else [CALL, block]
    assert content_blocks(parsed(*blocks))[-1] == block


def test_blocks_raw_and_the_history_hold_the_same_provider_blocks() -> None:
    history, payloads = History(), parsed(CALL, FAILED)
    for seq, payload in enumerate(payloads):
        history.apply(*entry(payload, Scope(agent_id="agt_1"), seq))
    assert root_messages(history)[0].content == content_blocks(payloads)


def test_provided_part_of_an_error_without_the_providers_words_names_its_code() -> None:
    fault = ErrorInfo(code="unavailable", message="unavailable")
    result = ToolResult(call_id="c", tool="web_search", ok=False, error=fault, kind="web_search_tool_result")
    content = {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    assert provider_result_part(result)["content"] == content
