"""Prepare the events that a page posts: answers get the scope of their call, actions and messages open turns.

The same answer posted twice gives its old seq; a different one is a conflict. A member answers only calls
that it may see; executors answer remote calls. A result without a `call_id` answers the only open call of
its tool. An action on a view is checked against the view that was sent, and is stored in that view's channel.
"""

import logging
import re
from collections.abc import Sequence
from difflib import get_close_matches
from hashlib import sha256
from typing import NamedTuple

from msgspec import structs

from turnlog.agents.blob_urls import blob_name
from turnlog.agents.claude.prompts import command_opens_turn
from turnlog.agents.runtime.approvals import is_approval_expired
from turnlog.agents.runtime.session_folds import SessionFolds
from turnlog.agents.runtime.user_input import (
    REMOTE_ANSWER_PREFIX,
    checked_answer_events,
    find_waiting_call,
    get_answered_call_id,
    message_events,
    remote_answer_id,
)
from turnlog.app.attachments import settle_content
from turnlog.app.membership import Membership
from turnlog.app.messages import ClientEvent, previous_send, resolve_channel, with_actor
from turnlog.errors import BadInput, Conflict, InvalidEvent, NotFound, quote
from turnlog.events import (
    ApprovalDecision,
    ApprovalRequest,
    ErrorInfo,
    Event,
    EventDraft,
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
from turnlog.state.closing import closing_id
from turnlog.state.tree import OpenCall
from turnlog.state.view_actions import build_action_error, find_part, validate_action

log = logging.getLogger("turnlog.app")

MAX_CALLS_IN_ERROR = 10

# Ids that the server or an executor derives: of closing events, of invites, of remote answers. A member who
# used one first could keep a turn open.
RESERVED_ID_PATTERN = re.compile(rf"evt_[0-9a-f]{{40}}|evt_00-.*|{REMOTE_ANSWER_PREFIX}.*")


class InvalidAction(InvalidEvent):
    """An action that does not fit its view; `fault` lists all errors with their paths."""

    def __init__(self, fault: ErrorInfo, path: str) -> None:
        super().__init__(fault.message, path)
        self.fault = fault


class StoredAnswer(NamedTuple):
    """A posted event is an answer that the log has already, at this seq."""

    seq: int


class NewEvent(NamedTuple):
    """A posted event is the event at this index of the batch."""

    batch_index: int


PostedPosition = StoredAnswer | NewEvent
Answers = dict[str, tuple[Payload | UnknownPayload, PostedPosition]]  # of one post, by call id


class ClientEventBatch:
    """One post of a member in a channel, while the session's lock is held."""

    def __init__(self, log: Log, membership: Membership, channel: str | None) -> None:
        self._log = log
        self._membership = membership
        self._channel = channel
        self._positions: list[PostedPosition] = []

    async def build_events(self, folds: SessionFolds, client_events: Sequence[ClientEvent]) -> list[Event]:
        """Return the events to append, for what the folds say is open. Calling it again starts over."""
        self._folds = folds
        events: list[Event] = []
        answers: Answers = {}
        self._positions.clear()
        self._views = self._folds.views.copy()  # each action is checked as if those before it were applied
        for item in client_events:
            path = item.path
            event = self._build_event(await self._with_call_id(item, answers), path)
            if isinstance(event.payload, UiMessage):
                await self._add_message(event, event.payload, path, events, answers)
                continue
            button: Button | None = None
            if isinstance(event.payload, UiAction):
                event, button = await self._check_action(event, event.payload, path)

            call_id = get_answered_call_id(event.payload)
            if call_id in answers:
                earlier_answer, position = answers[call_id]
                self._require_same_answer(event.payload, call_id, earlier_answer)
                self._positions.append(position)
                continue

            scoped = await self._with_scope(event)
            if isinstance(scoped, StoredAnswer):
                position = scoped
            else:
                position = NewEvent(len(events))
                events += scoped
                if button is not None:
                    events += self._button_events(button, scoped[0], path)
            self._positions.append(position)
            if call_id is not None:
                answers[call_id] = event.payload, position
        return events

    def resolve_seqs(self, seqs: Sequence[int]) -> list[int]:
        """Return the seq of each posted event. `seqs` are those of the appended batch."""
        resolved: list[int] = []
        for position in self._positions:
            if isinstance(position, StoredAnswer):
                resolved.append(position.seq)
            else:
                resolved.append(seqs[position.batch_index])
        return resolved

    # checks

    def _build_event(self, item: ClientEvent, path: str) -> Event:
        membership = self._membership
        # `_answer_events` accepts a remote answer's id for the call from which it is derived, and no other
        is_remote_answer = item.type == "tool.result" and item.id.startswith(REMOTE_ANSWER_PREFIX)
        if RESERVED_ID_PATTERN.fullmatch(item.id) and not is_remote_answer:
            raise InvalidEvent("expected an id of your own, not one that the server derives", path)

        scope = Scope(channel=self._channel, actor=membership.principal.name)
        return self._build_permitted(item, scope, path)

    def _build_permitted(self, item: ClientEvent, scope: Scope, path: str) -> Event:
        """Build an event with origin `ui`. Raise `InvalidEvent` if this member's page may not post it."""
        membership = self._membership
        self._check_fields(item, path)
        try:
            event = membership.app.catalog.build_event(
                item.type, item.payload, id=item.id, origin="ui", scope=scope
            )
        except InvalidEvent as error:
            raise InvalidEvent(error.problem, path + error.path[1:]) from None
        if not self._may_post(event.payload):
            raise InvalidEvent(f"your role may not post {item.type}", path)
        return event

    def _check_fields(self, item: ClientEvent, path: str) -> None:
        """Raise `InvalidEvent` for unknown fields of the application's events: a typo would be lost."""
        vocabulary = self._membership.app.vocabulary
        kind = vocabulary.types.get(item.type) if vocabulary else None
        unknown = find_unknown_fields(kind.payload_class, item.payload) if kind else []
        if kind is None or not unknown:
            return
        fields = kind.payload_class.__struct_encode_fields__
        matches = get_close_matches(unknown[0], fields, n=3)
        known = ", ".join(fields) or "none"
        hint = f"did you mean {' or '.join(matches)}?" if matches else f"it has {known}"
        raise InvalidEvent(f"{item.type} has no field {quote(unknown[0])}; {hint}", f"{path}.payload")

    def _may_post(self, payload: Payload | UnknownPayload) -> bool:
        membership = self._membership
        vocabulary = membership.app.vocabulary
        if isinstance(payload, SessionTitle):
            return membership.may_rename
        if vocabulary and any(kind.payload_class is type(payload) for kind in vocabulary):
            return membership.may_post(type(payload))
        return membership.is_member or get_answered_call_id(payload) is not None

    # messages

    async def _add_message(
        self, event: Event, message: UiMessage, path: str, events: list[Event], answers: Answers
    ) -> None:
        """Add a message to the batch, behind the results of the waiting calls that it cancels."""
        membership = self._membership
        if message.speaker is not None:
            raise InvalidEvent("expected no speaker: the server knows who posts", f"{path}.payload.speaker")
        try:
            message = resolve_channel(membership, message)
            message = await settle_content(self._log, membership.session_id, message)
        except BadInput as error:
            raise InvalidEvent(error.problem, f"{path}.payload{error.path[1:]}") from None

        rows = await self._log.find_events(membership.session_id, [event.id])
        if rows:
            sent = previous_send(membership.app, message, rows[event.id], self._folds.tree.last_seq)
            self._positions.append(StoredAnswer(sent.seq))
            return

        catalog = membership.app.catalog
        *cancellations, item = message_events(self._folds.tree, message, new_id("tr_"), answers)
        for cancellation in cancellations:
            answer = cancellation.build(catalog, new_id("evt_"))
            call_id = get_answered_call_id(answer.payload) or ""
            answers[call_id] = answer.payload, NewEvent(len(events))
            events.append(answer)
        self._positions.append(NewEvent(len(events)))
        events.append(with_actor(membership, item).build(catalog, event.id))

    # actions

    def _button_events(self, button: Button, click: Event, path: str) -> list[Event]:
        """Build the events that a click emits, with its turn, channel and actor.

        They pass the checks of posted events, so a click emits nothing that the member's page may not post.
        Their ids follow from the click's: the same click again gives the same events.
        """
        actor = self._membership.principal.name
        scope = Scope(trace_id=click.scope.trace_id, channel=click.scope.channel, actor=actor)
        events: list[Event] = []
        for number, emitted in enumerate(button.emits):
            event_type = self._membership.app.catalog.find_tag(emitted.type)
            # Another version of the application showed the view.
            if event_type is None:
                raise InvalidEvent(f"button {button.id}: no event {quote(emitted.type)} is declared", path)
            event_id = f"evt_{sha256(f'{click.id}:emits:{number}'.encode()).hexdigest()[:40]}"
            item = ClientEvent(event_type.name, emitted.data, event_id)
            events.append(self._build_permitted(item, scope, path))
        return events

    async def _check_action(self, event: Event, action: UiAction, path: str) -> tuple[Event, Button | None]:
        """Check an action against its open view. Return it in the view's channel, with the `shown` event.

        With `shown`, later readers know whether the view is still the one that the person saw. An action that
        is in the log already is not checked again. With a click that is accepted now, return its button.
        """
        rows = await self._log.find_events(self._membership.session_id, [event.id])
        if rows:
            stored = self._decode_payload(rows[event.id])
            shown = stored.shown if isinstance(stored, UiAction) else None
            return self._in_view_channel(self._with_shown_event(event, action, shown), action), None

        may_see = self._membership.may_see
        problems = validate_action(self._views, action, may_see, self._channel)
        if problems:
            if problems[0].kind == "conflict":
                raise Conflict(problems[0].message, self._folds.tree.last_seq)
            raise InvalidAction(build_action_error(problems), path)

        self._views.record_action(action, may_see, self._channel)
        view = self._views.find(action, may_see, self._channel)
        button = None
        if view is not None and isinstance(action.action, ButtonClick):
            button = find_part(view, action.action.button_id, Button)
        shown = view.event_id if view else None
        return self._in_view_channel(self._with_shown_event(event, action, shown), action), button

    def _with_shown_event(self, event: Event, action: UiAction, shown: str | None) -> Event:
        if action.shown is not None or shown is None:
            return event
        action = structs.replace(action, shown=shown)
        return EventDraft(action, event.scope, "ui").build(self._membership.app.catalog, event.id)

    def _in_view_channel(self, event: Event, action: UiAction) -> Event:
        view = self._views.find(action, self._membership.may_see, self._channel)
        if view is None or view.channel is None:
            return event
        return structs.replace(event, scope=structs.replace(event.scope, channel=view.channel))

    # scopes

    async def _with_scope(self, event: Event) -> list[Event] | StoredAnswer:
        """Return the events of a posted event, or the position of an answer that the log has already."""
        payload = event.payload
        call_id = get_answered_call_id(payload)
        if isinstance(payload, UiCommand) and isinstance(payload.command, Stop):
            return self._fan_out_stop(event)
        if call_id is None or isinstance(payload, UnknownPayload):
            return [self._with_new_turn(event)]

        try:
            args_hash = payload.args_hash if isinstance(payload, ApprovalDecision) else None
            scope, call = find_waiting_call(self._folds.tree, call_id, args_hash)
        except NotFound:
            return await self._previous_answer(payload, call_id)
        # the call is approved already, and another process runs it
        if isinstance(payload, ApprovalDecision) and call.approval_request is None:
            return await self._previous_answer(payload, call_id)
        return await self._answer_events(event, payload, scope, call)

    async def _answer_events(
        self, event: Event, answer: Payload, scope: Scope, call: OpenCall
    ) -> list[Event]:
        membership = self._membership
        call_id = call.call.call_id
        if not membership.may_see(scope.channel):
            raise NotFound(f"no call {call_id[:80]} waits for an answer")
        if not membership.may_answer(call):
            log.warning("%s has no role that may answer %s", membership.principal.name, call_id)
            problem = f"{call_id} is for another process: expected the role {EXECUTOR} or {OWNER}"
            raise InvalidEvent(problem, "$.payload.call_id")
        own_id = remote_answer_id(membership.session_id, scope.agent_id, call_id)
        if event.id.startswith(REMOTE_ANSWER_PREFIX) and event.id != own_id:
            raise InvalidEvent("expected an id of your own, not the one of another answer", "$.id")
        if isinstance(answer, ToolResult):
            check_images(membership.session_id, answer, "$")
        if call.approval_request is not None and is_approval_expired(call.approval_request, now_ms()):
            await self._append_expiry(scope, call.approval_request)

        scope = structs.replace(scope, actor=membership.principal.name)
        first, *others = checked_answer_events(answer, scope, call, membership.effective_roles, now_ms())
        catalog = membership.app.catalog
        return [
            first.build(catalog, event.id),
            *[item.build(catalog, new_id("evt_")) for item in others],
        ]

    async def _append_expiry(self, scope: Scope, request: ApprovalRequest) -> None:
        """Append that an approval has expired, so that it stays so if the clock is set back."""
        decision = ApprovalDecision(call_id=request.call_id, args_hash=request.args_hash, decision="expired")
        event_id = closing_id("approval", f"{scope.agent_id}:{request.call_id}:{request.args_hash}")
        event = EventDraft(decision, scope, "system").build(self._membership.app.catalog, event_id)
        await self._log.append(self._membership.session_id, [event], wants_work=True)

    def _fan_out_stop(self, event: Event) -> list[Event]:
        """Return a stop for each channel that this member may stop. The first has the posted id."""
        events: list[Event] = []
        for channel in self._membership.stoppable_channels:
            event_id = event.id
            if events:
                event_id = f"evt_{sha256(f'{event.id}:{channel}'.encode()).hexdigest()[:32]}"
            scope = structs.replace(event.scope, channel=channel)
            events.append(structs.replace(event, scope=scope, id=event_id))
        return events

    def _with_new_turn(self, event: Event) -> Event:
        payload = event.payload
        is_prompt = (
            self._membership.app.runtime.takes_commands
            and isinstance(payload, UiCommand)
            and command_opens_turn(payload.command)
        )
        if not isinstance(payload, UiAction) and not is_prompt:
            return event
        return structs.replace(event, scope=structs.replace(event.scope, trace_id=new_id("tr_")))

    # results without a call id

    async def _with_call_id(self, item: ClientEvent, answers: Answers) -> ClientEvent:
        """Return a result with the id of the call that it answers: the only open one of its tool.

        A result that is in the log already has the id that it was stored with. Raise `Conflict` with the open
        calls if there is not exactly one.
        """
        tool = item.payload.get("tool")
        if item.type != "tool.result" or item.payload.get("call_id") is not None or not isinstance(tool, str):
            return item

        rows = await self._log.find_events(self._membership.session_id, [item.id])
        stored = self._decode_payload(rows[item.id]) if rows else None
        if isinstance(stored, ToolResult) and self._membership.may_see(rows[item.id].channel):
            return item._replace(payload={**item.payload, "call_id": stored.call_id})

        open_calls = self._list_open_calls(item.trace_id, answers)
        matching = [call_id for call_id, name in open_calls.items() if name == tool]
        if len(matching) != 1:
            names = [f"{call_id} ({name})" for call_id, name in open_calls.items()][:MAX_CALLS_IN_ERROR]
            problem = (
                f"expected one open call of {quote(tool)}, got {len(matching)}; send the call_id; "
                f"open calls: {', '.join(names) or 'none'}"
            )
            raise Conflict(problem, self._folds.tree.last_seq)
        return item._replace(payload={**item.payload, "call_id": matching[0]})

    def _list_open_calls(self, trace_id: str | None, answers: Answers) -> dict[str, str]:
        """Return the tool of each open call that this member may answer with a result, by call id.

        With a `trace_id` only those of this turn: a late result must not answer a call of the next turn.
        """
        membership = self._membership
        tools: dict[str, str] = {}
        for invocation in self._folds.tree.open.values():
            is_of_turn = trace_id in (None, invocation.scope.trace_id)
            if not is_of_turn or not membership.may_see(invocation.scope.channel):
                continue
            for call_id, call in invocation.calls.items():
                # a backend call takes an input, and a call that needs approval a decision
                takes_result = call.call.executor != "backend" and call.approval_request is None
                is_open = call.is_waiting and call_id not in answers
                if is_open and takes_result and membership.may_answer(call):
                    tools[call_id] = call.call.tool
        return tools

    # earlier answers

    async def _previous_answer(self, answer: Payload, call_id: str) -> StoredAnswer:
        """Return the position of the same answer in the log. Raise `Conflict` for a different one."""
        # before the log is read: the call may end meanwhile
        agents = self._folds.tree.open.values()
        trace = next((agent.scope.trace_id for agent in agents if call_id in agent.calls), None)
        row = await self._log.closing_event(self._membership.session_id, call_id)
        # a decision or an input does not end its call
        if not isinstance(answer, ToolResult):
            row = await self._find_answer(answer, call_id, row.trace if row else trace) or row
        if row is None or not self._membership.may_see(row.channel):
            raise NotFound(f"no call {call_id} waits for an answer")
        self._require_same_answer(answer, call_id, self._decode_payload(row))
        return StoredAnswer(row.seq)

    def _require_same_answer(
        self, answer: Payload | UnknownPayload, call_id: str, earlier: Payload | UnknownPayload
    ) -> None:
        if earlier != answer:
            raise Conflict(f"{call_id} has another answer already", self._folds.tree.last_seq)

    async def _find_answer(self, answer: Payload, call_id: str, trace: str | None) -> Row | None:
        bounds = await self._log.turn_bounds(self._membership.session_id, trace) if trace else None
        if bounds is None:
            return None
        type_name = self._membership.app.catalog.get_type_name(type(answer))
        after = bounds[0] - 1
        while page := await self._log.read(self._membership.session_id, after, replay_from=-1):
            for row in page:
                if row.type != type_name or row.trace != trace:
                    continue
                if get_answered_call_id(self._decode_payload(row)) == call_id:
                    return row
            after = page.last
        return None

    def _decode_payload(self, row: Row) -> Payload | UnknownPayload:
        return self._membership.app.catalog.decode_payload(decode_envelope(envelope_json(row)))


def check_images(session_id: str, result: ToolResult, path: str) -> None:
    """Refuse images of other addresses: a model's provider would fetch any URL that it gets."""
    for number, image in enumerate(result.images):
        name = blob_name(image.src)
        is_own_blob = name is not None and name.startswith(f"{session_id}/")
        if not is_own_blob and not image.src.startswith("data:image/"):
            problem = f"expected a blob of this session or a data URI, got {quote(image.src)}"
            raise InvalidEvent(problem, f"{path}.payload.images[{number}].src")
