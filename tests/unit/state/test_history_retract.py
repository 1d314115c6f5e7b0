"""A retracted call takes its result with it, also one that is a block of its own kind."""

from tests.support.written_logs import entry, scope
from turnlog.events import AgentStart, AssistantBlock, BlockRetract, ToolCall
from turnlog.state.history import History

AT = scope("agt_1")


def test_history_after_a_retracted_call_with_a_block_as_result_is_empty() -> None:
    history = History()
    call = ToolCall(call_id="srv_1", tool="web_search", args={}, executor="provider", block_id="b1")
    answer = AssistantBlock(kind="found", data={"tool_use_id": "srv_1", "pages": 3}, block_id="b2")
    start, retract = AgentStart(name="A", via="prompt"), BlockRetract(block_ids=("b1",), reason="retry")
    for seq, payload in enumerate([start, call, answer, retract]):
        history.apply(*entry(payload, AT, seq))
    assert history.messages("agt_1") == []
