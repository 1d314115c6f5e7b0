"""The application's state in one session, and the events that its rules emit (protocol section 9).

The folds pass every durable event to `apply`; the writer calls `rule_events` before it appends a batch. The
events of rules are appended with the batch, atomically, with origin `app` and the rule's name as actor, in
the turn and the channel of the batch. Errors are the application's and are logged: an event whose reducer
raises leaves the state unchanged; a batch for which a rule fails is refused.
"""

import logging
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import structs

from turnlog.app.app import App
from turnlog.errors import InvalidEvent, RuleError
from turnlog.events import (
    Envelope,
    Event,
    EventDraft,
    Payload,
    Scope,
    SessionClose,
    SessionTitle,
    UnknownPayload,
    decode_envelope,
    encode_envelope,
)
from turnlog.events.catalog import Misfit
from turnlog.events.payload import MAX_NAME_BYTES
from turnlog.ids import new_id, now_ms
from turnlog.state.fold import fold, guard_reducers
from turnlog.state.rules import EmittedEvent, Phase, Rule, settle

log = logging.getLogger("turnlog.app")

CONTROL_CHARACTERS = re.compile(r"[\u0000-\u001f\u007f]+")


class CurrentTitle(NamedTuple):
    """The last `session.title`. `App.title_of` replaces only a title that came from the application."""

    text: str = ""
    is_from_app: bool = True

    def after(self, origin: str, payload: Payload | UnknownPayload) -> "CurrentTitle":
        if not isinstance(payload, SessionTitle):
            return self
        return CurrentTitle(payload.title, origin == "app")


class SessionAppState:
    """The state of an application in a session, as of the last event that was applied."""

    def __init__(self, app: App, session_id: str, logger: logging.Logger | None = log) -> None:
        """Without a `logger`, failed reducers and misfits are not logged: the session's owner logs them."""
        self._app = app
        self._session_id = session_id
        self._logger = logger
        self._reducers = guard_reducers(app.reducers, log_reducer_error if logger else ignore_reducer_error)
        # without logging: the errors of a dry run are logged when the event is applied
        self._dry_run_reducers = guard_reducers(app.reducers)
        self.state = app.initial_state()
        self._title = CurrentTitle()
        self._channel: str | None = None  # of the last event that changed the state
        self.misfits: dict[str, Misfit] = {}  # stored events that do not fit the current classes, by type

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        if isinstance(payload, UnknownPayload) and payload.problem is not None:
            self._count_misfit(envelope, payload.problem)
        self._title = self._title.after(envelope.origin, payload)
        new_state = fold(self._reducers, [(envelope, payload)], self.state)
        if new_state is not self.state:
            self._channel = envelope.channel
        self.state = new_state

    def _count_misfit(self, envelope: Envelope, problem: str) -> None:
        misfit = self.misfits.get(envelope.type)
        if misfit is None:
            misfit = Misfit(envelope.type, 0, problem)
            self._log_misfit(envelope, problem)
        self.misfits[envelope.type] = structs.replace(misfit, count=misfit.count + 1)

    def _log_misfit(self, envelope: Envelope, problem: str) -> None:
        if self._logger is not None:
            self._logger.warning(
                "%s, %s: stored events %s do not fit their class any more, so the state lacks them; "
                "the first is seq %d: %s",
                self._app.name,
                self._session_id,
                envelope.type,
                envelope.seq,
                problem,
            )

    def may_react_to(self, events: Sequence[Event]) -> bool:
        if not self._app.has_rules:
            return False
        return any(type(event.payload) in self._app.reducers for event in events)

    def rule_events(self, events: Sequence[Event], last: int, phase: Phase) -> list[Event]:
        if not self._app.has_rules:
            return []
        scope = batch_scope(events) if events else Scope(channel=self._channel)
        batch = RuleBatch(self._app, self._session_id, last, scope, self._title)
        state = fold(self._dry_run_reducers, [batch.stamp(event) for event in events], self.state)
        try:
            settle((*self._app.rules, *batch.title_rules()), self._dry_run_reducers, state, phase, batch.emit)
        except RuleError as error:
            log.error("%s: %s", self._app.name, error, exc_info=error.__cause__)
            raise
        return batch.emitted_events


def log_reducer_error(envelope: Envelope) -> None:
    log.exception("the reducer of %s failed at seq %d", envelope.type, envelope.seq)


def ignore_reducer_error(envelope: Envelope) -> None:
    """Do nothing, for a state that is only read."""


def batch_scope(events: Sequence[Event]) -> Scope:
    scopes = [event.scope for event in events if event.scope.trace_id or event.scope.channel]
    if not scopes:
        return Scope()
    channel = scopes[-1].channel
    # a client's event may follow the action that opens the turn, and has no turn itself
    traces = [scope.trace_id for scope in scopes if scope.trace_id and scope.channel == channel]
    return Scope(trace_id=traces[-1] if traces else None, channel=channel)


class RuleBatch:
    """Builds the envelopes that events would have after a seq, and collects the events of rules."""

    def __init__(self, app: App, session_id: str, last: int, scope: Scope, title: CurrentTitle) -> None:
        self._app = app
        self._session_id = session_id
        self._last = last
        self._ts_ms = now_ms()
        self._scope = scope
        self._title = title
        self.emitted_events: list[Event] = []

    def stamp(self, event: Event) -> tuple[Envelope, Payload | UnknownPayload]:
        self._last += 1
        self._title = self._title.after(event.origin, event.payload)
        line = encode_envelope(event, session_id=self._session_id, seq=self._last, ts_ms=self._ts_ms)
        return decode_envelope(line), event.payload

    def emit(self, emitted: EmittedEvent) -> Envelope:
        if isinstance(emitted.payload, SessionClose):
            # The log refuses an append with it, and so the whole batch, in the middle of a turn.
            raise InvalidEvent("a rule cannot close the session", emitted.rule)
        scope = structs.replace(self._scope, actor=emitted.rule)
        event = EventDraft(emitted.payload, scope, "app").build(self._app.catalog, new_id("evt_"))
        self.emitted_events.append(event)
        envelope, _ = self.stamp(event)
        return envelope

    def title_rules(self) -> list[Rule]:
        title_of = self._app.title_of
        if title_of is None:
            return []

        def is_outdated(state: Any) -> bool:
            title = fit_title(title_of(state))
            return self._title.is_from_app and title not in ("", self._title.text)

        def make_title(state: Any) -> list[Payload]:
            return [SessionTitle(title=fit_title(title_of(state)))]

        return [Rule("title", "apply", is_outdated, make_title)]


def fit_title(text: str) -> str:
    """Return a text as `session.title` accepts it: one line of at most `MAX_NAME_BYTES` bytes."""
    line = " ".join(CONTROL_CHARACTERS.sub(" ", text).split())
    return line.encode(errors="replace")[:MAX_NAME_BYTES].decode(errors="ignore").rstrip()
