"""A dialect that converts what a member sees: hidden events never reach it.

A dialect begins where no turn is open, so its view needs no priming.
"""

from turnlog.app.visible_rows import RowView
from turnlog.events import Envelope, Payload, UnknownPayload
from turnlog.wire.dialects.base import Dialect


class ViewedDialect:
    """A dialect behind the view of a member."""

    def __init__(self, dialect: Dialect, view: RowView) -> None:
        self._dialect = dialect
        self._view = view

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        projected = self._view.project(envelope, payload)
        return [] if projected is None else self._dialect.convert(*projected)

    def close(self) -> list[bytes]:
        return self._dialect.close()

    @property
    def idle(self) -> bool:
        return self._dialect.idle
