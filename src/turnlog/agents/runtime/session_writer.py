"""Appends the events of a session's owner: every append carries the fence of its lease.

`append_with_rules` adds the events that the application's rules emit, in the same batch. A batch to which
rules may react is appended only if no durable event was appended meanwhile: of two at the same moment, the
rules see the second one together with the first.

A write that the store cannot take is repeated with the same event ids, so no event is stored twice. When the
store does not recover within the sum of `PAUSES_S`, the `StoreError` is raised, and every further write is
tried once until one succeeds. `Fenced` is never repeated: another process owns the session now.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from turnlog.agents.runtime.optimistic_append import AppendPlan, append_if_unchanged
from turnlog.agents.runtime.session_folds import SessionFolds
from turnlog.errors import RuleError, SessionDamaged, StoreError, Unavailable
from turnlog.events import Event, EventDraft, Scope, SessionError
from turnlog.ids import new_id
from turnlog.log import Lease, Log
from turnlog.state.rules import Phase

log = logging.getLogger("turnlog.agents")

# half a minute: as long as it takes to clear a disk, or to fail over
PAUSES_S: tuple[float, ...] = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 10.0)


class SessionWriter:
    """Appends to one session, in the state that `folds` have."""

    def __init__(self, log: Log, lease: Lease, folds: SessionFolds) -> None:
        self._log = log
        self._session_id = lease.session_id
        self._fence = lease.fence
        self._folds = folds
        self._pauses_s = PAUSES_S
        self.last_seq = -1  # of all that was written

    def build_event(self, item: EventDraft, event_id: str | None = None) -> Event:
        return item.build(self._folds.catalog, event_id or new_id("evt_"))

    async def append(self, items: Iterable[EventDraft]) -> int:
        """Append a batch. Return the seq of its last event, or that of the folds for an empty batch."""
        seqs = await self.write([self.build_event(item) for item in items])
        return seqs[-1] if seqs else self._folds.last_seq

    async def write(self, events: Sequence[Event], **expected: Any) -> list[int]:
        """Append events, repeatedly while the store fails. Raise `StoreError` when it does not recover."""
        pauses_s = iter(self._pauses_s)
        while True:
            try:
                result = await self._log.submit(self._session_id, events, fence=self._fence, **expected)
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
                self.last_seq = max([self.last_seq, *result.seqs])
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
            is_independent = not rule_events and not self._folds.app_state.may_react_to(events)
            expected = None if is_independent else self._folds.durable_count
            return AppendPlan([*events, *rule_events], last, {"expected_durable_count": expected})

        appended = await append_if_unchanged(self.write, make_plan)
        if appended is None or not events:
            return last
        _, seqs = appended
        return seqs[len(events) - 1]

    def _rule_events(self, events: Sequence[Event], last: int, phase: Phase) -> list[Event]:
        """Return the events that rules emit. A rule that fails becomes a `session.error`."""
        try:
            return self._folds.app_state.rule_events(events, last, phase)
        except RuleError as error:
            scope = events[-1].scope if events else Scope()
            problem = SessionError(code=error.code, message=str(error))
            turn_scope = Scope(trace_id=scope.trace_id, channel=scope.channel)
            return [self.build_event(EventDraft(problem, turn_scope, "system"))]
