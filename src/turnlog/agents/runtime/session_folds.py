"""The folds of one session: what is open, its views, and the application's state.

Rows of the log go in, in order. Live rows open and close nothing: they only move the position, and are not
decoded. The text of a block that is open is read from the log when an event has to carry it
(`load_open_texts`).
"""

from collections.abc import Sequence
from typing import Any, Protocol

from turnlog.events import BlockDelta, Catalog, Envelope, Event, Payload, UnknownPayload
from turnlog.events.envelope import decode_stored_envelope
from turnlog.log import Log, Row, envelope_json
from turnlog.state.rules import Phase
from turnlog.state.tree import Tree
from turnlog.state.view_actions import OpenViews

YIELD_EVERY_EVENTS = 64  # folded events after which other tasks run: a page may have thousands


class AppState(Protocol):
    """The application's state in one session, and its rules."""

    @property
    def state(self) -> Any:
        """Return the state after the last event that was applied; None without an application."""
        ...

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        """Fold one durable event."""
        ...

    def may_react_to(self, events: Sequence[Event]) -> bool:
        """Return whether rules may react to these events, so that the append needs an expected position."""
        ...

    def rule_events(self, events: Sequence[Event], last: int, phase: Phase) -> list[Event]:
        """Return the events that rules emit if these events follow the seq `last`.

        Raise `RuleError` if a rule fails.
        """
        ...


class NoAppState:
    """Null object for sessions without an application."""

    state = None

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        pass

    def may_react_to(self, events: Sequence[Event]) -> bool:
        return False

    def rule_events(self, events: Sequence[Event], last: int, phase: Phase) -> list[Event]:
        return []


class SessionFolds:
    """What is known of a session as of `last_seq`. `durable_count` counts its durable events."""

    def __init__(
        self, log: Log, session_id: str, catalog: Catalog, app_state: AppState | None = None
    ) -> None:
        self._log = log
        self.session_id = session_id
        self.catalog = catalog
        self.tree = Tree()
        self.views = OpenViews()
        self.app_state = app_state or NoAppState()
        self.durable_count = 0
        self.epoch = ""
        self._block_seqs: dict[str, int] = {}  # where open blocks began

    @property
    def last_seq(self) -> int:
        return self.tree.last_seq

    def decode(self, row: Row) -> tuple[Envelope, Payload | UnknownPayload]:
        envelope = decode_stored_envelope(envelope_json(row))
        return envelope, self.catalog.decode_payload(envelope)

    def skip_live(self, row: Row) -> None:
        self.tree.last_seq = row.seq
        self.durable_count = row.durable_count

    def apply(self, row: Row, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        self.durable_count = row.durable_count
        self.tree.apply(envelope, payload)
        self.views.apply(envelope, payload)
        self.app_state.apply(envelope, payload)
        if envelope.type == "block.start":
            self._block_seqs[payload.block_id] = row.seq  # type: ignore[union-attr]
        elif envelope.type == "block.end":
            self._block_seqs.pop(payload.block_id, None)  # type: ignore[union-attr]

    async def load_open_texts(self) -> None:
        """Read the texts of open blocks up to `last_seq` into the tree."""
        open_blocks: dict[str, list[str]] = {}
        for invocation in self.tree.open.values():
            open_blocks.update(invocation.blocks)
        if not open_blocks:
            return

        for pieces in open_blocks.values():
            pieces.clear()
        after = min(self._block_seqs.get(block_id, 0) for block_id in open_blocks) - 1
        last = self.last_seq
        while after < last:
            page = await self._log.read(self.session_id, after, replay_from=after)
            if not page:
                return
            for row in page:
                if row.live and row.seq <= last:
                    _, payload = self.decode(row)
                    if isinstance(payload, BlockDelta) and payload.block_id in open_blocks:
                        open_blocks[payload.block_id].append(payload.text)
            after = page.last
