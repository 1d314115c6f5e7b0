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
from turnlog.parse.claude.agents import CliAgent, Crew, Said
from turnlog.parse.json_values import Data, as_key, as_name

RUNS = 64  # without a result; a background task makes two


class Asked(NamedTuple):
    """A message that went down: its turn, its channel, and in whose name the answer is spoken."""

    trace_id: str
    channel: str | None = None
    speaker: str | None = None
    state: str = ""  # what the process said of it: queued, started


class Turns:
    """The turns of one process."""

    def __init__(self, crew: Crew, name: str, new_id: Callable[[Any], str]) -> None:
        self._crew, self._name, self._new_id = crew, name, new_id
        self._runs: dict[int, CliAgent] = {}  # without a result, by number
        self._count = 0
        self._asked: dict[str, Asked] = {}
        self.source_session: str | None = None

    @property
    def last(self) -> CliAgent | None:
        """The main agent that speaks."""
        return list(self._runs.values())[-1] if self._runs else None

    def expect(self, uuid: str, asked: Asked) -> None:
        """A message went down."""
        self._asked[uuid] = asked

    def take_up(self, uuid: str | None, state: str) -> None:
        """The process has put a message into its queue, or taken it from there."""
        if uuid in self._asked:
            self._asked[uuid] = self._asked[uuid]._replace(state=state)

    def begin(self, line: Data) -> list[Said]:
        """A turn begins; `line` is what is known of it."""
        said = self._overdue() if len(self._runs) >= RUNS else []
        self.source_session = as_key(line.get("session_id")) or self.source_session
        uuid, asked = self._next()
        agent = CliAgent(self._crew.scope(self._name, asked.trace_id, 0, asked.channel))
        agent.speaker, agent.uuids = asked.speaker, [uuid] if uuid else []
        self._runs[self._count] = agent
        self._count += 1
        tools = line.get("tools")
        names = [as_name(tool) for tool in tools] if isinstance(tools, list) else []
        start = self._start(model=as_name(line.get("model")), tools=tuple(filter(None, names)))
        return said + self._crew.begin(start, agent)

    def _overdue(self) -> list[Said]:
        """The oldest turn is over: its result will not come any more."""
        agent = next(iter(self._runs.values()))
        return self._crew.end(agent, "error", agent.said) + self.settle(agent, "error")

    def main(self) -> tuple[CliAgent, list[Said]]:
        """The main agent that speaks; a turn begins if there is none."""
        said = [] if self._runs else self.begin({})
        return list(self._runs.values())[-1], said

    def note(self, agent: CliAgent, line: Data) -> None:
        """A line names the messages that it answers."""
        agent.uuids += [uuid for uuid in uuids_of(line) if uuid in self._asked and not self._taken(uuid)]

    def ended_by(self, line: Data) -> tuple[CliAgent, list[Said]]:
        """The turn that a result ends."""
        _, said = self.main()
        named, number = uuids_of(line), line.get("result_index")
        found = [run for run in self._runs.values() if set(named) & set(run.uuids)]
        found += [run for key, run in self._runs.items() if key == number]
        return [*found, *self._runs.values()][0], said

    def settle(self, agent: CliAgent, reason: StopReason) -> list[Said]:
        """A turn has its result; the other messages that it answered have no agent of their own."""
        self._runs = {number: run for number, run in self._runs.items() if run is not agent}
        said: list[Said] = []
        for uuid in agent.uuids:
            asked = self._asked.get(uuid)
            if asked and asked.trace_id == agent.scope.trace_id:
                del self._asked[uuid]
            else:
                said += self.skip(uuid, reason)
        return said

    def skip(self, uuid: str, reason: StopReason) -> list[Said]:
        """A message has no agent of its own: its turn is over all the same."""
        asked = self._asked.pop(uuid, None)
        if asked is None:
            return []
        scope = self._crew.scope(self._name, asked.trace_id, 0, asked.channel)
        ends = (self._start(), AgentEnd(stop_reason=reason))
        return [Said(payload, scope, "system") for payload in ends]

    def cancelled(self, uuid: str) -> list[Said]:
        """The process will not answer a message, unless a turn does."""
        return [] if self._taken(uuid) else self.skip(uuid, "cancelled")

    def _taken(self, uuid: str) -> bool:
        return any(uuid in run.uuids for run in self._runs.values())

    def _start(self, **known: Any) -> AgentStart:
        return AgentStart(name=self._name, via="prompt", source_session=self.source_session, **known)

    def _next(self) -> tuple[str | None, Asked]:
        """The message that the next turn answers."""
        for state in ("started", ""):
            for uuid, asked in self._asked.items():
                if asked.state == state and not self._taken(uuid):
                    return uuid, asked
        scope = list(self._crew.open.values())[-1].scope if self._crew.open else Scope()
        return None, Asked(scope.trace_id or self._new_id("tr_"), scope.channel)


def uuids_of(line: Data) -> list[str]:
    """The messages that a line says it answers."""
    several = line.get("user_message_uuids")
    named = [line.get("user_message_uuid"), *(several if isinstance(several, list) else [])]
    return list(dict.fromkeys(uuid for uuid in named if isinstance(uuid, str)))
