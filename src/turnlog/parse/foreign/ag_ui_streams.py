"""The texts, thinking and calls of one agent of AG-UI, which may interleave, one after the other. Pure.

AG-UI identifies each text and each call, and lets them run at the same time. A message of the builder has
one text at a time. So a text that begins while another one, or arguments, are open waits until those end.
Limit: 1 M characters wait; then the open text is cut, and goes on in a message of its own.

AG-UI does not say where a message of the model begins. Here one has thinking, then a text, then calls, in
this order: whatever comes out of order begins the next one.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from turnlog.parse.agent_events import AgentEventBuilder, RuntimeAgent
from turnlog.parse.open_agents import put_bounded
from turnlog.parse.runtime_input import to_call_key

MAX_WAITING_CHARS = 1_000_000
MAX_KNOWN_CALLS = 4096

TextKind = Literal["text", "thinking"]


class Stage(IntEnum):
    """What the open message has. What comes after a later stage begins the next message."""

    EMPTY = 0
    THINKING = 1
    TEXT = 2
    CALLS = 3


STAGES: dict[TextKind, Stage] = {"thinking": Stage.THINKING, "text": Stage.TEXT}


@dataclass(slots=True)
class WaitingText:
    kind: TextKind
    pieces: list[str] = field(default_factory=list)
    is_ended: bool = False


class AgentStreams:
    """What one agent streams. `last_calls` are the calls after which it has said nothing more."""

    def __init__(self, builder: AgentEventBuilder, agent: RuntimeAgent) -> None:
        self.agent = agent
        self.last_calls: list[str] = []
        self._builder = builder
        self._stage = Stage.EMPTY
        self._open_text: tuple[TextKind, str] | None = None
        self._streaming_calls: set[str] = set()
        self._answered_calls: dict[str, None] = {}
        self._waiting: dict[tuple[TextKind, str], WaitingText] = {}
        self._waiting_chars = 0
        self._signed_id: str | None = None

    # texts

    def start_text(self, kind: TextKind, text_id: str) -> None:
        if (kind, text_id) == self._open_text or (kind, text_id) in self._waiting:
            return
        if self._is_busy:
            self._waiting[kind, text_id] = WaitingText(kind)
        else:
            self._open(kind, text_id)

    def add_text(self, kind: TextKind, text_id: str, piece: str) -> None:
        self.start_text(kind, text_id)
        waiting = self._waiting.get((kind, text_id))
        if waiting is None:
            self._emit(kind, text_id, piece)
            return
        waiting.pieces.append(piece)
        self._waiting_chars += len(piece)
        if self._waiting_chars > MAX_WAITING_CHARS:
            self.release_waiting()

    def end_text(self, kind: TextKind, text_id: str) -> None:
        waiting = self._waiting.get((kind, text_id))
        if waiting is not None:
            waiting.is_ended = True
        elif self._open_text == (kind, text_id):
            self._open_text = None
            self._continue_waiting()

    def sign(self, entity_id: str, signature: str) -> None:
        """Sign the thinking of the open message, once."""
        if self._stage is Stage.THINKING and self._signed_id != entity_id:
            self._signed_id = entity_id
            self._builder.sign(self.agent, signature)

    @property
    def _is_busy(self) -> bool:
        return self._open_text is not None or bool(self._streaming_calls)

    def _open(self, kind: TextKind, text_id: str) -> None:
        """Open a text. An empty one also ends the message before it: servers begin messages so."""
        self._open_text = (kind, text_id)
        if self._stage >= STAGES[kind] and not (kind == "thinking" and self._stage is Stage.THINKING):
            self._stage = Stage.EMPTY

    def _emit(self, kind: TextKind, text_id: str, piece: str) -> None:
        if not piece:
            return
        self.last_calls.clear()
        if self._stage is Stage.EMPTY or self._stage > STAGES[kind]:
            self._builder.begin_message(self.agent, None, text_id)
        self._stage = STAGES[kind]
        if kind == "text":
            self._builder.text(self.agent, piece)
        else:
            self._builder.think(self.agent, piece)

    def _continue_waiting(self) -> None:
        """Emit the texts that waited, up to the first one that has not ended."""
        while self._waiting and not self._is_busy:
            (kind, text_id), waiting = next(iter(self._waiting.items()))
            del self._waiting[kind, text_id]
            self._waiting_chars -= sum(map(len, waiting.pieces))
            self._open(kind, text_id)
            self._emit(kind, text_id, "".join(waiting.pieces))
            if waiting.is_ended:
                self._open_text = None

    def release_waiting(self) -> None:
        """Emit everything that waits, whether or not what is open has ended."""
        self._streaming_calls.clear()
        while self._waiting:
            self._open_text = None
            self._continue_waiting()

    # calls

    def start_call(self, tool: str, call_id: str) -> None:
        key = to_call_key(call_id)
        if key in self._answered_calls:
            # the model uses the id of an answered call again
            del self._answered_calls[key]
            self._builder.reuse_call_id(self.agent, key)
        self._open_text = None  # a call is shown at once; a text that goes on does so in the next message
        if self._stage is Stage.EMPTY:
            self.last_calls.clear()
            self._builder.begin_message(self.agent)
        self._stage = Stage.CALLS
        self._builder.start_call(self.agent, tool, key)
        self._streaming_calls.add(key)
        if key not in self.last_calls:
            self.last_calls.append(key)

    def add_arguments(self, call_id: str, piece: str) -> None:
        self._builder.arguments(self.agent, to_call_key(call_id), piece)

    def end_call(self, call_id: str) -> None:
        self._streaming_calls.discard(to_call_key(call_id))
        if not self._streaming_calls and self._stage is Stage.CALLS:
            # nothing says whether another call follows, and this one may run for long
            self._builder.complete_message(self.agent)
        self._continue_waiting()

    def note_result(self, call_id: str) -> None:
        """Note that a call of this agent has its result."""
        key = to_call_key(call_id)
        put_bounded(self._answered_calls, key, None, MAX_KNOWN_CALLS)
        self.end_call(key)
