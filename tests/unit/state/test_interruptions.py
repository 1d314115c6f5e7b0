"""What closes an agent and its blocks from outside says who did it."""

from typing import Any

import pytest

from tests.support.written_logs import entry
from turnlog.events import AgentEnd, AgentStart, BlockDelta, BlockEnd, BlockStart, Scope
from turnlog.events.agent import StopReason
from turnlog.state.closing import build_closing_events
from turnlog.state.tree import Tree

SCOPE = Scope(trace_id="tr_1", agent_id="agt_1", agent_name="Guide", depth=0)


def speaking() -> Tree:
    """An agent with an open text."""
    tree = Tree()
    payloads: list[Any] = [
        AgentStart(name="Guide", via="prompt"),
        BlockStart(block_id="b1", kind="text"),
        BlockDelta(block_id="b1", text="Based on"),
    ]
    for seq, payload in enumerate(payloads):
        tree.apply(*entry(payload, at=SCOPE, seq=seq))
    return tree


@pytest.mark.parametrize(
    ("stop_reason", "reason"), [("cancelled", "stopped"), ("timeout", "timeout"), ("error", "interrupted")]
)
def test_closing_an_open_text_says_who_ended_it(stop_reason: StopReason, reason: str) -> None:
    block, agent = (
        item.payload for item in build_closing_events(speaking(), stop_reason, "Ended.", keep_waiting=False)
    )
    assert isinstance(block, BlockEnd)
    assert isinstance(agent, AgentEnd)
    assert (block.status, block.text, block.reason) == ("aborted", "Based on", reason)
    assert (agent.stop_reason, agent.reason) == (stop_reason, reason)
