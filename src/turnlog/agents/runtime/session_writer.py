"""How a driver writes to its session: items become events and are appended, some together with what follows.

A `Ledger` is what an application makes of a session. It is told every durable event, and asked what is to be
appended together with the end of a completion. A batch that the rules may look at is written only if the log
has not moved meanwhile: of two at the same moment, the second is seen with the first.

A write that the store cannot take is made again with the same event ids, so nothing is doubled. When the
store does not recover within the sum of `PAUSES_S`, the `StoreError` is raised, and every further write is
tried once until one succeeds.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol

from turnlog.agents.runtime.turn_loop import TurnEvent
from turnlog.errors import Conflict, RuleError, SessionDamaged, StoreError, Unavailable
from turnlog.events import Catalog, Envelope, Event, Payload, Scope, SessionError, UnknownPayload
from turnlog.ids import new_id
from turnlog.log import Log
from turnlog.state.rules import Phase

log = logging.getLogger("turnlog.agents")

PAUSES_S: tuple[float, ...] = (
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    10.0,
)  # half a minute: a disk that is being cleared, a failover


class AppState(Protocol):
    """What an application makes of a session."""

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        """Take one durable event into account."""
        ...

    def may_react_to(self, events: Sequence[Event]) -> bool:
        """Whether what follows from a batch depends on where it stands."""
        ...

    def rule_events(self, events: Sequence[Event], last: int, phase: Phase) -> list[Event]:
        """What is to be appended together with a batch that would come after a seq."""
        ...


class NoAppState:
    """Nothing follows from anything."""

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        """Nobody keeps books."""

    def may_react_to(self, events: Sequence[Event]) -> bool:
        """Never."""
        return False

    def rule_events(self, events: Sequence[Event], last: int, phase: Phase) -> list[Event]:
        """Nothing."""
        return []


class SessionWriter:
    """Writes to one session."""

    def __init__(self, log: Log, session_id: str, catalog: Catalog, app_state: AppState | None) -> None:
        self._log = log
        self._session_id = session_id
        self._catalog = catalog
        self.app_state = app_state or NoAppState()
        self.durable_count = 0  # how many durable events the ledger knows of
        self._pauses_s = PAUSES_S

    def build_event(self, item: TurnEvent, event_id: str | None = None) -> Event:
        """Build the event of an item."""
        event_id = event_id or new_id("evt_")
        return self._catalog.build_event(item.payload, id=event_id, origin=item.origin, scope=item.scope)

    async def append(self, items: Iterable[TurnEvent], last: int) -> int:
        """Append a batch; return the seq of its last event, or `last` for an empty batch."""
        seqs = await self.write([self.build_event(item) for item in items])
        return seqs[-1] if seqs else last

    async def write(self, events: Sequence[Event], **expected: Any) -> list[int]:
        """Append events, again and again while the store fails; `StoreError` when it does not recover."""
        pauses_s = iter(self._pauses_s)
        while True:
            try:
                seqs = await self._log.submit(self._session_id, events, **expected)
            except StoreError as error:
                # a closed log and a damaged session refuse the next attempt too
                if isinstance(error, SessionDamaged | Unavailable):
                    raise
                pause_s = next(pauses_s, None)
                if pause_s is None:
                    self._pauses_s = ()
                    raise
                log.warning(
                    "a write to %s failed, the next attempt is in %g s: %s", self._session_id, pause_s, error
                )
                await asyncio.sleep(pause_s)
            else:
                self._pauses_s = PAUSES_S
                return seqs

    async def append_with_rules(
        self, items: Sequence[TurnEvent], refresh: Callable[[], Awaitable[int]], phase: Phase = "submit"
    ) -> int:
        """Append a batch together with what the rules make of it; the last seq of its own.

        `look` brings the ledger up to date and gives the last seq.
        """
        events = [self.build_event(item) for item in items]
        while True:
            last = await refresh()
            both = [*events, *self._rule_events(events, last, phase)]
            alone = len(both) == len(events) and not self.app_state.may_react_to(events)
            if not both:
                return last
            try:
                expected = None if alone else self.durable_count
                seqs = await self.write(both, expected_durable_count=expected)
                return seqs[len(events) - 1] if events else last
            except Conflict as conflict:
                if conflict.last == last:
                    raise

    def _rule_events(self, events: Sequence[Event], last: int, phase: Phase) -> list[Event]:
        """What the rules say; that they cannot be followed is said too."""
        try:
            return self.app_state.rule_events(events, last, phase)
        except RuleError as fault:
            scope = events[-1].scope if events else Scope()
            problem = SessionError(code=fault.code, message=str(fault))
            within = Scope(trace_id=scope.trace_id, channel=scope.channel)
            return [self.build_event(TurnEvent(problem, within, "system"))]
