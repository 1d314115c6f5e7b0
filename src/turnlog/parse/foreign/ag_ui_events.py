"""Events of AG-UI in one form: those of every version go in, those of 1.0 without chunks come out. Pure.

`normalize` returns the events that one event means: a `*_CHUNK` becomes START, CONTENT and END, and the
names before 1.0 (`THINKING_*`) become those of 1.0. A chunk ends before the next event of its agent that is
no chunk of the same entity, as in the protocol's own client. Events that no reader uses are dropped.
"""

from typing import NamedTuple

from turnlog.parse.foreign.common import get_text
from turnlog.parse.json_values import JsonObject
from turnlog.parse.open_agents import put_bounded

MAX_KNOWN_SUBAGENTS = 4096  # of one run; far more than an agent can have open
THINKING_ID = "thinking"  # events before 1.0 have no id: one text of thinking is open at a time

# RAW repeats everything in the words of the framework, steps are names of its nodes, and activities and
# custom events have no meaning that two servers share.
DROPPED_TYPES = frozenset(
    {
        "RAW",
        "STEP_STARTED",
        "STEP_FINISHED",
        "ACTIVITY_SNAPSHOT",
        "ACTIVITY_DELTA",
        "REASONING_START",
        "REASONING_END",
        "THINKING_START",
        "THINKING_END",
    }
)
OLD_NAMES = {
    "THINKING_TEXT_MESSAGE_START": "REASONING_MESSAGE_START",
    "THINKING_TEXT_MESSAGE_CONTENT": "REASONING_MESSAGE_CONTENT",
    "THINKING_TEXT_MESSAGE_END": "REASONING_MESSAGE_END",
}


class ChunkForm(NamedTuple):
    """How the chunks of an entity are written as events: the field with its id, and the three types."""

    id_field: str
    start: str
    content: str
    end: str


CHUNK_FORMS = {
    "TEXT_MESSAGE_CHUNK": ChunkForm(
        "messageId", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"
    ),
    "REASONING_MESSAGE_CHUNK": ChunkForm(
        "messageId", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END"
    ),
    "TOOL_CALL_CHUNK": ChunkForm("toolCallId", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"),
}
# These interrupt no chunk: they are about the whole run.
STATE_TYPES = frozenset({"STATE_SNAPSHOT", "STATE_DELTA", "CUSTOM"})


class EventNormalizer:
    """Normalizes the events of one run."""

    def __init__(self) -> None:
        self._open_chunks: dict[str, tuple[ChunkForm, str]] = {}  # by sub-agent; "" is the agent that answers

    def normalize(self, event: JsonObject) -> list[JsonObject]:
        kind = get_text(event, "type")
        if kind in DROPPED_TYPES:
            return []
        owner = get_text(event, "subagentRunId")
        form = CHUNK_FORMS.get(kind)
        if form is not None:
            return self._expand(owner, form, event)
        if kind in STATE_TYPES:
            return [event]
        if kind in OLD_NAMES:
            event = {"messageId": THINKING_ID, **event, "type": OLD_NAMES[kind]}
        return [*self._end_chunk(owner), event]

    def _expand(self, owner: str, form: ChunkForm, event: JsonObject) -> list[JsonObject]:
        known = self._open_chunks.get(owner)
        entity_id = get_text(event, form.id_field)
        if not entity_id and known is not None and known[0] is form:
            entity_id = known[1]
        if not entity_id:
            return []  # the first chunk names its entity

        fields = {name: value for name, value in event.items() if name != "delta"}
        fields[form.id_field] = entity_id
        expanded: list[JsonObject] = []
        if known != (form, entity_id):
            expanded += self._end_chunk(owner)
            expanded.append({**fields, "type": form.start})
            put_bounded(self._open_chunks, owner, (form, entity_id), MAX_KNOWN_SUBAGENTS)
        if get_text(event, "delta"):
            expanded.append({**fields, "type": form.content, "delta": event["delta"]})
        return expanded

    def _end_chunk(self, owner: str) -> list[JsonObject]:
        known = self._open_chunks.pop(owner, None)
        if known is None:
            return []
        form, entity_id = known
        end: JsonObject = {"type": form.end, form.id_field: entity_id}
        if owner:
            end["subagentRunId"] = owner
        return [end]
