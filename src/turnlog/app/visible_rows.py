"""The rows of a session as one member gets them: the pure view of `state.visible_events` applied to a log.

Every way out of a session uses it: streams, responses, exports, protocols of other projects. A member who
sees everything has no `RowView`: stored bytes are sent as they are. A `RowView` belongs to one reader, and
rows must come in order.
"""

from msgspec import Raw, json, structs

from turnlog.app.membership import Membership
from turnlog.events import Catalog, Envelope, Payload, UnknownPayload, decode_envelope
from turnlog.log import Log, Row, envelope_json
from turnlog.log.filter import EventFilter
from turnlog.state.visible_events import PRIMING_TYPES, EventView, VisibleEvents


class RowView:
    """The rows that one reader sees, in the member's channels."""

    def __init__(self, view: EventView, catalog: Catalog, channels: frozenset[str] | None) -> None:
        self._events = VisibleEvents(view)
        self._catalog = catalog
        self._channels = EventFilter(channels=channels)

    async def prime(self, log: Log, session_id: str, after_seq: int) -> None:
        """Read what is open at a cursor. Without this, a reader inside a turn would miss its deltas."""
        if after_seq < 0:
            return
        start_seq = await log.oldest_open_turn_start(session_id, after_seq)
        for row in await log.rows_of_types(session_id, PRIMING_TYPES, start_seq, after_seq + 1):
            self.project_row(row)

    def project_row(self, row: Row) -> Row | None:
        """Return the row that the reader gets; None if it gets none."""
        if not self._channels.matches_turn_and_channel(row):
            return None
        envelope = decode_envelope(envelope_json(row))
        projected = self.project(envelope, self._catalog.decode_payload(envelope))
        if projected is None:
            return None
        return row._replace(frame=b"data: %b\n\n" % json.encode(projected[0]))

    def project(
        self, envelope: Envelope, payload: Payload | UnknownPayload
    ) -> tuple[Envelope, Payload] | None:
        """Return an event of a visible channel as the reader gets it; None if it is hidden."""
        visible = self._events.project(envelope, payload)
        if visible is None:
            return None
        return structs.replace(envelope, payload=Raw(json.encode(visible))), visible


def open_row_view(membership: Membership) -> RowView | None:
    """Return the view of a reader that begins where no turn is open; None if the member sees everything."""
    if membership.event_view.shows_all:
        return None
    return RowView(membership.event_view, membership.app.catalog, membership.visible_channels)


async def open_row_view_at(log: Log, membership: Membership, after_seq: int) -> RowView | None:
    """Return the view of a reader after a cursor; None if the member sees everything."""
    view = open_row_view(membership)
    if view is not None:
        await view.prime(log, membership.session_id, after_seq)
    return view
