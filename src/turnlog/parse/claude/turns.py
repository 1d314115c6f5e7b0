"""The turns of a Claude CLI process: which message each one answers, and which `result` ends it. Pure.

Every `init` begins a turn, an invocation of the main agent. The UUID of a message comes back with its answer,
but not before it: a turn answers the message that the process has taken up, else the oldest that went down
and is not in the queue of the process. A turn that answers none (the process woke itself up) goes on with
the trace of what is open, or has a new one. Several messages that the process answers together are one
turn's; the traces of the others get an agent that starts and ends, so that none waits for ever. Results may
come late and together: a UUID names their turn, else their number does, else it is the oldest. Limit: 64
turns without a result; with another one the oldest has failed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from turnlog.events import AgentEnd, AgentStart, Scope
from turnlog.events.agent import StopReason
from turnlog.parse.claude.agents import CliAgent, EventDraft, OpenAgents
from turnlog.parse.json_values import JsonObject, as_name, as_opaque_id

MAX_OPEN_TURNS = 64  # without a result; a background task makes two


class SentMessage(NamedTuple):
    """A message that went down: its turn, its channel, and in whose name the answer is spoken."""

    trace_id: str
    channel: str | None = None
    speaker: str | None = None
    state: str = ""  # what the process said of it: queued, started


class Turns:
    """The turns of one process."""

    def __init__(self, agents: OpenAgents, name: str, new_id: Callable[[Any], str]) -> None:
        self._agents, self._name, self._new_id = agents, name, new_id
        self._open_turns: dict[int, CliAgent] = {}  # without a result, by number
        self._turn_count = 0
        self._unanswered_messages: dict[str, SentMessage] = {}
        self.source_session: str | None = None

    @property
    def current(self) -> CliAgent | None:
        """The main agent that speaks."""
        return list(self._open_turns.values())[-1] if self._open_turns else None

    def expect(self, uuid: str, message: SentMessage) -> None:
        """A message went down."""
        self._unanswered_messages[uuid] = message

    def set_message_state(self, uuid: str | None, state: str) -> None:
        """The process has put a message into its queue, or taken it from there."""
        if uuid in self._unanswered_messages:
            self._unanswered_messages[uuid] = self._unanswered_messages[uuid]._replace(state=state)

    def begin(self, line: JsonObject) -> list[EventDraft]:
        """A turn begins; `line` is what is known of it."""
        said = self._expire_oldest() if len(self._open_turns) >= MAX_OPEN_TURNS else []
        self.source_session = as_opaque_id(line.get("session_id")) or self.source_session
        uuid, asked = self._next_message()
        agent = CliAgent(self._agents.new_scope(self._name, asked.trace_id, 0, asked.channel))
        agent.speaker, agent.answered_uuids = asked.speaker, [uuid] if uuid else []
        self._open_turns[self._turn_count] = agent
        self._turn_count += 1
        tools = line.get("tools")
        names = [as_name(tool) for tool in tools] if isinstance(tools, list) else []
        start = self._make_start(model=as_name(line.get("model")), tools=tuple(filter(None, names)))
        return said + self._agents.begin(start, agent)

    def _expire_oldest(self) -> list[EventDraft]:
        """The oldest turn is over: its result will not come any more."""
        agent = next(iter(self._open_turns.values()))
        return self._agents.end(agent, "error", agent.last_text) + self.finish(agent, "error")

    def current_or_new(self) -> tuple[CliAgent, list[EventDraft]]:
        """The main agent that speaks; a turn begins if there is none."""
        said = [] if self._open_turns else self.begin({})
        return list(self._open_turns.values())[-1], said

    def record_answered(self, agent: CliAgent, line: JsonObject) -> None:
        """A line names the messages that it answers."""
        agent.answered_uuids += [
            uuid
            for uuid in parse_answered_uuids(line)
            if uuid in self._unanswered_messages and not self._has_turn(uuid)
        ]

    def turn_for_result(self, line: JsonObject) -> tuple[CliAgent, list[EventDraft]]:
        """The turn that a result ends."""
        _, said = self.current_or_new()
        named, number = parse_answered_uuids(line), line.get("result_index")
        found = [run for run in self._open_turns.values() if set(named) & set(run.answered_uuids)]
        found += [run for key, run in self._open_turns.items() if key == number]
        return [*found, *self._open_turns.values()][0], said

    def finish(self, agent: CliAgent, reason: StopReason) -> list[EventDraft]:
        """A turn has its result; the other messages that it answered have no agent of their own."""
        self._open_turns = {number: run for number, run in self._open_turns.items() if run is not agent}
        said: list[EventDraft] = []
        for uuid in agent.answered_uuids:
            asked = self._unanswered_messages.get(uuid)
            if asked and asked.trace_id == agent.scope.trace_id:
                del self._unanswered_messages[uuid]
            else:
                said += self.close_unanswered(uuid, reason)
        return said

    def close_unanswered(self, uuid: str, reason: StopReason) -> list[EventDraft]:
        """A message has no agent of its own: its turn is over all the same."""
        asked = self._unanswered_messages.pop(uuid, None)
        if asked is None:
            return []
        scope = self._agents.new_scope(self._name, asked.trace_id, 0, asked.channel)
        ends = (self._make_start(), AgentEnd(stop_reason=reason))
        return [EventDraft(payload, scope, "system") for payload in ends]

    def cancel_message(self, uuid: str) -> list[EventDraft]:
        """The process will not answer a message, unless a turn does."""
        return [] if self._has_turn(uuid) else self.close_unanswered(uuid, "cancelled")

    def _has_turn(self, uuid: str) -> bool:
        return any(uuid in run.answered_uuids for run in self._open_turns.values())

    def _make_start(self, **known: Any) -> AgentStart:
        return AgentStart(name=self._name, via="prompt", source_session=self.source_session, **known)

    def _next_message(self) -> tuple[str | None, SentMessage]:
        """The message that the next turn answers."""
        for state in ("started", ""):
            for uuid, asked in self._unanswered_messages.items():
                if asked.state == state and not self._has_turn(uuid):
                    return uuid, asked
        scope = list(self._agents.by_id.values())[-1].scope if self._agents.by_id else Scope()
        return None, SentMessage(scope.trace_id or self._new_id("tr_"), scope.channel)


def parse_answered_uuids(line: JsonObject) -> list[str]:
    """The messages that a line says it answers."""
    several = line.get("user_message_uuids")
    named = [line.get("user_message_uuid"), *(several if isinstance(several, list) else [])]
    return list(dict.fromkeys(uuid for uuid in named if isinstance(uuid, str)))
