"""The events of a session as a member of a role sees them (protocol section 8.9).

Input: events in log order, of channels that the member sees. Output: each event as it is sent, or None. A
view that hides internals passes on what `PROJECTIONS` lists, with the fields that the functions there choose,
and those events of the application that the view names. A new type is hidden until the table has it.

Some events do not say what they are about: the delta of a block has no kind, a result no executor. So a
reader keeps the text blocks and calls that are open, and is primed with `PRIMING_TYPES` when it begins inside
a turn. What belongs to an agent is forgotten when the agent ends.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec import structs

from turnlog.events import (
    AgentEnd,
    AgentHandoff,
    AgentStart,
    ApprovalDecision,
    ApprovalRequest,
    AssistantFiles,
    AssistantMessage,
    AssistantView,
    BlockDelta,
    BlockEnd,
    BlockRetract,
    BlockStart,
    Envelope,
    Payload,
    SessionClose,
    SessionError,
    SessionMember,
    SessionTitle,
    ToolAwait,
    ToolCall,
    ToolResult,
    UiAction,
    UiCommand,
    UiMessage,
    UnknownPayload,
)
from turnlog.events.tool import ErrorInfo
from turnlog.events.ui import Stop
from turnlog.state.descriptions import strip_descriptions

HIDDEN_TOOL = "tool"  # the name of every call that the page does not answer
# What a reader must know of a turn that began before its cursor.
PRIMING_TYPES = (
    BlockStart.TYPE,
    BlockEnd.TYPE,
    ToolCall.TYPE,
    ToolAwait.TYPE,
    ToolResult.TYPE,
    ApprovalRequest.TYPE,
    AgentStart.TYPE,
    AgentEnd.TYPE,
)


class EventView(NamedTuple):
    """What a member sees. `app_types` are the application's events; None means all of them.

    `roles` are the member's: a question for other roles is not shown. `hidden_tools` are the tools of the
    page that members with other roles answer.
    """

    shows_internals: bool = True
    app_types: frozenset[str] | None = None
    roles: frozenset[str] = frozenset()
    hidden_tools: frozenset[str] = frozenset()

    @property
    def shows_all(self) -> bool:
        return self.shows_internals and self.app_types is None

    def shows_app_type(self, type: str) -> bool:
        return self.app_types is None or type in self.app_types

    def is_asked(self, roles: tuple[str, ...]) -> bool:
        """Return whether a question for these roles is for this member; no roles mean every member."""
        return not roles or not self.roles.isdisjoint(roles)


@dataclass(slots=True)
class TrackedCall:
    """An open call. `is_asked`: its approval, or its answer, was requested from the reader."""

    args: dict[str, Any]
    is_page_call: bool
    is_asked: bool = False


class VisibleEvents:
    """The events that one reader sees. `project` must get every event that the reader's channels have."""

    def __init__(self, view: EventView) -> None:
        self._view = view
        self._texts: set[tuple[str | None, str]] = set()  # open blocks by agent and id
        self._calls: dict[tuple[str | None, str], TrackedCall] = {}  # open calls by agent and id

    def project(self, envelope: Envelope, payload: Payload | UnknownPayload) -> Payload | None:
        """Return the payload that the reader gets; None if the event is hidden."""
        if isinstance(payload, UnknownPayload):
            return None
        if not type(payload).TYPE:
            return payload if self._view.shows_app_type(envelope.type) else None
        if self._view.shows_internals:
            return payload
        project = PROJECTIONS.get(type(payload))
        return None if project is None else project(self, envelope, payload)

    # people

    def project_message(self, envelope: Envelope, message: UiMessage) -> Payload:
        return structs.replace(message, tools=(), traceparent=None)

    def project_command(self, envelope: Envelope, command: UiCommand) -> Payload | None:
        return command if isinstance(command.command, Stop) else None

    def project_action(self, envelope: Envelope, action: UiAction) -> Payload | None:
        """Show an action on a view, and the answer to a question that the reader got."""
        if action.call_id is None:
            return action
        call = self._calls.get((envelope.agent_id, action.call_id))
        return action if call is not None and call.is_asked else None

    def project_member(self, envelope: Envelope, member: SessionMember) -> Payload:
        return structs.replace(member, invite_id=None)

    def project_error(self, envelope: Envelope, error: SessionError) -> Payload:
        return structs.replace(error, provider_message=None)

    def show(self, envelope: Envelope, payload: Payload) -> Payload:
        return payload

    # agents

    def project_agent_start(self, envelope: Envelope, start: AgentStart) -> Payload:
        """Show who works, and the message that it answers; not what another agent wants of it."""
        is_message = start.via == "prompt" and not envelope.depth
        return AgentStart(
            name=start.name,
            via=start.via,
            parent_id=start.parent_id,
            call_id=start.call_id,
            prompt=strip_descriptions(start.prompt) if is_message and start.prompt else None,
            content=start.content if is_message else (),
            resumes=start.resumes,
            conversation_id=start.conversation_id,
        )

    def project_agent_end(self, envelope: Envelope, end: AgentEnd) -> Payload:
        self._texts = {key for key in self._texts if key[0] != envelope.agent_id}
        self._calls = {key: call for key, call in self._calls.items() if key[0] != envelope.agent_id}
        return AgentEnd(stop_reason=end.stop_reason, reason=end.reason)

    # What a called agent writes is the result of a call: its caller's answer has what people should read.

    def show_of_root(self, envelope: Envelope, payload: Payload) -> Payload | None:
        return None if envelope.depth else payload

    def project_block_start(self, envelope: Envelope, start: BlockStart) -> Payload | None:
        if envelope.depth or start.kind != "text":
            return None
        self._texts.add((envelope.agent_id, start.block_id))
        return start

    def project_block_delta(self, envelope: Envelope, delta: BlockDelta) -> Payload | None:
        return delta if (envelope.agent_id, delta.block_id) in self._texts else None

    def project_block_end(self, envelope: Envelope, end: BlockEnd) -> Payload | None:
        key = (envelope.agent_id, end.block_id)
        if key not in self._texts:
            return None
        self._texts.remove(key)
        return end

    # calls

    def project_call(self, envelope: Envelope, call: ToolCall) -> Payload:
        """Show a call that the reader's page may answer. Of any other a reader learns only that it runs."""
        is_page_call = call.executor == "frontend" and call.tool not in self._view.hidden_tools
        self._calls[envelope.agent_id, call.call_id] = TrackedCall(call.args, is_page_call)
        if is_page_call:
            return structs.replace(call, extra=None, incomplete=None, idempotency_key=None)
        return ToolCall(call_id=call.call_id, tool=HIDDEN_TOOL, args={}, executor=call.executor)

    def project_await(self, envelope: Envelope, question: ToolAwait) -> Payload | None:
        calls = tuple([call for call in question.calls if self._view.is_asked(call.roles)])
        for call in calls:
            key = (envelope.agent_id, call.call_id)
            self._calls.setdefault(key, TrackedCall(call.args, is_page_call=False)).is_asked = True
        return ToolAwait(calls=calls) if calls else None

    def project_approval(self, envelope: Envelope, request: ApprovalRequest) -> Payload | None:
        """Show a question to those who may decide it, with the arguments, because the call has none."""
        if not self._view.is_asked(request.roles):
            return None
        call = self._calls.get((envelope.agent_id, request.call_id))
        if call is None:
            return request
        call.is_asked = True
        return structs.replace(request, args=call.args)

    def project_decision(self, envelope: Envelope, decision: ApprovalDecision) -> Payload | None:
        call = self._calls.get((envelope.agent_id, decision.call_id))
        return decision if call is not None and call.is_asked else None

    def project_result(self, envelope: Envelope, result: ToolResult) -> Payload:
        call = self._calls.pop((envelope.agent_id, result.call_id), None)
        if call is not None and call.is_page_call:
            return structs.replace(result, extra=None)
        error = None if result.error is None else ErrorInfo(code=result.error.code, message=result.error.code)
        return ToolResult(call_id=result.call_id, tool=HIDDEN_TOOL, ok=result.ok, result=None, error=error)


