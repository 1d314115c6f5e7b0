"""Which events of a log somebody wants and may see: by type, depth, turn and channel. Asked of rows."""

from typing import NamedTuple

from turnlog.log.store import Row


class EventFilter(NamedTuple):
    """Types or their first words, down to which depth, of which turn, and in which channels: None is all of
    them, and what is in no channel is for everyone."""

    types: tuple[str, ...] = ()
    depth: int | None = None
    turn: str | None = None
    channels: frozenset[str] | None = None

    def matches(self, row: Row) -> bool:
        """Whether this event is wanted."""
        return self.matches_type_and_depth(row.type, row.depth) and self.matches_turn_and_channel(row)

    def matches_type_and_depth(self, type: str, depth: int) -> bool:
        """Whether events of this type and depth are wanted."""
        if self.depth is not None and depth > self.depth:
            return False
        return not self.types or any(type_matches(type, wanted) for wanted in self.types)

    def matches_turn_and_channel(self, row: Row) -> bool:
        """Whether this event is of the turn and in one of the channels."""
        if self.channels is not None and row.channel not in {None, *self.channels}:
            return False
        return self.turn is None or row.trace == self.turn


MATCH_ALL = EventFilter()


def type_matches(type: str, type_or_prefix: str) -> bool:
    """`tool.call` is a `tool.call` and a `tool`."""
    return type == type_or_prefix or type.startswith(type_or_prefix + ".")
