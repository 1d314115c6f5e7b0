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
        return self.wants(row.type, row.depth) and self.covers(row)

    def wants(self, type: str, depth: int) -> bool:
        """Whether events of this type and depth are wanted."""
        if self.depth is not None and depth > self.depth:
            return False
        return not self.types or any(is_a(type, wanted) for wanted in self.types)

    def covers(self, row: Row) -> bool:
        """Whether this event is of the turn and in one of the channels."""
        if self.channels is not None and row.channel not in {None, *self.channels}:
            return False
        return self.turn is None or row.trace == self.turn


EVERYTHING = Choice()


def is_a(type: str, wanted: str) -> bool:
    """`tool.call` is a `tool.call` and a `tool`."""
    return type == wanted or type.startswith(wanted + ".")
