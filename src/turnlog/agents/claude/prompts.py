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

from turnlog.events import AgentStart, Envelope, Payload, Scope, UiAction, UiCommand, UiMessage, Unknown
from turnlog.events.ui import JobHelp, OfferWork, Summon, Wake, WakeAgent
from turnlog.parse.inline.markers import route
from turnlog.state.descriptions import is_direct, is_news, narrated, news
from turnlog.state.roster import EVERYBODY, Roster
from turnlog.state.tree import Tree

NEWS = 100  # of what followed; a model that was told nothing for so long reads the rest elsewhere


class Letter(NamedTuple):
    """What opens one turn; `speaker` is the agent of the team that it is for."""

    scope: Scope
    texts: tuple[str, ...]
    speaker: str | None = None


class Outbox:
    """The turns that are pending, in the order of the log."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._roster = Roster()
        self._news: deque[str] = deque(maxlen=NEWS)
        self.pending: dict[str, Letter] = {}

    def apply(self, envelope: Envelope, payload: Payload | Unknown) -> None:
        """Take one durable event into account, after the tree has."""
        self._roster.apply(envelope, payload)
        if isinstance(payload, AgentStart):
            self.pending.pop(envelope.trace_id or "", None)
            if not envelope.depth:
                self._news.clear()
        elif envelope.origin == "app" and is_news(payload, envelope):
            self._news.append(news(envelope, payload))
        elif (letter := self.letter(envelope, payload)) and not self._tree.runs(envelope.trace_id or ""):
            self._add(envelope.trace_id or "", letter)

    def _add(self, trace: str, letter: Letter) -> None:
        before = self.pending.get(trace)
        texts = (*before.texts, *letter.texts) if before else letter.texts
        self.pending[trace] = letter._replace(texts=texts)

    def letter(self, envelope: Envelope, payload: Payload | Unknown) -> Letter | None:
        """What an event says to the process, if it is a part of a turn and says anything."""
        if not envelope.trace_id or envelope.origin != "ui" or isinstance(payload, Unknown):
            return None
        scope = Scope(trace_id=envelope.trace_id, channel=envelope.channel)
        if isinstance(payload, UiMessage):
            named, text = route(payload.text)
            target = payload.target or named
            return Letter(scope, (addressed(target, text),), target)
        if isinstance(payload, UiCommand):
            words = COMMANDS.get(type(payload.command))
            return Letter(scope, (words(self, scope, payload.command),)) if words else None
        answers = isinstance(payload, UiAction) and payload.call_id is not None
        if answers or not (isinstance(payload, UiAction) or is_direct(envelope, payload)):
            return None
        return Letter(scope, (narrated(envelope.type, payload),))

    def text(self, letter: Letter) -> str:
        """The whole text of a letter that goes down now."""
        return "\n".join((*self._news, *letter.texts))

    def soul(self, scope: Scope, agent: WakeAgent) -> str:
        """What is known of somebody's soul."""
        team = self._roster.teams.get(scope.channel or EVERYBODY)
        member = team.seats.get(agent.seat) if team else None
        return member.soul if member is not None and member.name == agent.name else ""


def speaks(command: Any) -> bool:
    """Whether a command says something to the process, and so opens a turn."""
    return type(command) in COMMANDS


def addressed(target: str | None, text: str) -> str:
    """A message for somebody of the team."""
    return f"[ROUTE TO AGENT: {target}] {text}" if target else text


def _summon(_: Outbox, __: Scope, ___: Summon) -> str:
    return "[SUMMON AGENTS]"


def _wake(outbox: Outbox, scope: Scope, command: Wake) -> str:
    agents = "".join(_payload(agent, outbox.soul(scope, agent)) for agent in command.agents)
    return f"[WAKE AGENTS]\n<agent-payloads>{agents}</agent-payloads>"


def _payload(agent: WakeAgent, soul: str) -> str:
    known = {
        "name": agent.name,
        "color": agent.color,
        "colorName": agent.color_name,
        "position": str(agent.seat),
        "type": "wake" if agent.has_soul else "birth",
    }
    fields = "".join(f" {name}={quoteattr(value)}" for name, value in known.items())
    return f"<agent{fields}>" + (f"<soul>{escape(soul)}</soul>" if soul else "") + "</agent>"


def _offer(_: Outbox, __: Scope, command: OfferWork) -> str:
    return "\n".join([f"[OFFER WORK TO AGENT: {command.agent}]", *(f"- {job}" for job in command.jobs)])


def _help(_: Outbox, __: Scope, command: JobHelp) -> str:
    return f"[JOB HELP] {msgspec.json.encode(command.form).decode()}"


COMMANDS: dict[type, Callable[[Outbox, Scope, Any], str]] = {
    Summon: _summon,
    Wake: _wake,
    OfferWork: _offer,
    JobHelp: _help,
}  # all others are for the host
