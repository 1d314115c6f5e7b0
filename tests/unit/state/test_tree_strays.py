"""Events about calls that are not open change nothing."""

from tests.support.written_logs import entry
from turnlog.events import AgentStart, ApprovalRequest, AwaitedCall, Scope, ToolAwait
from turnlog.state.tree import Tree

AT = Scope(trace_id="tr_1", agent_id="agt_1", depth=0)


def test_approval_and_await_of_an_unknown_call_change_nothing() -> None:
    tree = Tree()
    request = ApprovalRequest(call_id="toolu_9", tool="t", args_hash="0", risk="write")
    awaited = ToolAwait(calls=(AwaitedCall(call_id="toolu_9", tool="t", args={}),))
    for seq, payload in enumerate([AgentStart(name="A", via="prompt"), request, awaited]):
        tree.apply(*entry(payload, AT, seq))
    assert tree.open["agt_1"].calls == {}
