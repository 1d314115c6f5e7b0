"""What a page posts, put in its place: answers get the scope of what they answer, actions open turns.

An answer that was given before gives its old seq, another one is a conflict. A member answers only what it
may see; calls for another process are answered by executors. An action on a view is checked against the view
that was sent, and is in its channel.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from hashlib import sha256
from typing import Any, NamedTuple

from msgspec import structs

from turnlog.agents.claude.prompts import command_opens_turn
from turnlog.agents.runtime.approvals import is_approval_expired
from turnlog.agents.runtime.drivers import SessionDriver
from turnlog.agents.runtime.user_input import (
    REMOTE_ANSWER_PREFIX,
    checked_answer_events,
    find_waiting_call,
    get_answered_call_id,
    remote_answer_id,
)
from turnlog.app.membership import Membership
from turnlog.errors import Conflict, InvalidEvent, NotFound, quote
from turnlog.events import (
    ApprovalDecision,
    ApprovalRequest,
    ErrorInfo,
    Event,
    Payload,
    Scope,
    SessionTitle,
    ToolResult,
    UiAction,
    UiCommand,
    UiMessage,
    UnknownPayload,
    decode_envelope,
)
from turnlog.events.catalog import find_unknown_fields
from turnlog.events.roles import EXECUTOR, OWNER
from turnlog.events.ui import ButtonClick, Stop
from turnlog.events.view_nodes import Button
from turnlog.ids import new_id, now_ms
from turnlog.log import Log, Row, envelope_json
from turnlog.state.tree import closing_id
from turnlog.state.view_actions import build_action_error, find_part, validate_action

log = logging.getLogger("turnlog.app")

# Ids that the server or an executor makes of what an event is about: what closes something, lets a guest in,
# answers a call from another process. A member who took one first could keep a turn open.
RESERVED_ID_PATTERN = re.compile(rf"evt_[0-9a-f]{{40}}|evt_00-.*|{REMOTE_ANSWER_PREFIX}.*")


class InvalidAction(InvalidEvent):
    """An action that does not fit the view it is for; `fault` says all that is wrong, and where."""

    def __init__(self, fault: ErrorInfo, path: str) -> None:
        super().__init__(fault.message, path)
        self.fault = fault


class ClientEvent(NamedTuple):
    """An event a page wants to append."""

    type: str
    payload: Mapping[str, Any]
    id: str


def is_stop(payload: Payload | UnknownPayload) -> bool:
    """Whether somebody wants what runs to stop."""
    return isinstance(payload, UiCommand) and isinstance(payload.command, Stop)


class ClientEventBatch:
    """One post of a member in a channel, while its session is held still."""

    def __init__(self, log: Log, membership: Membership, driver: SessionDriver, channel: str | None) -> None:
        self._log = log
        self._membership = membership
        self._channel = channel
        self._driver = driver
        self._positions: list[int] = []
        self._views = driver.views

    async def build_events(self, client_events: Sequence[ClientEvent]) -> list[Event]:
        """The events to append, for what is open now."""
        events: list[Event] = []
        answers: dict[str, tuple[Payload | UnknownPayload, int]] = {}
        self._positions.clear()
        self._views = self._driver.views.copy()  # one action after the other, as if they were taken
        for number, item in enumerate(client_events):
            path = f"$.events[{number}]"
            event = self._build_event(item, path)
            button: Button | None = None
            if isinstance(event.payload, UiAction):
                event, button = await self._check_action(event, event.payload, path)
            call_id = get_answered_call_id(event.payload)
            if call_id in answers:
                self._positions.append(self._same_answer_seq(event.payload, call_id, *answers[call_id]))
                continue
            placed = await self._with_scope(event)
            self._positions.append(placed if isinstance(placed, int) else ~len(events))
            events += [] if isinstance(placed, int) else placed
            if button is not None and not isinstance(placed, int):
                events += self._button_events(button, placed[0], path)
            if call_id is not None:
                answers[call_id] = event.payload, self._positions[-1]
        return events

    def resolve_seqs(self, seqs: Sequence[int]) -> list[int]:
        """The seq of everything that was posted, old or new."""
        return [place if place >= 0 else seqs[~place] for place in self._positions]

    def _build_event(self, item: ClientEvent, path: str) -> Event:
        """An event as this member may post it; what is wrong with it has the path in what was posted."""
        seat = self._membership
        # `_place` takes such an id for the answer to the very call that it is made of
        answers_call = item.type == "tool.result" and item.id.startswith(REMOTE_ANSWER_PREFIX)
        if RESERVED_ID_PATTERN.fullmatch(item.id) and not answers_call:
            raise InvalidEvent("expected an id of your own, not one that the server derives", path)
        return self._build_permitted(item, Scope(channel=self._channel, actor=seat.principal.name), path)

    def _build_permitted(self, item: ClientEvent, scope: Scope, path: str) -> Event:
        """Build an event with origin `ui`. Raise `InvalidEvent` if this member's page may not post it."""
        seat = self._membership
        self._check_fields(item, path)
        try:
            event = seat.app.catalog.build_event(
                item.type, item.payload, id=item.id, origin="ui", scope=scope
            )
        except InvalidEvent as wrong:
            raise InvalidEvent(wrong.problem, path + wrong.path[1:]) from None
        if not self._may_post(event.payload):
            raise InvalidEvent(f"{item.type} is not for your role to post", path)
        if isinstance(event.payload, UiMessage):
            raise InvalidEvent("expected a message on the send route", path)
        return event

    def _check_fields(self, item: ClientEvent, path: str) -> None:
        """Refuse fields that an event of the application does not have: a misspelt one would be lost."""
        vocabulary = self._membership.app.vocabulary
        kind = vocabulary.types.get(item.type) if vocabulary else None
        if kind is None or not (unknown := find_unknown_fields(kind.payload_class, item.payload)):
            return
        fields = kind.payload_class.__struct_encode_fields__
        near = get_close_matches(unknown[0], fields, n=3)
        known = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(fields) or 'none'}"
        raise InvalidEvent(f"{item.type} has no field {quote(unknown[0])}; {known}", f"{path}.payload")

    def _may_post(self, payload: Payload | UnknownPayload) -> bool:
        seat, vocabulary = self._membership, self._membership.app.vocabulary
        if isinstance(payload, SessionTitle):
            return seat.may_rename
        if vocabulary and any(kind.payload_class is type(payload) for kind in vocabulary):
            return seat.may_post(type(payload))
        return seat.is_member or get_answered_call_id(payload) is not None

    def _button_events(self, button: Button, click: Event, path: str) -> list[Event]:
        """Build the events that a click emits, with its turn, channel and actor.

        They go through the checks of posted events, so a click emits nothing that the member's page may not
        post. Their ids follow from the click's: the same click again is the same events.
        """
        scope = Scope(
            trace_id=click.scope.trace_id, channel=click.scope.channel, actor=self._membership.principal.name
        )
        events: list[Event] = []
        for number, emitted in enumerate(button.emits):
            event_type = self._membership.app.catalog.find_tag(emitted.type)
            # another version of the application showed the view
            if event_type is None:
                raise InvalidEvent(f"button {button.id}: no event {quote(emitted.type)} is declared", path)
            event_id = f"evt_{sha256(f'{click.id}:emits:{number}'.encode()).hexdigest()[:40]}"
            item = ClientEvent(event_type.name, emitted.data, event_id)
            events.append(self._build_permitted(item, scope, path))
        return events

    async def _check_action(self, event: Event, action: UiAction, path: str) -> tuple[Event, Button | None]:
        """An action that fits the view that is open, in its channel, with the event that showed it.

        So whoever handles it later knows whether the view is still the one that the person saw. An action
        that is in the log was taken then. Of a click that is taken now, the button comes with it.
        """
        known = await self._log.find_events(self._membership.session_id, [event.id])
        if known:
            stored = self._decode_payload(known[event.id])
            shown = stored.shown if isinstance(stored, UiAction) else None
            return self._in_view_channel(self._with_shown_event(event, action, shown), action), None
        if problems := validate_action(self._views, action, self._membership.may_see, self._channel):
            if problems[0].kind == "conflict":
                raise Conflict(problems[0].message, self._driver.tree.last_seq)
            raise InvalidAction(build_action_error(problems), path)
        self._views.record_action(action, self._membership.may_see, self._channel)
        view = self._views.find(action, self._membership.may_see, self._channel)
        button = None
        if view is not None and isinstance(action.action, ButtonClick):
            button = find_part(view, action.action.button_id, Button)
        with_shown = self._with_shown_event(event, action, view.event_id if view else None)
        return self._in_view_channel(with_shown, action), button

    def _with_shown_event(self, event: Event, action: UiAction, shown_event_id: str | None) -> Event:
        """An action that names the event which showed its view; what the page said itself stays."""
        if action.shown is not None or shown_event_id is None:
            return event
        action = structs.replace(action, shown=shown_event_id)
        return self._membership.app.catalog.build_event(action, id=event.id, origin="ui", scope=event.scope)

    def _in_view_channel(self, event: Event, action: UiAction) -> Event:
        """An action in the channel of its view: whoever showed it answers."""
        view = self._views.find(action, self._membership.may_see, self._channel)
        if view is None or view.channel is None:
            return event
        return structs.replace(event, scope=structs.replace(event.scope, channel=view.channel))

    async def _with_scope(self, event: Event) -> list[Event] | int:
        """An event with the scope of what it answers; the old seq of an answer given before."""
        call_id = get_answered_call_id(event.payload)
        if call_id is None or isinstance(event.payload, UnknownPayload):
            return list(self._fan_out_stop(event)) if is_stop(event.payload) else [self._with_new_turn(event)]
        try:
            scope, call = find_waiting_call(self._driver.tree, call_id)
        except NotFound:
            return await self._previous_answer(event.payload, call_id)
        if (
            isinstance(event.payload, ApprovalDecision) and call.approval_request is None
        ):  # another process runs it
            return await self._previous_answer(event.payload, call_id)
        if not self._membership.may_see(scope.channel):
            raise NotFound(f"no call {call_id[:80]} waits for an answer")
        if not self._membership.may_answer(call):
            log.warning("%s has no role that may answer %s", self._membership.principal.name, call_id)
            problem = f"{call_id} is for another process: expected the role {EXECUTOR} or {OWNER}"
            raise InvalidEvent(problem, "$.payload.call_id")
        if event.id.startswith(REMOTE_ANSWER_PREFIX) and event.id != remote_answer_id(
            self._membership.session_id, scope.agent_id, call_id
        ):
            raise InvalidEvent("expected an id of your own, not the one of another answer", "$.id")
        if isinstance(event.payload, ToolResult):
            self._check_images(event.payload)
        if call.approval_request is not None and is_approval_expired(call.approval_request, now_ms()):
            await self._append_expiry(scope, call.approval_request)
        scope = structs.replace(scope, actor=self._membership.principal.name)
        items = checked_answer_events(event.payload, scope, call, self._membership.effective_roles, now_ms())
        catalog = self._membership.app.catalog
        return [
            catalog.build_event(
                item.payload, id=new_id("evt_") if number else event.id, origin=item.origin, scope=item.scope
            )
            for number, item in enumerate(items)
        ]

    async def _append_expiry(self, scope: Scope, request: ApprovalRequest) -> None:
        """Write down that an approval has expired: it stays so when the clock is set back."""
        over = ApprovalDecision(call_id=request.call_id, args_hash=request.args_hash, decision="expired")
        event_id = closing_id("approval", f"{scope.agent_id}:{request.call_id}:{request.args_hash}")
        event = self._membership.app.catalog.build_event(over, id=event_id, origin="system", scope=scope)
        await self._log.append(self._membership.session_id, [event])

    def _check_images(self, result: ToolResult) -> None:
        """Refuse pictures from elsewhere: the provider of a model would fetch any address that it gets."""
        own = (
            "data:image/",
            f"api/blobs/{self._membership.session_id}/",
            f"/api/blobs/{self._membership.session_id}/",
        )
        for number, image in enumerate(result.images):
            if not image.src.startswith(own):
                problem = f"expected a blob of this session or a data URI, got {quote(image.src)}"
                raise InvalidEvent(problem, f"$.payload.images[{number}].src")

    def _fan_out_stop(self, event: Event) -> Iterator[Event]:
        """A stop in each channel that this member may stop."""
        for number, channel in enumerate(self._membership.stoppable_channels):
            more = f"evt_{sha256(f'{event.id}:{channel}'.encode()).hexdigest()[:32]}"
            scope = structs.replace(event.scope, channel=channel)
            yield structs.replace(event, scope=scope, id=more if number else event.id)

    def _with_new_turn(self, event: Event) -> Event:
        """An action that answers nothing opens a turn; so does a command that a process is to carry out."""
        told = isinstance(event.payload, UiCommand) and command_opens_turn(event.payload.command)
        if not isinstance(event.payload, UiAction) and not (told and self._membership.app.claude_code):
            return event
        return structs.replace(event, scope=structs.replace(event.scope, trace_id=new_id("tr_")))

    async def _previous_answer(self, answer: Payload, call_id: str) -> int:
        """The seq of the same answer, given before; another one is a conflict."""
        agents = self._driver.tree.open.values()  # now: while the log is read the call may end
        trace = next((agent.scope.trace_id for agent in agents if call_id in agent.calls), None)
        row = await self._log.closing_event(self._membership.session_id, call_id)
        if not isinstance(answer, ToolResult):  # a decision, or an input: the call may still run
            row = await self._find_answer(answer, call_id, row.trace if row else trace) or row
        if row is None or not self._membership.may_see(row.channel):
            raise NotFound(f"no call {call_id} waits for an answer")
        return self._same_answer_seq(answer, call_id, self._decode_payload(row), row.seq)

    def _same_answer_seq(
        self, answer: Payload | UnknownPayload, call_id: str, earlier: Payload | UnknownPayload, place: int
    ) -> int:
        """The place of an answer that comes again; another one is a conflict."""
        if earlier != answer:
            raise Conflict(f"{call_id} has another answer already", self._driver.tree.last_seq)
        return place

    async def _find_answer(self, answer: Payload, call_id: str, trace: str | None) -> Row | None:
        """The first answer of its kind to a call, in the turn of the call."""
        place = await self._log.turn_bounds(self._membership.session_id, trace) if trace else None
        after, kind = (
            (place[0] - 1 if place else -1),
            self._membership.app.catalog.get_type_name(type(answer)),
        )
        while place and (page := await self._log.read(self._membership.session_id, after, replay_from=-1)):
            for row in page:
                if (row.type, row.trace) == (kind, trace) and get_answered_call_id(
                    self._decode_payload(row)
                ) == call_id:
                    return row
            after = page.last
        return None

    def _decode_payload(self, row: Row) -> Payload | UnknownPayload:
        return self._membership.app.catalog.decode_payload(decode_envelope(envelope_json(row)))
