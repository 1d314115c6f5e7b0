"""Valid events for the contracts, with ids made from names."""

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

TURN_SCOPE = Scope(trace_id="tr_1", agent_id="agt_1", agent_name="Ada", depth=1)


def make_event(payload: Payload, name: str, scope: Scope = TURN_SCOPE) -> Event:
    kind = CATALOG.get_event_type(CATALOG.get_type_name(type(payload)))
    origin: Origin = next(origin for origin in get_args(Origin) if kind.allows_origin(payload, origin))
    return CATALOG.build_event(payload, id=f"evt_{name}", origin=origin, scope=scope)


def durable_event(name: str, text: str = "", scope: Scope = TURN_SCOPE) -> Event:
    return make_event(AssistantMessage(text=text or name), name, scope)


def durable_events(*names: object) -> list[Event]:
    return [durable_event(str(name)) for name in names]


def block_start_event(key: str, scope: Scope = TURN_SCOPE) -> Event:
    return make_event(BlockStart(block_id=key, kind="text"), f"block-{key}-start", scope)


def block_delta_event(key: str, number: int = 0, scope: Scope = TURN_SCOPE) -> Event:
    return make_event(BlockDelta(block_id=key, text=f"{number} "), f"block-{key}-{number}", scope)


def block_end_event(key: str, scope: Scope = TURN_SCOPE) -> Event:
    return make_event(BlockEnd(block_id=key, status="complete"), f"block-{key}-end", scope)


def block_abort_event(key: str) -> Event:
    return make_event(BlockEnd(block_id=key, status="aborted", text="0 "), f"block-{key}-end")


def tool_call_event(key: str, scope: Scope = TURN_SCOPE) -> Event:
    return make_event(ToolCall(call_id=key, tool="t", args={}), f"call-{key}", scope)


def tool_progress_event(key: str, number: int = 0) -> Event:
    return make_event(ToolProgress(call_id=key, text=f"{number} "), f"call-{key}-{number}")


def tool_result_event(key: str, scope: Scope = TURN_SCOPE) -> Event:
    return make_event(ToolResult(call_id=key, tool="t", ok=True), f"call-{key}-result", scope)


def agent_scope(number: int, trace: int = 1) -> Scope:
    return Scope(trace_id=f"tr_{trace}", agent_id=f"agt_{number}", agent_name="Ada", depth=0)


def agent_start_event(scope: Scope) -> Event:
    return make_event(AgentStart(name="Ada", via="prompt"), f"agent-{scope.agent_id}-start", scope)


def agent_end_event(scope: Scope) -> Event:
    return make_event(AgentEnd(stop_reason="end_turn"), f"agent-{scope.agent_id}-end", scope)


def user_message_event(name: str, trace: int = 1) -> Event:
    return make_event(UiMessage(text=name), name, Scope(trace_id=f"tr_{trace}"))
