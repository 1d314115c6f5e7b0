"""Snapshots: any fold of this room as bytes, and the same fold again.

A snapshot and the events after it give what all events give, and `dump` then gives the same bytes. The state
of an application's reducers can be kept in the same way if it consists of JSON values (with strings as keys)
or of structs; `load` is told its class. The order of keys is kept, so an answer made from it is the same,
byte for byte.
"""

from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

import msgspec
from msgspec import Raw, Struct

from turnlog.errors import BadInput
from turnlog.events import Scope, UiAction, UiMessage
from turnlog.events.strict_json import one_line
from turnlog.state.history import ContentPart, Conversation, History, Message
from turnlog.state.tree import QueuedTurn, Tree

T = TypeVar("T")


class HistorySnapshot(Struct):
    """A `History` without shared objects: conversations by number, the places of parts in them."""

    conversations: list[tuple[str, list[Message]]]  # each with its channel
    by_channel: dict[str, int]
    by_agent: dict[str, int]
    running_traces: list[str]
    queued_parts: dict[str, list[ContentPart]]
    positions_by_block: dict[str, dict[str, tuple[int, int, int]]]
    answering_agents: list[tuple[str, str, str]]


def dump(state: object) -> bytes:
    """A fold, or a state, as bytes: the same bytes after the same events."""
    return msgspec.json.encode(snapshot_history(state) if isinstance(state, History) else state)


def load(kind: type[T], data: bytes) -> T:
    """What `dump` wrote; `BadInput` if it is not of this class. A snapshot holds for the code that wrote it:
    another version of the package, or of an application, makes its own."""
    loader: Callable[[bytes], Any] | None = LOADERS.get(kind)
    try:
        return msgspec.json.decode(data, type=kind) if loader is None else loader(data)
    except (ValueError, LookupError) as error:  # msgspec's own errors are ValueErrors
        raise BadInput(f"expected a snapshot of {kind.__name__}, got {one_line(str(error))}") from None


def load_tree(data: bytes) -> Tree:
    """A tree; what opened a turn is known by its fields, for its classes have no tags."""
    fields = msgspec.json.decode(data, type=dict[str, Raw])
    queue = msgspec.json.decode(fields.pop("queued_turns"), type=dict[str, tuple[Raw, Scope]])
    hints = get_type_hints(Tree)
    values = {name: msgspec.json.decode(raw, type=hints[name]) for name, raw in fields.items()}
    waiting = {trace: QueuedTurn(decode_trigger(what), scope) for trace, (what, scope) in queue.items()}
    return Tree(**values, queued_turns=waiting)


def decode_trigger(raw: Raw) -> UiMessage | UiAction | None:
    """A message has a text, an action has none; what an application says by itself is not kept."""
    fields = msgspec.json.decode(raw, type=dict[str, Raw] | None)
    if fields is None:
        return None
    if "text" in fields:
        return msgspec.json.decode(raw, type=UiMessage)
    return msgspec.json.decode(raw, type=UiAction)


def snapshot_history(history: History) -> HistorySnapshot:
    """A history in plain values. Who took over from another shares a conversation with it; a channel in which
    nothing was said, though somebody looked, is none."""
    roots = {channel: one for channel, one in history.by_channel.items() if one.messages}
    unique = {id(one): one for one in (*roots.values(), *history.by_agent.values())}
    numbers = {key: number for number, key in enumerate(unique)}
    places = {
        id(part): (number, place, index)
        for number, conversation in enumerate(unique.values())
        for place, message in enumerate(conversation.messages)
        for index, part in enumerate(message.content)
    }
    return HistorySnapshot(
        conversations=[(one.channel, one.messages) for one in unique.values()],
        by_channel={channel: numbers[id(one)] for channel, one in roots.items()},
        by_agent={agent_id: numbers[id(one)] for agent_id, one in history.by_agent.items()},
        running_traces=sorted(history._running_traces),
        queued_parts=history._queued_parts,
        positions_by_block={
            agent_id: {block_id: places[id(part)] for block_id, part in parts.items()}
            for agent_id, parts in history._parts_by_block.items()
        },
        answering_agents=[(*call, agent_id) for call, agent_id in history._answering_agents.items()],
    )


def load_history(data: bytes) -> History:
    """A history, with everything shared that was."""
    kept = msgspec.json.decode(data, type=HistorySnapshot)
    every = [Conversation.from_messages(messages, channel) for channel, messages in kept.conversations]
    return History(
        by_channel={channel: every[number] for channel, number in kept.by_channel.items()},
        by_agent={agent_id: every[number] for agent_id, number in kept.by_agent.items()},
        _running_traces=set(kept.running_traces),
        _queued_parts=kept.queued_parts,
        _parts_by_block={
            agent_id: {
                block_id: every[number].messages[place].content[index]
                for block_id, (number, place, index) in parts.items()
            }
            for agent_id, parts in kept.positions_by_block.items()
        },
        _answering_agents={
            (parent_id, call_id): agent_id for parent_id, call_id, agent_id in kept.answering_agents
        },
    )


LOADERS: dict[type, Callable[[bytes], Any]] = {Tree: load_tree, History: load_history}
