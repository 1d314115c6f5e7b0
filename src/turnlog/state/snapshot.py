"""Snapshots: a fold of this package as bytes, and the same fold again.

A snapshot and the events after it give the same state as all events, and `dump` then gives the same bytes.
The state of an application's reducers can be stored in the same way if it consists of JSON values (with
strings as keys) or of structs. The order of keys is preserved. A `History` has no snapshot: its conversations
share objects.
"""

from typing import TypeVar, get_type_hints

import msgspec
from msgspec import Raw

from turnlog.errors import BadInput
from turnlog.events import Scope, UiAction, UiMessage
from turnlog.events.strict_json import one_line
from turnlog.state.tree import QueuedTurn, Tree

T = TypeVar("T")


def dump(state: object) -> bytes:
    """Return a fold or a state as bytes: the same bytes after the same events."""
    return msgspec.json.encode(state)


def load(kind: type[T], data: bytes) -> T:
    """Return the state that `dump` wrote. Raise `BadInput` if it is not of this class.

    A snapshot is valid only for the code that wrote it: another version of the package or of an application
    writes its own.
    """
    try:
        if kind is Tree:
            return load_tree(data)  # type: ignore[return-value]
        return msgspec.json.decode(data, type=kind)
    except (ValueError, LookupError) as error:  # msgspec's own errors are ValueErrors
        raise BadInput(f"expected a snapshot of {kind.__name__}, got {one_line(str(error))}") from None


def load_tree(data: bytes) -> Tree:
    fields = msgspec.json.decode(data, type=dict[str, Raw])
    queue = msgspec.json.decode(fields.pop("queued_turns"), type=dict[str, tuple[Raw, Scope]])
    queued_turns = {trace: QueuedTurn(decode_trigger(raw), scope) for trace, (raw, scope) in queue.items()}

    types = get_type_hints(Tree)
    values = {name: msgspec.json.decode(raw, type=types[name]) for name, raw in fields.items()}
    return Tree(**values, queued_turns=queued_turns)


def decode_trigger(raw: Raw) -> UiMessage | UiAction | None:
    """Return a message if there is a text, else an action; None for a turn that only events opened."""
    fields = msgspec.json.decode(raw, type=dict[str, Raw] | None)
    if fields is None:
        return None
    if "text" in fields:
        return msgspec.json.decode(raw, type=UiMessage)
    return msgspec.json.decode(raw, type=UiAction)
