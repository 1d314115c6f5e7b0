"""Filters for the rows of a log: by type, depth, turn and channel."""

from typing import NamedTuple

from turnlog.log.records import Row


class EventFilter(NamedTuple):
    """Types or their prefixes (none: all), a maximum depth, a turn and channels (None: all).

    Events in no channel match every set of channels.
    """

    types: tuple[str, ...] = ()
    depth: int | None = None
    turn: str | None = None
    channels: frozenset[str] | None = None

    def matches(self, row: Row) -> bool:
        return self.matches_type_and_depth(row.type, row.depth) and self.matches_turn_and_channel(row)

    def matches_type_and_depth(self, type: str, depth: int) -> bool:
        if self.depth is not None and depth > self.depth:
            return False
        return not self.types or matches_any_type(type, self.types)

    def matches_turn_and_channel(self, row: Row) -> bool:
        if self.channels is not None and row.channel not in {None, *self.channels}:
            return False
        return self.turn is None or row.trace == self.turn


MATCH_ALL = EventFilter()


def type_matches(type: str, type_or_prefix: str) -> bool:
    """Return True for the type itself and for its families: `tool.call` matches `tool.call` and `tool`."""
    return type == type_or_prefix or type.startswith(type_or_prefix + ".")


def matches_any_type(type: str, types_or_prefixes: tuple[str, ...]) -> bool:
    return any(type_matches(type, type_or_prefix) for type_or_prefix in types_or_prefixes)
