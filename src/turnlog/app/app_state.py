"""The application's side of one session: its state, and what its rules add to a batch (protocol section 9).

The driver hands every durable event to `apply` and asks `follows` before it appends a batch; what follows is
appended with it, atomically, with origin `app` and the rule's name as its actor, in the turn and the channel
of the batch. What fails is the application's fault and reported: an event whose reducer raises leaves the
state as it was; a batch that the rules cannot be followed for is refused.
"""

import logging
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import structs

from turnlog.app.app import App
from turnlog.errors import RuleError
from turnlog.events import (
    Envelope,
    Event,
    Payload,
    Scope,
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
        """Return the title after one event."""
        if not isinstance(payload, SessionTitle):
            return self
        return CurrentTitle(payload.title, origin == "app")


class SessionAppState:
    """The state of an application in a session, as of the last event that was applied."""

    def __init__(self, app: App, session_id: str) -> None:
        self._app = app
        self._session_id = session_id
        self._reducers = guard_reducers(app.reducers, log_reducer_error)
        self._dry_run_reducers = guard_reducers(
            app.reducers
        )  # what is only tried is reported when it happens
        self.state = app.initial_state()
        self._title = CurrentTitle()
        self._channel: str | None = None  # of the last event that changed the state
        self.misfits: dict[str, Misfit] = {}  # stored events that the classes of today do not take, by type

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        """Take one event into account."""
        if isinstance(payload, UnknownPayload) and payload.problem is not None:
            self._count_misfit(envelope, payload.problem)
        self._title = self._title.after(envelope.origin, payload)
        before, self.state = self.state, fold(self._reducers, [(envelope, payload)], self.state)
        if self.state is not before:
            self._channel = envelope.channel

    def _count_misfit(self, envelope: Envelope, problem: str) -> None:
        """Count an event that the state lacks, and warn of the first one of its type."""
        known = self.misfits.get(envelope.type)
        if known is None:
            log.warning(
                "%s, %s: stored events %s do not fit their class any more, so the state lacks them; "
                "the first is seq %d: %s",
                self._app.name,
                self._session_id,
                envelope.type,
                envelope.seq,
                problem,
            )
        count = known.count if known else 0
        self.misfits[envelope.type] = Misfit(envelope.type, count + 1, known.problem if known else problem)

    def may_react_to(self, events: Sequence[Event]) -> bool:
        """Whether what follows from a batch depends on where it stands."""
        return self._app.has_rules and any(type(event.payload) in self._app.reducers for event in events)

    def rule_events(self, events: Sequence[Event], last: int, phase: Phase) -> list[Event]:
        """What the rules say to a batch that would come after a seq; `RuleFault` if they fail."""
        if not self._app.has_rules:
            return []
        within = batch_scope(events) if events else Scope(channel=self._channel)
        batch = RuleBatch(self._app, self._session_id, last, within, self._title)
        state = fold(self._dry_run_reducers, [batch.stamp(event) for event in events], self.state)
        try:
            settle((*self._app.rules, *batch.title_rules()), self._dry_run_reducers, state, phase, batch.emit)
        except RuleError as fault:
            log.error("%s: %s", self._app.name, fault, exc_info=fault.__cause__)
            raise
        return batch.emitted_events


def log_reducer_error(envelope: Envelope) -> None:
    """Say that an event changed nothing because its reducer failed."""
    log.exception("the reducer of %s failed at seq %d", envelope.type, envelope.seq)


def batch_scope(events: Sequence[Event]) -> Scope:
    """Return the channel of a batch, and the last turn in it that is of this channel."""
    placed = [event.scope for event in events if event.scope.trace_id or event.scope.channel]
    if not placed:
        return Scope()
    channel = placed[-1].channel
    # an event of a page may come behind the action that opens the turn, and has no turn itself
    turns = [scope.trace_id for scope in placed if scope.trace_id and scope.channel == channel]
    return Scope(trace_id=turns[-1] if turns else None, channel=channel)


class RuleBatch:
    """Events in the places they would have; what rules emit is in a turn and a channel."""

    def __init__(self, app: App, session_id: str, last: int, within: Scope, title: CurrentTitle) -> None:
        self._app = app
        self._session_id = session_id
        self._last = last
        self._ts_ms = now_ms()
        self._within = within
        self._title = title
        self.emitted_events: list[Event] = []

    def stamp(self, event: Event) -> tuple[Envelope, Payload | UnknownPayload]:
        """An event with the envelope it would have."""
        self._last += 1
        self._title = self._title.after(event.origin, event.payload)
        line = encode_envelope(event, session_id=self._session_id, seq=self._last, ts_ms=self._ts_ms)
        return decode_envelope(line), event.payload

    def emit(self, emitted: EmittedEvent) -> Envelope:
        """An event of a rule, kept, with the envelope it would have."""
        scope = structs.replace(self._within, actor=emitted.rule)
        event = self._app.catalog.build_event(emitted.payload, id=new_id("evt_"), origin="app", scope=scope)
        self.emitted_events.append(event)
        return self.stamp(event)[0]

    def title_rules(self) -> list[Rule]:
        """Return the rule that keeps the session's title equal to `App.title_of`, if there is one."""
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
