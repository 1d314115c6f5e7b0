"""Events for the fault tests: whole turns made from a name, so the same name gives the same events again."""

from turnlog.events import (
    CATALOG,
    AgentEnd,
    AgentStart,
    AssistantMessage,
    BlockDelta,
    BlockEnd,
    BlockStart,
    Event,
    Origin,
    Payload,
    Scope,
    ToolCall,
    ToolProgress,
    ToolResult,
    UiMessage,
)

WORDS = "Grüße, “quoted” \\ and a line\nthat ends"


def turn(name: str, deltas: int = 4, words: str = WORDS) -> list[Event]:
    """A turn: a message, an agent, a block with its deltas and its twin, a call with its progress, an end."""
    block, call = f"blk_{name}", f"call_{name}"
    said: list[tuple[Origin, Payload]] = [
        ("ui", UiMessage(text=f"What is {name}?")),
        ("system", AgentStart(name="Guide", via="prompt")),
        ("model", BlockStart(block_id=block, kind="text")),
        *[("model", BlockDelta(block_id=block, text=f"{words} {n}")) for n in range(deltas)],
        ("model", BlockEnd(block_id=block, status="complete")),
        ("model", AssistantMessage(text=words * deltas, block_id=block)),
        ("model", ToolCall(call_id=call, tool="look", args={"name": name})),
        ("tool", ToolProgress(call_id=call, text="half of it")),
        ("tool", ToolResult(call_id=call, tool="look", ok=True, result=name)),
        ("system", AgentEnd(stop_reason="end_turn", steps=1)),
    ]
    scope = Scope(trace_id=f"tr_{name}", agent_id=f"agt_{name}", agent_name="Guide", depth=0)
    return [
        CATALOG.build_event(payload, id=f"evt_{name}_{number}", origin=origin, scope=scope)
        for number, (origin, payload) in enumerate(said)
    ]
