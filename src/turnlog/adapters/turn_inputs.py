"""What people wrote and did, and what they answered, since a runner ran last: a fold over the log. Pure.

The texts of a turn are its message, its actions and the events that its page posted. Events that rules
emitted are added to the next turn. A turn's texts are consumed by its `agent.start`, and those that arrive
while it waits by the next checkpoint. Answers are kept until then, too.
"""

from collections import deque
from typing import NamedTuple

from turnlog.adapters.runner import Answer, Approved, CallKey, Denied, Returned
from turnlog.agents.runtime.turn_loop import find_answered_call
from turnlog.events import (
    AgentCheckpoint,
    AgentEnd,
    AgentStart,
    ApprovalDecision,
    Envelope,
    Payload,
    ToolCall,
    ToolResult,
    UiAction,
    UiMessage,
    UnknownPayload,
)
from turnlog.events.content import PromptPart
from turnlog.parse.foreign.common import render_text
from turnlog.parse.open_agents import put_bounded
from turnlog.state.descriptions import (
    describe_app_event,
    describe_input,
    is_app_event_for_model,
    is_page_event,
)
from turnlog.state.tree import Tree

MAX_ENDED_CALLS = 1024  # as many as an agent can have open
MAX_APP_EVENTS = 100  # in one message; older ones are dropped
DENIED_MESSAGE = "a person said no"
EXPIRED_MESSAGE = "no person answered in time"


class AnsweredCall(NamedTuple):
    """Whether an event is the first answer to a call that waited, before the event was folded."""

    is_first_answer: bool = False


class TurnInputs:
    """Texts by turn, answers by call, and the calls of open agents that have a result."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._texts: dict[str, list[str]] = {}
        self._files: dict[str, list[PromptPart]] = {}  # by turn, like the texts
        self._app_event_texts: deque[str] = deque(maxlen=MAX_APP_EVENTS)
        self._answers: dict[str, dict[CallKey, Answer]] = {}  # by turn
        self.answered_calls: dict[str, dict[str, None]] = {}  # by open agent, in the order of the answers
        self._ended_calls: dict[str, dict[str, str]] = {}  # by channel, since a turn ended well

    def inspect(self, envelope: Envelope, payload: Payload | UnknownPayload) -> AnsweredCall:
        call = find_answered_call(self._tree, envelope, payload)
        return AnsweredCall(call is not None and call.is_waiting)

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload, context: AnsweredCall) -> None:
        trace = envelope.trace_id or ""
        if isinstance(payload, AgentStart):
            if not envelope.depth:
                self._consume(trace)
                self._app_event_texts.clear()
        elif isinstance(payload, AgentCheckpoint):
            self._consume(trace)
        elif isinstance(payload, AgentEnd):
            self.answered_calls.pop(envelope.agent_id or "", None)
            if not envelope.depth:
                self._consume(trace)
                if payload.stop_reason == "end_turn":
                    self._ended_calls.pop(envelope.channel or "", None)
        else:
            self._apply_input(envelope, payload, context)

    def _consume(self, trace: str) -> None:
        self._texts.pop(trace, None)
        self._files.pop(trace, None)
        self._answers.pop(trace, None)

    def _apply_input(
        self, envelope: Envelope, payload: Payload | UnknownPayload, context: AnsweredCall
    ) -> None:
        agent_id = envelope.agent_id or ""
        if isinstance(payload, ToolResult) and agent_id in self._tree.open:
            self.answered_calls.setdefault(agent_id, {})[payload.call_id] = None
            ended = self._ended_calls.setdefault(envelope.channel or "", {})
            put_bounded(ended, payload.call_id, describe_ended_call(payload), MAX_ENDED_CALLS)
        if isinstance(payload, ToolCall):
            self._forget_answer(envelope, payload.call_id)
        elif isinstance(payload, ToolResult | ApprovalDecision):
            if context.is_first_answer:
                answers = self._answers.setdefault(envelope.trace_id or "", {})
                answers[agent_id, payload.call_id] = to_answer(payload)
        elif envelope.origin == "app" and is_app_event_for_model(payload, envelope):
            self._app_event_texts.append(describe_app_event(envelope, payload))
        elif envelope.origin == "ui" and isinstance(payload, Payload) and is_turn_input(envelope, payload):
            trace = envelope.trace_id or ""
            self._texts.setdefault(trace, []).append(describe_input(envelope.type, payload))
            if isinstance(payload, UiMessage) and payload.content:
                self._files.setdefault(trace, []).extend(payload.content)

    def _forget_answer(self, envelope: Envelope, call_id: str) -> None:
        """Drop the answer to an earlier call: models use ids again, and an approval is for one call."""
        agent_id = envelope.agent_id or ""
        self._answers.get(envelope.trace_id or "", {}).pop((agent_id, call_id), None)
        self.answered_calls.get(agent_id, {}).pop(call_id, None)

    def take_message(self, trace: str) -> str | None:
        """Return what people wrote and did in a turn since its runner ran last, once; None if nothing."""
        texts = self._texts.pop(trace, None)
        if texts is None:
            return None
        return "\n".join([*self._app_event_texts, *texts])

    def has_message(self, trace: str) -> bool:
        """Return whether people wrote or did something in a turn since its runner ran last."""
        return trace in self._texts

    def take_files(self, trace: str) -> list[PromptPart]:
        """Return the parts of the messages that `take_message` returns, once."""
        return self._files.pop(trace, [])

    def ended_calls_of(self, channel: str | None) -> dict[str, str]:
        """Return what became of the calls of a channel since its last turn that ended well, by call id.

        A state that was saved when a turn failed or was stopped may lack results that the log has.
        """
        return dict(self._ended_calls.get(channel or "", {}))

    def answers_of(self, trace: str) -> dict[CallKey, Answer]:
        return dict(self._answers.get(trace, {}))


def is_turn_input(envelope: Envelope, payload: Payload) -> bool:
    """Return whether an event of a page is for the agent, and answers no call."""
    if isinstance(payload, UiMessage):
        return True
    if isinstance(payload, UiAction):
        return payload.call_id is None
    return is_page_event(envelope, payload)


def describe_ended_call(result: ToolResult) -> str:
    """Say for the model what became of a call whose turn did not reach its end."""
    if result.error is not None:
        return result.error.message
    return f"It ran, and returned: {render_text(result.result)}"


def to_answer(payload: ToolResult | ApprovalDecision) -> Answer:
    if isinstance(payload, ApprovalDecision):
        if payload.decision == "approve":
            return Approved()
        is_expired = payload.decision == "expired"
        return Denied(EXPIRED_MESSAGE if is_expired else payload.notes or DENIED_MESSAGE)
    if payload.ok or payload.error is None:
        return Returned(payload.result)
    return Denied(payload.error.message)