Projection = Callable[[VisibleEvents, Envelope, Any], Payload | None]

PROJECTIONS: dict[type[Payload], Projection] = {
    SessionMember: VisibleEvents.project_member,
    SessionTitle: VisibleEvents.show,
    SessionClose: VisibleEvents.show,
    SessionError: VisibleEvents.project_error,
    UiMessage: VisibleEvents.project_message,
    UiAction: VisibleEvents.project_action,
    UiCommand: VisibleEvents.project_command,
    AgentStart: VisibleEvents.project_agent_start,
    AgentEnd: VisibleEvents.project_agent_end,
    AgentHandoff: VisibleEvents.show_of_root,
    BlockStart: VisibleEvents.project_block_start,
    BlockDelta: VisibleEvents.project_block_delta,
    BlockEnd: VisibleEvents.project_block_end,
    BlockRetract: VisibleEvents.show_of_root,
    AssistantMessage: VisibleEvents.show_of_root,
    AssistantFiles: VisibleEvents.show_of_root,
    AssistantView: VisibleEvents.show,
    ToolCall: VisibleEvents.project_call,
    ToolAwait: VisibleEvents.project_await,
    ToolResult: VisibleEvents.project_result,
    ApprovalRequest: VisibleEvents.project_approval,
    ApprovalDecision: VisibleEvents.project_decision,
}
