"""The `agent` of an invocation in the block dialects: the id of its conversation.

The log has one id per invocation. A page of document 003 shows one subtree per `agent`, for the whole
conversation, so `agent.start` names the conversation of a root agent and of a called agent that resumes
another. If an open agent has that name already, the invocation goes by its own id: readers would take the
output of both for one. The names of open agents are all the state, so it is empty between turns.
"""

from dataclasses import dataclass, field

from turnlog.events import AgentStart
from turnlog.events.agent import strip_agent_prefix


@dataclass(slots=True)
class AgentNames:
    """The names of the open agents by id."""

    _names: dict[str, str] = field(default_factory=dict)

    def start(self, agent_id: str, payload: AgentStart) -> None:
        name = payload.conversation_id
        if name is None or name in self._names.values():
            name = strip_agent_prefix(agent_id)
        self._names[agent_id] = name

    def end(self, agent_id: str) -> None:
        self._names.pop(agent_id, None)

    def name_of(self, agent_id: str) -> str:
        """Return the name of an agent; its own id without the prefix if its start is not known."""
        return self._names.get(agent_id) or strip_agent_prefix(agent_id)
