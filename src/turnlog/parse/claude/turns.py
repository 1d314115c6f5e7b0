"""The turns of a Claude CLI process: which message a turn answers, and which `result` line ends it. Pure.

Every `init` line begins a turn: an invocation of the main agent.

How a turn finds its message (the process names the UUID only in its answer):
1. the message that the process has started to work on, else
2. the oldest message that was sent and is not in the queue of the process, else
3. none: the process woke up by itself. The turn continues the trace of the last open agent, or has a new one.

A turn may answer several messages. The traces of the others get an agent that starts and ends at once, so
that no trace stays open. A result finds its turn by a UUID, else by its number, else it is the oldest turn's.
Limit: 64 turns without a result; with another one, the oldest has failed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from turnlog.events import AgentEnd, AgentStart, EventDraft, Scope
from turnlog.events.agent import StopReason
from turnlog.events.tool import ExecutorKind
from turnlog.parse.claude.message import CliAgent, CliAgents
from turnlog.parse.claude.results import TurnEnd
from turnlog.parse.json_values import JsonObject, as_list, as_name, as_opaque_id

MAX_OPEN_TURNS = 64  # without a result; a background task makes two


class SentMessage(NamedTuple):
    """A message written to stdin: its turn, channel, conversation and text, and the speaker of the answer."""

    trace_id: str
    channel: str | None = None
    speaker: str | None = None
    conversation_id: str | None = None
    state: str = ""  # as the process reported it: queued, started
    text: str | None = None


class OpenTurn:
    """A turn without a result, and the messages that it answers."""

    def __init__(self, agent: CliAgent, uuid: str | None) -> None:
        self.agent = agent
        self.answered_uuids = [uuid] if uuid else []


class HostedTurn:
    """The only turn of a process whose host starts the main agent before, and ends it after the process.

    `executor_for` says who runs a tool. `end` is what the `result` lines say; None before the first.
    `chosen_ids` are the ids of the next sub-agents, if another process has read the same lines before.
    """

    def __init__(
        self,
        root: CliAgent,
        agents: CliAgents,
        executor_for: Callable[[str], ExecutorKind],
        new_id: Callable[[Any], str],
    ) -> None:
        self.root = root
        self.agents = agents
        self.executor_for = executor_for
        self.end: TurnEnd | None = None
        self.chosen_ids: list[str] = []
        self._new_id = new_id
        self._used_ids: list[str] = []

    def next_agent_id(self) -> str:
        agent_id = self.chosen_ids.pop(0) if self.chosen_ids else self._new_id("agt_")
        self._used_ids.append(agent_id)
        return agent_id

    def take_used_ids(self) -> list[str]:
        """Return the ids of the sub-agents that have started since the last time."""
        used_ids, self._used_ids = self._used_ids, []
        return used_ids

    def add_end(self, end: TurnEnd) -> None:
        """Store the end. A process that wakes up for a background agent ends more than once."""
        self.end = end if self.end is None else self.end.followed_by(end)


class Turns:
    """The turns of one process. Appends events to `output`, as `OpenAgents` does."""

    def __init__(
        self,
        output: list[EventDraft],
        agents: CliAgents,
        name: str,
        new_id: Callable[[Any], str],
        hosted_turn: HostedTurn | None,
    ) -> None:
        self._output = output
        self._agents = agents
        self._name = name
        self._new_id = new_id
        self._open_turns: dict[int, OpenTurn] = {}  # by number
        self._turn_count = 0
        self._unanswered_messages: dict[str, SentMessage] = {}  # by UUID
        self.source_session: str | None = None
        self._hosted_turn = hosted_turn
        if hosted_turn is not None:
            self._open_turns[0] = OpenTurn(hosted_turn.root, None)

    @property
    def current(self) -> CliAgent | None:
        """Return the main agent of the latest turn; None between turns."""
        if not self._open_turns:
            return None
        return next(reversed(self._open_turns.values())).agent

    def current_or_new(self) -> CliAgent:
        return self.current or self.begin({})

    def expect(self, uuid: str, message: SentMessage) -> None:
        self._unanswered_messages[uuid] = message

    def set_message_state(self, uuid: str | None, state: str) -> None:
        if uuid in self._unanswered_messages:
            self._unanswered_messages[uuid] = self._unanswered_messages[uuid]._replace(state=state)

    def begin(self, line: JsonObject) -> CliAgent:
        """Begin a turn. `line` is the `init` line, or empty."""
        self.source_session = as_opaque_id(line.get("session_id")) or self.source_session
        if self._hosted_turn is not None:
            return self._hosted_turn.root
        if len(self._open_turns) >= MAX_OPEN_TURNS:
            self._expire_oldest()

        uuid, message = self._next_message()
        scope = self._agents.new_scope(self._name, message.trace_id, 0, message.channel)
        agent = CliAgent(scope, speaker=message.speaker)
        self._open_turns[self._turn_count] = OpenTurn(agent, uuid)
        self._turn_count += 1

        tools = [as_name(tool) for tool in as_list(line.get("tools"))]
        model = as_name(line.get("model"))
        start = self._make_start(
            message,
            model=model,
            tools=tuple(tool for tool in tools if tool),
            conversation_id=message.conversation_id,
        )
        self._agents.begin(start, agent)
        return agent

    def _expire_oldest(self) -> None:
        agent = next(iter(self._open_turns.values())).agent
        self._agents.end(agent, "error", agent.last_text)
        self.finish(agent, "error")

    def record_answered(self, agent: CliAgent, line: JsonObject) -> None:
        for turn in self._turns_of(agent):
            for uuid in parse_answered_uuids(line):
                if uuid in self._unanswered_messages and not self._has_turn(uuid):
                    turn.answered_uuids.append(uuid)

    def turn_for_result(self, line: JsonObject) -> CliAgent:
        """Return the main agent of the turn that a `result` line ends. Begin a turn if there is none."""
        self.current_or_new()
        uuids = set(parse_answered_uuids(line))
        for turn in self._open_turns.values():
            if uuids.intersection(turn.answered_uuids):
                return turn.agent

        number = line.get("result_index")
        for turn_number, turn in self._open_turns.items():
            if turn_number == number:
                return turn.agent
        return next(iter(self._open_turns.values())).agent

    def finish(self, agent: CliAgent, reason: StopReason) -> None:
        """Remove a turn that has its result, and close the traces of the other messages that it answers."""
        turns = self._turns_of(agent)
        self._open_turns = {key: turn for key, turn in self._open_turns.items() if turn not in turns}
        for uuid in [uuid for turn in turns for uuid in turn.answered_uuids]:
            message = self._unanswered_messages.get(uuid)
            if message is not None and message.trace_id == agent.scope.trace_id:
                del self._unanswered_messages[uuid]
            else:
                self._close_unanswered(uuid, reason)

    def _close_unanswered(self, uuid: str, reason: StopReason) -> None:
        """Start and end an agent for a message that has none, so that its trace does not stay open."""
        message = self._unanswered_messages.pop(uuid, None)
        if message is None:
            return
        scope = self._agents.new_scope(self._name, message.trace_id, 0, message.channel)
        for payload in (self._make_start(message), AgentEnd(stop_reason=reason)):
            self._output.append(EventDraft(payload, scope, "system"))

    def cancel_message(self, uuid: str) -> None:
        """Close the trace of a message that the process has dropped, unless a turn answers it."""
        if not self._has_turn(uuid):
            self._close_unanswered(uuid, "cancelled")

    def _turns_of(self, agent: CliAgent) -> list[OpenTurn]:
        return [turn for turn in self._open_turns.values() if turn.agent is agent]

    def _has_turn(self, uuid: str) -> bool:
        return any(uuid in turn.answered_uuids for turn in self._open_turns.values())

    def _make_start(self, message: SentMessage, **fields: Any) -> AgentStart:
        return AgentStart(
            name=self._name,
            via="prompt",
            prompt=message.text,
            source_session=self.source_session,
            **fields,
        )

    def _next_message(self) -> tuple[str | None, SentMessage]:
        """Return the message that the next turn answers. Without a UUID no message was sent for it."""
        for state in ("started", ""):
            for uuid, message in self._unanswered_messages.items():
                if message.state == state and not self._has_turn(uuid):
                    return uuid, message

        scope = Scope()
        if self._agents.by_id:
            scope = next(reversed(self._agents.by_id.values())).scope
        return None, SentMessage(scope.trace_id or self._new_id("tr_"), scope.channel)


def parse_answered_uuids(line: JsonObject) -> list[str]:
    uuids = [line.get("user_message_uuid"), *as_list(line.get("user_message_uuids"))]
    return list(dict.fromkeys(uuid for uuid in uuids if isinstance(uuid, str)))
