"""The prompts that the process has not answered yet: a fold over the log. Pure.

A turn is pending from the event that opened it (a message, an action, a client's event, a command) to the
first `agent.start` with its trace. Events that rules emitted since the last turn began are added to the next
prompt.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple
from xml.sax.saxutils import escape, quoteattr

import msgspec

from turnlog.events import (
    AgentStart,
    Envelope,
    Payload,
    Scope,
    UiAction,
    UiCommand,
    UiMessage,
    UnknownPayload,
)
from turnlog.events.content import PromptDocument, PromptImage, PromptText, label_files
from turnlog.events.ui import JobHelp, OfferWork, Summon, Wake, WakeAgent
from turnlog.state.descriptions import (
    describe_app_event,
    describe_input,
    is_app_event_for_model,
    is_page_event,
)
from turnlog.state.tree import Tree
from turnlog.team.markers import parse_route
from turnlog.team.roster import NO_CHANNEL, Roster

MAX_APP_EVENTS = 100  # in one prompt; older ones are dropped


class Prompt(NamedTuple):
    """The texts that open one turn; `speaker` is the team member that it is for. `files` go with them."""

    scope: Scope
    texts: tuple[str, ...]
    speaker: str | None = None
    conversation_id: str | None = None
    files: tuple[PromptImage | PromptDocument, ...] = ()

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


class PromptQueue:
    """The pending turns by trace id, in the order of the log."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._roster = Roster()
        self._app_event_texts: deque[str] = deque(maxlen=MAX_APP_EVENTS)
        self.pending: dict[str, Prompt] = {}

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        """Fold one durable event, after the tree has."""
        self._roster.apply(envelope, payload)
        if isinstance(payload, AgentStart):
            self.pending.pop(envelope.trace_id or "", None)
            if not envelope.depth:
                self._app_event_texts.clear()
            return
        if envelope.origin == "app" and is_app_event_for_model(payload, envelope):
            self._app_event_texts.append(describe_app_event(envelope, payload))
            return
        prompt = self.build_prompt(envelope, payload)
        trace = envelope.trace_id or ""
        if prompt is not None and not self._tree.is_running(trace):
            self._enqueue(trace, prompt)

    def _enqueue(self, trace: str, prompt: Prompt) -> None:
        earlier = self.pending.get(trace)
        texts = (*earlier.texts, *prompt.texts) if earlier else prompt.texts
        files = (*earlier.files, *prompt.files) if earlier else prompt.files
        self.pending[trace] = prompt._replace(texts=texts, files=files)

    def build_prompt(self, envelope: Envelope, payload: Payload | UnknownPayload) -> Prompt | None:
        """Return the prompt of an event; None if it opens no turn or is not for the process."""
        if not envelope.trace_id or envelope.origin != "ui" or isinstance(payload, UnknownPayload):
            return None
        scope = Scope(trace_id=envelope.trace_id, channel=envelope.channel)
        if isinstance(payload, UiMessage):
            routed_to, text = parse_route(payload.text)
            target = payload.target or routed_to
            route = self._route_name(scope, target, payload.target_seat)
            texts = (add_route_prefix(route, label_files(text, payload.content)),)
            files = tuple([part for part in payload.content if not isinstance(part, PromptText)])
            return Prompt(scope, texts, target, payload.conversation_id, files)
        if isinstance(payload, UiCommand):
            build_text = COMMAND_PROMPTS.get(type(payload.command))
            return Prompt(scope, (build_text(self, scope, payload.command),)) if build_text else None
        if isinstance(payload, UiAction):
            if payload.call_id is not None:
                return None  # it answers a call
        elif not is_page_event(envelope, payload):
            return None
        return Prompt(scope, (describe_input(envelope.type, payload),))

    def _route_name(self, scope: Scope, target: str | None, seat: int | None) -> str | None:
        """Return the target, with its seat if the team has another agent of that name."""
        team = self._roster.teams.get(scope.channel or NO_CHANNEL)
        if team is None or seat is None:
            return target
        is_unique = all(member.name != target for place, member in team.seats.items() if place != seat)
        return target if is_unique else f"{target} (gridPosition {seat})"

    def render(self, prompt: Prompt) -> str:
        return "\n".join((*self._app_event_texts, *prompt.texts))

    def find_soul(self, scope: Scope, agent: WakeAgent) -> str:
        team = self._roster.teams.get(scope.channel or NO_CHANNEL)
        member = team.seats.get(agent.seat) if team else None
        return member.soul if member is not None and member.name == agent.name else ""


def command_opens_turn(command: Any) -> bool:
    return type(command) in COMMAND_PROMPTS


def add_route_prefix(target: str | None, text: str) -> str:
    return f"[ROUTE TO AGENT: {target}] {text}" if target else text


def _summon(_: PromptQueue, __: Scope, ___: Summon) -> str:
    return "[SUMMON AGENTS]"


def _wake(prompts: PromptQueue, scope: Scope, command: Wake) -> str:
    agents = "".join(_agent_payload(agent, prompts.find_soul(scope, agent)) for agent in command.agents)
    return f"[WAKE AGENTS]\n<agent-payloads>{agents}</agent-payloads>"


def _agent_payload(agent: WakeAgent, soul: str) -> str:
    attributes = {
        "name": agent.name,
        "color": agent.color,
        "colorName": agent.color_name,
        "position": str(agent.seat),
        "type": "wake" if agent.has_soul else "birth",
    }
    attribute_text = "".join(f" {name}={quoteattr(value)}" for name, value in attributes.items())
    soul_text = f"<soul>{escape(soul)}</soul>" if soul else ""
    return f"<agent{attribute_text}>{soul_text}</agent>"


def _offer(_: PromptQueue, __: Scope, command: OfferWork) -> str:
    jobs = [f"- {job}" for job in command.jobs]
    return "\n".join([f"[OFFER WORK TO AGENT: {command.agent}]", *jobs])


def _help(_: PromptQueue, __: Scope, command: JobHelp) -> str:
    return f"[JOB HELP] {msgspec.json.encode(command.form).decode()}"


COMMAND_PROMPTS: dict[type, Callable[[PromptQueue, Scope, Any], str]] = {
    Summon: _summon,
    Wake: _wake,
    OfferWork: _offer,
    JobHelp: _help,
}  # all others are for the runtime
