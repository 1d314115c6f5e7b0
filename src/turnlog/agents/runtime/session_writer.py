"""Appends a driver's events to its session.

`append_with_rules` adds the events that the application's rules emit, in the same batch. A batch to which
rules may react is appended only if no durable event was appended meanwhile: of two at the same moment, the
rules see the second one together with the first.

A write that the store cannot take is repeated with the same event ids, so no event is stored twice. When the
store does not recover within the sum of `PAUSES_S`, the `StoreError` is raised, and every further write is
tried once until one succeeds.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol

from turnlog.agents.runtime.optimistic_append import AppendPlan, append_if_unchanged
from turnlog.errors import RuleError, SessionDamaged, StoreError, Unavailable
from turnlog.events import Catalog, Envelope, Event, EventDraft, Payload, Scope, SessionError, UnknownPayload
from turnlog.ids import new_id
from turnlog.log import Log
from turnlog.state.rules import Phase

log = logging.getLogger("turnlog.agents")

# half a minute: as long as it takes to clear a disk, or to fail over
PAUSES_S: tuple[float, ...] = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 10.0)


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


class SessionWriter:
    """Appends to one session."""

    def __init__(self, log: Log, session_id: str, catalog: Catalog, app_state: AppState | None) -> None:
        self._log = log
        self._session_id = session_id
        self._catalog = catalog
        self.app_state = app_state or NoAppState()
        self.durable_count = 0  # of the durable events that the application's state has
        self._pauses_s = PAUSES_S

    def build_event(self, item: EventDraft, event_id: str | None = None) -> Event:
        return item.build(self._catalog, event_id or new_id("evt_"))

    async def append(self, items: Iterable[EventDraft], last: int) -> int:
        """Append a batch. Return the seq of its last event, or `last` for an empty batch."""
        seqs = await self.write([self.build_event(item) for item in items])
        return seqs[-1] if seqs else last

    async def write(self, events: Sequence[Event], **expected: Any) -> list[int]:
        """Append events, repeatedly while the store fails. Raise `StoreError` when it does not recover."""
        pauses_s = iter(self._pauses_s)
        while True:
            try:
                result = await self._log.submit(self._session_id, events, **expected)
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
                return result.seqs

    async def append_with_rules(
        self, items: Sequence[EventDraft], refresh: Callable[[], Awaitable[int]], phase: Phase = "submit"
    ) -> int:
        """Append a batch and the events that rules emit. Return the seq of the batch's own last event.

        `refresh` brings the application's state up to date and returns the last seq.
        """
        events = [self.build_event(item) for item in items]
        last = -1

        async def make_plan() -> AppendPlan | None:
            nonlocal last
            last = await refresh()
            rule_events = self._rule_events(events, last, phase)
            if not events and not rule_events:
                return None
            is_independent = not rule_events and not self.app_state.may_react_to(events)
            expected = None if is_independent else self.durable_count
            return AppendPlan([*events, *rule_events], last, {"expected_durable_count": expected})

        appended = await append_if_unchanged(self.write, make_plan)
        if appended is None or not events:
            return last
        _, seqs = appended
        return seqs[len(events) - 1]

    def _rule_events(self, events: Sequence[Event], last: int, phase: Phase) -> list[Event]:
        """Return the events that rules emit. A rule that fails becomes a `session.error`."""
        try:
            return self.app_state.rule_events(events, last, phase)
        except RuleError as error:
            scope = events[-1].scope if events else Scope()
            problem = SessionError(code=error.code, message=str(error))
            turn_scope = Scope(trace_id=scope.trace_id, channel=scope.channel)
            return [self.build_event(EventDraft(problem, turn_scope, "system"))]
