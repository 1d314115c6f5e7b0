"""Which events of a log somebody wants and may see: by type, depth, turn and channel. Asked of rows."""

from typing import NamedTuple

from turnlog.log.store import Row


class Choice(NamedTuple):
    """Types or their first words, down to which depth, of which turn, and in which channels: None is all of
    them, and what is in no channel is for everyone."""

    types: tuple[str, ...] = ()
    depth: int | None = None
    turn: str | None = None
    channels: frozenset[str] | None = None

    def takes(self, row: Row) -> bool:
        """Whether this event is wanted."""
        if self.depth is not None and row.depth > self.depth:
            return False
        if self.channels is not None and row.channel not in {None, *self.channels}:
            return False
        if self.turn is not None and row.trace != self.turn:
            return False
        return not self.types or any(is_a(row.type, wanted) for wanted in self.types)


EVERYTHING = Choice()


def is_a(type: str, wanted: str) -> bool:
    """`tool.call` is a `tool.call` and a `tool`."""
    return type == wanted or type.startswith(wanted + ".")
