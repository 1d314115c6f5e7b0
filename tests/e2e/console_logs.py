"""Long sessions for the console, written straight into a log before a server serves it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import turnlog
from turnlog.events import Event, Origin, Payload, Scope
from turnlog.events.agent import AgentEnd, AgentStart, AgentUsage, Usage
from turnlog.events.assistant import AssistantMessage
from turnlog.events.block import BlockEnd, BlockStart
from turnlog.events.process import SessionMember
from turnlog.events.tool import ToolCall, ToolResult
from turnlog.events.ui import UiMessage

BATCH = 500  # events of one append


def long_session(folder: Path, app: str, count: int, session: str | None = None) -> str:
    """Write a session of `app` with `count` events or a few more; return its id.

    Its turns have a message, a call, a sub-agent and an answer each. All of them have ended: a server would
    continue an open one.
    """
    with ThreadPoolExecutor(1) as pool:  # Playwright has a loop in this thread
        return pool.submit(asyncio.run, _written(folder, app, count, session)).result()


async def _written(folder: Path, app: str, count: int, name: str | None) -> str:
    log = await turnlog.open_log(f"sqlite:///{folder}/log.db")
    session = await log.create(app, name)
    events = [turnlog.event(SessionMember(principal="local", roles=("owner",)), origin="system")]
    turn = 0
    while len(events) < count:
        events += _turn(turn)
        turn += 1
    for start in range(0, len(events), BATCH):
        await log.append(session, events[start : start + BATCH])
    await log.close()
    return session


def _turn(number: int) -> list[Event]:
    """One turn, all ended; 24 events."""
    trace = f"tr_{number}"
    lead = Scope(trace_id=trace, agent_id=f"agt_{number}", agent_name="Lead", depth=0)
    aide = Scope(trace_id=trace, agent_id=f"agt_{number}_aide", agent_name="Aide", depth=1)
    look, ask = f"call_{number}_look", f"call_{number}_aide"
    usage = AgentUsage(model="scripted", usage=Usage(input_tokens=900, output_tokens=60))

    def say(block: str, text: str, scope: Scope) -> list[Event]:
        return [
            _event(BlockStart(block_id=block, kind="text"), "model", scope),
            _event(BlockEnd(block_id=block, status="complete"), "model", scope),
            _event(AssistantMessage(text=text, block_id=block), "model", scope),
        ]

    def call(key: str, tool: str, args: dict[str, str]) -> list[Event]:
        block = f"b_{key}"
        return [
            _event(BlockStart(block_id=block, kind="tool_call", call_id=key, tool=tool), "model", lead),
            _event(BlockEnd(block_id=block, status="complete"), "model", lead),
            _event(ToolCall(call_id=key, tool=tool, args=args, block_id=block), "model", lead),
        ]

    def result(key: str, tool: str, text: str) -> Event:
        return _event(ToolResult(call_id=key, tool=tool, ok=True, result=text, error=None), "tool", lead)

    return [
        _event(UiMessage(text=f"Question {number}: what about *this*?"), "ui", Scope(trace_id=trace)),
        _event(AgentStart(name="Lead", via="prompt"), "system", lead),
        *say(f"b_{number}_1", f"Let me see. **Turn {number}** needs a look and an aide.", lead),
        *call(look, "look", {"at": f"thing {number}"}),
        *call(ask, "aide", {"prompt": f"thing {number}"}),
        _event(usage, "system", lead),
        result(look, "look", f"It is {number % 7}."),
        _event(AgentStart(name="Aide", via="call", parent_id=lead.agent_id, call_id=ask), "system", aide),
        *say(f"b_{number}_2", f"The aide has looked at thing {number}: `{number * 7}`.", aide),
        _event(usage, "system", aide),
        _event(AgentEnd(stop_reason="end_turn", steps=1), "system", aide),
        result(ask, "aide", f"It is {number * 7}."),
        *say(f"b_{number}_3", f"- the thing is {number % 7}\n- the aide says {number * 7}\n", lead),
        _event(usage, "system", lead),
        _event(AgentEnd(stop_reason="end_turn", steps=2), "system", lead),
    ]


def _event(payload: Payload, origin: Origin, scope: Scope) -> Event:
    return turnlog.event(payload, origin=origin, scope=scope)
