"""A runtime pauses in one process and goes on in another: its questions, its state and what is superseded."""

from pathlib import Path

from tests.unit.log.delegates import scenario
from turnlog.events import CATALOG, ApprovalDecision, EventDraft
from turnlog.ids import new_id
from turnlog.log import Log, SqliteStore
from turnlog.log.checkpoint_blobs import drop_superseded_blobs
from turnlog.parse import AgentEventBuilder, AgentInfo
from turnlog.state.checkpoints import Checkpoints
from turnlog.state.closing import build_closing_events
from turnlog.state.tree import Tree

SESSION = "sess_1"
MEDIA_TYPE = "application/json"


async def append(log: Log, drafts: list[EventDraft]) -> None:
    await log.append(SESSION, [draft.build(CATALOG, new_id("evt_")) for draft in drafts])


async def folded(log: Log) -> tuple[Tree, Checkpoints]:
    tree, checkpoints = Tree(), Checkpoints()
    for envelope in (await log.read(SESSION)).envelopes():
        payload = CATALOG.decode_payload(envelope)
        tree.apply(envelope, payload)
        checkpoints.apply(envelope, payload)
    return tree, checkpoints


async def store_checkpoint(log: Log, builder: AgentEventBuilder, state: bytes, *, paused: bool) -> None:
    name = await log.put_blob(SESSION, state, MEDIA_TYPE, private=True)
    builder.checkpoint(builder.open_agents[0], "framework", "1", name, len(state), paused=paused)


async def pause(log: Log) -> None:
    """A sub-agent asks for an approval, beside a call that the framework has not begun."""
    builder = AgentEventBuilder(new_id)
    agent = builder.start(AgentInfo("Support", prompt="Clean up"), "tr_1")
    builder.call(agent, "clean", {}, "call_1")
    child = builder.start_child(agent, "call_1", AgentInfo("Cleaner"))
    builder.call(child, "delete", {"path": "/a"}, "call_2")
    builder.call(child, "look", {}, "call_3")
    await append(log, builder.take_output())
    builder.request_approval(child, "call_2", "write")
    await store_checkpoint(log, builder, b"paused", paused=True)
    await append(log, builder.take_output())


async def approve(log: Log) -> None:
    tree, _ = await folded(log)
    [child] = [invocation for invocation in tree.open.values() if "call_2" in invocation.calls]
    args_hash = child.calls["call_2"].call.args_hash
    decision = ApprovalDecision(call_id="call_2", args_hash=args_hash, decision="approve")
    await append(log, [EventDraft(decision, child.scope, "ui")])


async def go_on(log: Log) -> None:
    """The framework reports its open agents and calls again, runs them and ends."""
    tree, _ = await folded(log)
    builder = AgentEventBuilder(new_id)
    for invocation in tree.open.values():
        calls = [call.call for call in invocation.calls.values()]
        builder.restore(invocation.start, invocation.scope, calls, totals=invocation.totals)
    agent = builder.open_agents[0]
    child = builder.start_child(agent, "call_1", AgentInfo("Cleaner"))
    builder.call(child, "delete", {"path": "/a"}, "call_2")
    builder.result(child, "call_2", "deleted")
    builder.result(child, "call_3", "empty")
    builder.text(child, "Clean.")
    builder.end(child)
    builder.result(agent, "call_1", "Clean.")
    builder.text(agent, "All clean.")
    await store_checkpoint(log, builder, b"done", paused=False)
    builder.end(agent)
    await append(log, builder.take_output())


@scenario
async def test_a_paused_runtime_goes_on_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    log = Log(SqliteStore(path))
    await log.create("support", SESSION)
    await pause(log)
    await log.close()

    log = Log(SqliteStore(path))
    tree, checkpoints = await folded(log)
    assert tree.is_all_waiting
    assert build_closing_events(tree, "error", "It stopped.", keep_waiting=True) == []
    last = checkpoints.last[""]
    assert (await log.get_private_blob(SESSION, last.blob)).data == b"paused"
    await approve(log)
    assert not (await folded(log))[0].is_all_waiting
    await go_on(log)

    tree, checkpoints = await folded(log)
    assert tree.open == {}
    entries = [entry async for entry in log.events(SESSION)]
    for type_name, count in (("agent.start", 2), ("agent.end", 2), ("tool.call", 3), ("tool.result", 3)):
        assert [entry.type for entry in entries].count(type_name) == count

    superseded = checkpoints.take_superseded()
    assert superseded == [last.blob]
    assert await log.drop_private_blobs(SESSION, superseded) == 1
    assert await log.private_blob_names(SESSION) == [checkpoints.last[""].blob]
    assert await drop_superseded_blobs(log, SESSION) == 0
    assert (await log.get_private_blob(SESSION, checkpoints.last[""].blob)).data == b"done"
    assert await log.verify() == []
    await log.close()
