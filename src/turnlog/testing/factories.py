"""Events for the contracts: legal ones, with ids made from names."""

from typing import get_args

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

TURN = Scope(trace_id="tr_1", agent_id="agt_1", agent_name="Ada", depth=1)


def event(payload: Payload, name: str, scope: Scope = TURN) -> Event:
    """An event from whoever may emit it; its id is made from a name."""
    kind = CATALOG.kind(CATALOG.name(type(payload)))
    origin: Origin = next(origin for origin in get_args(Origin) if kind.admits(payload, origin))
    return CATALOG.event(payload, id=f"evt_{name}", origin=origin, scope=scope)


def note(name: str, text: str = "", scope: Scope = TURN) -> Event:
    """A durable event."""
    return event(AssistantMessage(text=text or name), name, scope)


def notes(*names: object) -> list[Event]:
    """Some durable events."""
    return [note(str(name)) for name in names]


def began(key: str, scope: Scope = TURN) -> Event:
    """A block begins."""
    return event(BlockStart(block_id=key, kind="text"), f"block-{key}-start", scope)


def delta(key: str, number: int = 0, scope: Scope = TURN) -> Event:
    """A live event of a block."""
    return event(BlockDelta(block_id=key, text=f"{number} "), f"block-{key}-{number}", scope)


def over(key: str, scope: Scope = TURN) -> Event:
    """A block is complete."""
    return event(BlockEnd(block_id=key, status="complete"), f"block-{key}-end", scope)


def aborted(key: str) -> Event:
    """A block did not complete."""
    return event(BlockEnd(block_id=key, status="aborted", text="0 "), f"block-{key}-end")


def called(key: str, scope: Scope = TURN) -> Event:
    """A tool is called."""
    return event(ToolCall(call_id=key, tool="t", args={}), f"call-{key}", scope)


def progress(key: str, number: int = 0) -> Event:
    """A live event of a call."""
    return event(ToolProgress(call_id=key, text=f"{number} "), f"call-{key}-{number}")


def answered(key: str, scope: Scope = TURN) -> Event:
    """A call is answered."""
    return event(ToolResult(call_id=key, tool="t", ok=True), f"call-{key}-result", scope)


def agent(number: int, trace: int = 1) -> Scope:
    """The scope of an invocation."""
    return Scope(trace_id=f"tr_{trace}", agent_id=f"agt_{number}", agent_name="Ada", depth=0)


def started(scope: Scope) -> Event:
    """An agent begins."""
    return event(AgentStart(name="Ada", via="prompt"), f"agent-{scope.agent_id}-start", scope)


def ended(scope: Scope) -> Event:
    """An agent ends."""
    return event(AgentEnd(stop_reason="end_turn"), f"agent-{scope.agent_id}-end", scope)


def message(name: str, trace: int = 1) -> Event:
    """A person writes."""
    return event(UiMessage(text=name), name, Scope(trace_id=f"tr_{trace}"))
