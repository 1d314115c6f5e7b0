"""Writes the events of AG-UI: open agents, their blocks, and the run that a response belongs to."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from turnlog.events import (
    AwaitedCall,
    Envelope,
    Payload,
    UnknownPayload,
)
from turnlog.events.content import PromptPart, label_files, list_files
from turnlog.events.envelope import parse_timestamp_ms
from turnlog.state.view_actions import OpenViews
from turnlog.wire.dialects.ag_ui.blocks import (
    AgUiAgent,
    content_event,
    end_events,
    start_events,
)
from turnlog.wire.dialects.ag_ui.content import build_message_parts
from turnlog.wire.dialects.ag_ui.events import (
    ActivitySnapshot,
    AgUiEvent,
    CustomEvent,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from turnlog.wire.dialects.ag_ui.messages import ThreadMessages
from turnlog.wire.dialects.run_outcome import RunOutcome
from turnlog.wire.dialects.streamed_blocks import StreamedBlock


class StateFold(Protocol):
    """The application's state as the reader sees it, as JSON."""

    @property
    def value(self) -> Any: ...

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> bool:
        """Apply one event. Return whether it may have changed the value."""
        ...


@dataclass(slots=True)
class AgUiRun:
    """The run of one response. `own_message` is the id of the message that the client itself has sent.

    The client has the prompt of that turn, too, and the results of the calls `own_results`. With
    `sends_messages` the response begins with all messages of the thread. `state` is that before the first
    event of the response.
    """

    thread_id: str
    run_id: str
    parent_run_id: str | None = None
    own_message: str | None = None
    own_results: frozenset[str] = frozenset()
    messages: ThreadMessages = field(default_factory=ThreadMessages)
    sends_messages: bool = False
    state: StateFold | None = None


class AgUiWriter:
    """What converters know and write: agents and questions that are open, and the events of this moment.

    `has_begun`: the response of `run` has begun, or a run of the session is open. `ts` is the time of the
    event that is being converted.
    """

    def __init__(self, run: AgUiRun | None, version: str) -> None:
        self.run = run
        self.version = version
        self.has_begun = False
        self.agents: dict[str, AgUiAgent] = {}
        self.questions: dict[str, AwaitedCall] = {}
        self.prompt_ids: dict[str, str] = {}  # the client's id of the message that waits, by turn
        self.outcome = RunOutcome()
        self.views = OpenViews()
        self.ts = ""
        self.out: list[AgUiEvent] = []

    @property
    def timestamp(self) -> int:
        return parse_timestamp_ms(self.ts)

    def write(self, event: AgUiEvent) -> None:
        self.out.append(event)

    def write_custom(self, agent: AgUiAgent, name: str, value: Any) -> None:
        event = CustomEvent(
            name=name, value=value, subagent_run_id=agent.subagent_run_id, timestamp=self.timestamp
        )
        self.write(event)

    def make_block(self, kind: str, part_id: str, tool: str = "") -> StreamedBlock:
        return StreamedBlock(kind, part_id, tool)

    def start_block(self, agent: AgUiAgent, block: StreamedBlock, **more: Any) -> None:
        self.out += start_events(agent, block, self.timestamp, **more)

    def write_content(self, agent: AgUiAgent, block: StreamedBlock, text: str) -> None:
        block.has_content = True
        self.out.append(content_event(agent, block, text))

    def end_block(self, agent: AgUiAgent, block: StreamedBlock) -> None:
        self.out += end_events(agent, block)

    def write_user_message(self, message_id: str, text: str, content: tuple[PromptPart, ...]) -> None:
        """Write a message of a person. Clients of 1.0 get its files with MESSAGES_SNAPSHOT."""
        self._write_user_text(message_id, label_files(text, content))
        if self.run is not None and self.version != "0" and list_files(content):
            self.run.messages.set_content(message_id, build_message_parts(text, content))

    def _write_user_text(self, message_id: str, text: str) -> None:
        self.write(TextMessageStart(message_id=message_id, role="user", timestamp=self.timestamp))
        self.write(TextMessageContent(message_id=message_id, delta=text))
        self.write(TextMessageEnd(message_id=message_id))

    def choose_id(self, client_message_id: str | None, event_id: str) -> str:
        """Return the id of a message that a client sent. Readers of a whole session get ids of events."""
        return event_id if self.run is None else self.run.messages.choose_id(client_message_id, event_id)

    def find_step_name(self, name: str) -> str:
        """Return the name of an agent's step: agents of one name may answer in several channels at once."""
        names = {agent.step_name for agent in self.agents.values()}
        step_name = name
        number = 1
        while step_name in names:
            number += 1
            step_name = f"{name} {number}"
        return step_name

    def write_activity(self, agent: AgUiAgent, message_id: str, type: str, content: dict[str, Any]) -> None:
        # A sub-agent's tag would stay with an activity that another agent replaces.
        self.write(
            ActivitySnapshot(
                message_id=message_id, activity_type=type, content=content, timestamp=self.timestamp
            )
        )
