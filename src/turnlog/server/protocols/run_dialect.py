"""The dialect of a run: of one response, which may begin anywhere in a log."""

from typing import Protocol

from turnlog.app.visible_rows import RowView
from turnlog.events import Envelope, Payload, UnknownPayload
from turnlog.wire.dialects.run_outcome import RunProgress


class RunDialect(Protocol):
    """A dialect whose responses can begin anywhere in a log."""

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        """Return the messages of one event; none before `begin`."""
        ...

    def skip(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        """Return the messages of an event of another turn or channel: of the state that it changes."""
        ...

    def begin(self) -> list[bytes]:
        """Return the messages that begin a response at this position."""
        ...

    def close(self) -> list[bytes]:
        """Return the messages that end the response."""
        ...

    @property
    def is_finished(self) -> bool:
        """Return whether nothing runs."""
        ...


class ViewedRunDialect:
    """The dialect of a run behind the view of a member. A hidden event still changes the state."""

    def __init__(self, dialect: RunDialect, view: RowView) -> None:
        self._dialect = dialect
        self._view = view
        # A question to others is hidden, and ends the run all the same.
        self._progress = RunProgress()

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        self._progress.apply(envelope, payload)
        projected = self._view.project(envelope, payload)
        if projected is None:
            return self._dialect.skip(envelope, payload)
        return self._dialect.convert(*projected)

    def skip(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        return self._dialect.skip(envelope, payload)

    def begin(self) -> list[bytes]:
        return self._dialect.begin()

    def close(self) -> list[bytes]:
        return self._dialect.close()

    @property
    def is_finished(self) -> bool:
        return self._progress.is_finished
