"""What people have said and no agent of the process has taken up yet, as the texts that go down to it. Pure.

A fold over the log, in order: a turn is pending from the event that opened it (a message, an action, events
of a page, a command) to the first `agent.start` with its trace. What rules said since the last turn began is
told with the next one.
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

MAX_APP_EVENTS = 100  # of what followed; a model that was told nothing for so long reads the rest elsewhere


class Prompt(NamedTuple):
    """What opens one turn; `speaker` is the agent of the team that it is for."""

    scope: Scope
    texts: tuple[str, ...]
    speaker: str | None = None


class PromptQueue:
    """The turns that are pending, in the order of the log."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._roster = Roster()
        self._app_event_texts: deque[str] = deque(maxlen=MAX_APP_EVENTS)
        self.pending: dict[str, Prompt] = {}

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        """Take one durable event into account, after the tree has."""
        self._roster.apply(envelope, payload)
        if isinstance(payload, AgentStart):
            self.pending.pop(envelope.trace_id or "", None)
            if not envelope.depth:
                self._app_event_texts.clear()
        elif envelope.origin == "app" and is_app_event_for_model(payload, envelope):
            self._app_event_texts.append(describe_app_event(envelope, payload))
        elif (letter := self.build_prompt(envelope, payload)) and not self._tree.is_running(
            envelope.trace_id or ""
        ):
            self._enqueue(envelope.trace_id or "", letter)

    def _enqueue(self, trace: str, prompt: Prompt) -> None:
        before = self.pending.get(trace)
        texts = (*before.texts, *prompt.texts) if before else prompt.texts
        self.pending[trace] = prompt._replace(texts=texts)

    def build_prompt(self, envelope: Envelope, payload: Payload | UnknownPayload) -> Prompt | None:
        """What an event says to the process, if it is a part of a turn and says anything."""
        if not envelope.trace_id or envelope.origin != "ui" or isinstance(payload, UnknownPayload):
            return None
        scope = Scope(trace_id=envelope.trace_id, channel=envelope.channel)
        if isinstance(payload, UiMessage):
            named, text = parse_route(payload.text)
            target = payload.target or named
            return Prompt(scope, (add_route_prefix(target, text),), target)
        if isinstance(payload, UiCommand):
            words = COMMAND_PROMPTS.get(type(payload.command))
            return Prompt(scope, (words(self, scope, payload.command),)) if words else None
        answers = isinstance(payload, UiAction) and payload.call_id is not None
        if answers or not (isinstance(payload, UiAction) or is_page_event(envelope, payload)):
            return None
        return Prompt(scope, (describe_input(envelope.type, payload),))

    def render(self, prompt: Prompt) -> str:
        """The whole text of a letter that goes down now."""
        return "\n".join((*self._app_event_texts, *prompt.texts))

    def find_soul(self, scope: Scope, agent: WakeAgent) -> str:
        """What is known of somebody's soul."""
        team = self._roster.teams.get(scope.channel or NO_CHANNEL)
        member = team.seats.get(agent.seat) if team else None
        return member.soul if member is not None and member.name == agent.name else ""


def command_opens_turn(command: Any) -> bool:
    """Whether a command says something to the process, and so opens a turn."""
    return type(command) in COMMAND_PROMPTS


def add_route_prefix(target: str | None, text: str) -> str:
    """A message for somebody of the team."""
    return f"[ROUTE TO AGENT: {target}] {text}" if target else text


def _summon(_: PromptQueue, __: Scope, ___: Summon) -> str:
    return "[SUMMON AGENTS]"


def _wake(outbox: PromptQueue, scope: Scope, command: Wake) -> str:
    agents = "".join(_agent_payload(agent, outbox.find_soul(scope, agent)) for agent in command.agents)
    return f"[WAKE AGENTS]\n<agent-payloads>{agents}</agent-payloads>"


def _agent_payload(agent: WakeAgent, soul: str) -> str:
    known = {
        "name": agent.name,
        "color": agent.color,
        "colorName": agent.color_name,
        "position": str(agent.seat),
        "type": "wake" if agent.has_soul else "birth",
    }
    fields = "".join(f" {name}={quoteattr(value)}" for name, value in known.items())
    return f"<agent{fields}>" + (f"<soul>{escape(soul)}</soul>" if soul else "") + "</agent>"


def _offer(_: PromptQueue, __: Scope, command: OfferWork) -> str:
    return "\n".join([f"[OFFER WORK TO AGENT: {command.agent}]", *(f"- {job}" for job in command.jobs)])


def _help(_: PromptQueue, __: Scope, command: JobHelp) -> str:
    return f"[JOB HELP] {msgspec.json.encode(command.form).decode()}"


COMMAND_PROMPTS: dict[type, Callable[[PromptQueue, Scope, Any], str]] = {
    Summon: _summon,
    Wake: _wake,
    OfferWork: _offer,
    JobHelp: _help,
}  # all others are for the host
