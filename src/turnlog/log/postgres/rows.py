"""Statements that write rows of a PostgreSQL log: many rows each, from columns of values.

`SpanColumns` collects spans of any sessions. A span gets its end without a look at its
start: the first end of an open span counts. Edges of one span that are written together are merged first,
because one statement cannot change a row twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from turnlog.log.listing import listing_entries
from turnlog.log.postgres.arrays import (
    EncodeArray,
    bigint_array,
    boolean_array,
    bytea_array,
    text_array,
)
from turnlog.log.postgres.connections import Query
from turnlog.log.postgres.reading import span_checksum, span_end_checksum
from turnlog.log.postgres.schema import LISTING_STEP_S
from turnlog.log.records import NewRow, SessionRecord
from turnlog.log.spans import SpanEdge

EVENT_SOURCE: Query = """unnest(%b::bigint[], %b::bigint[], %b::text[], %b::bigint[], %b::text[], %b::text[],
    %b::bytea[], %b::bigint[], %b::bytea[], %b::bytea[])
    as new(session, seq, id, ts, span, type, chain, crc, meta, frame)"""
EVENT_ARRAYS: Sequence[EncodeArray] = (
    bigint_array, bigint_array, text_array, bigint_array, text_array, text_array,
    bytea_array, bigint_array, bytea_array, bytea_array,
)  # fmt: skip
INSERT_EVENTS: Query = f"""insert into event (session, seq, id, ts, span, type, chain, crc, meta, frame)
    select * from {EVENT_SOURCE}"""
START_SOURCE: Query = """unnest(%b::bigint[], %b::text[], %b::text[], %b::bigint[], %b::bigint[],
    %b::boolean[], %b::bigint[], %b::bigint[])
    as new(session, key, trace, first, last, agent, crc, last_crc)"""
START_ARRAYS: Sequence[EncodeArray] = (
    bigint_array, text_array, text_array, bigint_array, bigint_array,
    boolean_array, bigint_array, bigint_array,
)  # fmt: skip
INSERT_SPANS: Query = f"""insert into span (session, key, trace, first, last, agent, crc, last_crc)
    select * from {START_SOURCE}"""
# A span that starts again replaces the one of the same key.
REPLACE_SPANS: Query = """on conflict (session, key) do update set trace = excluded.trace,
    first = excluded.first, last = excluded.last, agent = excluded.agent, crc = excluded.crc,
    last_crc = excluded.last_crc"""
END_SOURCE: Query = """unnest(%b::bigint[], %b::text[], %b::bigint[], %b::bigint[])
    as new(session, key, last, last_crc)"""
END_ARRAYS: Sequence[EncodeArray] = (bigint_array, text_array, bigint_array, bigint_array)
END_SPANS: Query = f"""update span set last = new.last, last_crc = new.last_crc from {END_SOURCE}
    where span.session = new.session and span.key = new.key and span.last is null"""
LISTING_SOURCE: Query = "unnest(%b::text[], %b::text[], %b::bigint[]) as new(session, list, active)"
LISTING_ARRAYS: Sequence[EncodeArray] = (text_array, text_array, bigint_array)
UPSERT_LISTING: Query = "on conflict (session, list) do update set active = excluded.active"


EventRow = tuple[object, ...]
"""The values of `EVENT_SOURCE` for one event."""


def event_row(number: int, new: NewRow) -> EventRow:
    row, event_id, ts_ms, chain, span = new
    type_name = None if span else row.type
    return number, row.seq, event_id, ts_ms, span, type_name, chain, row.checksum, row.meta, row.frame


class SpanKey(NamedTuple):
    """A span of a session."""

    number: int
    key: str


class SpanColumns:
    """Starts and ends of spans, merged to one change for each span."""

    def __init__(self) -> None:
        self._starts: dict[SpanKey, SpanEdge] = {}
        self._ends: dict[SpanKey, int] = {}

    def add(self, number: int, edge: SpanEdge) -> None:
        span = SpanKey(number, edge.key)
        if edge.is_start:
            self._starts[span] = edge
            self._ends.pop(span, None)
        else:
            self._ends.setdefault(span, edge.seq)

    def start_rows(self) -> list[tuple[Any, ...]]:
        """Return the rows of `START_SOURCE`: spans that start here, with their end if it is here, too."""
        return [self._start_row(span, edge) for span, edge in self._starts.items()]

    def _start_row(self, span: SpanKey, edge: SpanEdge) -> tuple[object, ...]:
        number, key = span
        last = self._ends.get(span)
        last_crc = None if last is None else span_end_checksum(number, key, last)
        crc = span_checksum(number, key, edge.trace, edge.seq, edge.is_agent)
        return number, key, edge.trace, edge.seq, last, edge.is_agent, crc, last_crc

    def end_rows(self) -> list[tuple[Any, ...]]:
        """Return the rows of `END_SOURCE`: ends of spans that started before."""
        return [
            (number, key, last, span_end_checksum(number, key, last))
            for (number, key), last in sorted(self._ends.items())
            if (number, key) not in self._starts
        ]


def transpose(rows: Sequence[tuple[object, ...]]) -> list[list[object]]:
    """Return the columns of some rows; nothing if there are none."""
    return [list(column) for column in zip(*rows, strict=True)]


def encode_columns(rows: Sequence[tuple[object, ...]], arrays: Sequence[EncodeArray]) -> list[bytes]:
    """Return the columns of some rows, each as an array."""
    columns: Iterable[Sequence[object]] = zip(*rows, strict=True) if rows else repeat(())
    return [encode(column) for encode, column in zip(arrays, columns, strict=False)]


def is_listing_due(before: SessionRecord, listed_ms: int, record: SessionRecord) -> bool:
    """Return True if the entries of a session in lists have to be written again."""
    if record.members_seq != before.members_seq or record.members != before.members:
        return True
    return not 0 <= record.updated_ms - listed_ms < LISTING_STEP_S * 1000


def listing_rows(records: Mapping[str, SessionRecord]) -> list[tuple[Any, ...]]:
    return [
        (session_id, name, active_ms)
        for session_id, record in sorted(records.items())
        for name, active_ms in sorted(listing_entries(record).items())
    ]
