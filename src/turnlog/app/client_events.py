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

from turnlog.agents.claude.prompts import speaks
from turnlog.agents.runtime.approvals import is_over
from turnlog.agents.runtime.drivers import SessionDriver
from turnlog.agents.runtime.user_input import REMOTE_ANSWER, answer_id, answered, call_of, waiting_call
from turnlog.app.membership import Seat
from turnlog.errors import Conflict, InvalidEvent, NotFound, quote
from turnlog.events import (
    ApprovalDecision,
    ApprovalRequest,
    Event,
    Fault,
    Payload,
    Scope,
    SessionTitle,
    ToolResult,
    UiAction,
    UiCommand,
    UiMessage,
    Unknown,
    decode,
)
from turnlog.events.catalog import unknown_fields
from turnlog.events.roles import EXECUTOR, OWNER
from turnlog.events.ui import Stop
from turnlog.ids import new_id, now_ms
from turnlog.log import Log, Row, line_of
from turnlog.state.tree import closing_id
from turnlog.state.view_actions import check, fault

log = logging.getLogger("turnlog.app")

# Ids that the server or an executor makes of what an event is about: what closes something, lets a guest in,
# answers a call from another process. A member who took one first could keep a turn open.
DERIVED = re.compile(rf"evt_[0-9a-f]{{40}}|evt_00-.*|{REMOTE_ANSWER}.*")


class InvalidAction(InvalidEvent):
    """An action that does not fit the view it is for; `fault` says all that is wrong, and where."""

    def __init__(self, fault: Fault, path: str) -> None:
        super().__init__(fault.message, path)
        self.fault = fault


class Posted(NamedTuple):
    """An event a page wants to append."""

    type: str
    payload: Mapping[str, Any]
    id: str


def is_stop(payload: Payload | Unknown) -> bool:
    """Whether somebody wants what runs to stop."""
    return isinstance(payload, UiCommand) and isinstance(payload.command, Stop)


class Poster:
    """One post of a member in a channel, while its session is held still."""

    def __init__(self, log: Log, seat: Seat, driver: SessionDriver, channel: str | None) -> None:
        self._log = log
        self._seat = seat
        self._channel = channel
        self._driver = driver
        self._places: list[int] = []
        self._views = driver.views

    async def batch(self, posted: Sequence[Posted]) -> list[Event]:
        """The events to append, for what is open now."""
        events: list[Event] = []
        answers: dict[str, tuple[Payload | Unknown, int]] = {}
        self._places.clear()
        self._views = self._driver.views.copy()  # one action after the other, as if they were taken
        for number, item in enumerate(posted):
            path = f"$.events[{number}]"
            event = self._event(item, path)
            if isinstance(event.payload, UiAction):
                event = await self._take(event, event.payload, path)
            call_id = call_of(event.payload)
            if call_id in answers:
                self._places.append(self._again(event.payload, call_id, *answers[call_id]))
                continue
            placed = await self._place(event)
            self._places.append(placed if isinstance(placed, int) else ~len(events))
            events += [] if isinstance(placed, int) else placed
            if call_id is not None:
                answers[call_id] = event.payload, self._places[-1]
        return events

    def places(self, seqs: Sequence[int]) -> list[int]:
        """The seq of everything that was posted, old or new."""
        return [place if place >= 0 else seqs[~place] for place in self._places]

    def _event(self, item: Posted, path: str) -> Event:
        """An event as this member may post it; what is wrong with it has the path in what was posted."""
        seat = self._seat
        # `_place` takes such an id for the answer to the very call that it is made of
        answers_call = item.type == "tool.result" and item.id.startswith(REMOTE_ANSWER)
        if DERIVED.fullmatch(item.id) and not answers_call:
            raise InvalidEvent("expected an id of your own, not one that the server derives", path)
        scope = Scope(channel=self._channel, actor=seat.principal.name)
        self._check_fields(item, path)
        try:
            event = seat.app.catalog.event(item.type, item.payload, id=item.id, origin="ui", scope=scope)
        except InvalidEvent as wrong:
            raise InvalidEvent(wrong.problem, path + wrong.path[1:]) from None
        if not self._may_post(event.payload):
            raise InvalidEvent(f"{item.type} is not for your role to post", path)
        if isinstance(event.payload, UiMessage):
            raise InvalidEvent("expected a message on the send route", path)
        return event

    def _check_fields(self, item: Posted, path: str) -> None:
        """Refuse fields that an event of the application does not have: a misspelt one would be lost."""
        vocabulary = self._seat.app.vocabulary
        kind = vocabulary.kinds.get(item.type) if vocabulary else None
        if kind is None or not (unknown := unknown_fields(kind.payload, item.payload)):
            return
        fields = kind.payload.__struct_encode_fields__
        near = get_close_matches(unknown[0], fields, n=3)
        known = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(fields) or 'none'}"
        raise InvalidEvent(f"{item.type} has no field {quote(unknown[0])}; {known}", f"{path}.payload")

    def _may_post(self, payload: Payload | Unknown) -> bool:
        seat, vocabulary = self._seat, self._seat.app.vocabulary
        if isinstance(payload, SessionTitle):
            return seat.may_rename
        if vocabulary and any(kind.payload is type(payload) for kind in vocabulary):
            return seat.may_post(type(payload))
        return seat.is_member or call_of(payload) is not None

    async def _take(self, event: Event, action: UiAction, path: str) -> Event:
        """An action that fits the view that is open, in its channel, with the event that showed it.

        So whoever handles it later knows whether the view is still the one that the person saw. An action
        that is in the log was taken then.
        """
        known = await self._log.known(self._seat.session_id, [event.id])
        if known:
            stored = self._payload(known[event.id])
            shown = stored.shown if isinstance(stored, UiAction) else None
            return self._where_shown(self._as_shown(event, action, shown), action)
        if problems := check(self._views, action, self._seat.may_see, self._channel):
            if problems[0].kind == "conflict":
                raise Conflict(problems[0].message, self._driver.tree.last)
            raise InvalidAction(fault(problems), path)
        self._views.take(action, self._seat.may_see, self._channel)
        view = self._views.find(action, self._seat.may_see, self._channel)
        return self._where_shown(self._as_shown(event, action, view.event_id if view else None), action)

    def _as_shown(self, event: Event, action: UiAction, shown: str | None) -> Event:
        """An action that names the event which showed its view; what the page said itself stays."""
        if action.shown is not None or shown is None:
            return event
        action = structs.replace(action, shown=shown)
        return self._seat.app.catalog.event(action, id=event.id, origin="ui", scope=event.scope)

    def _where_shown(self, event: Event, action: UiAction) -> Event:
        """An action in the channel of its view: whoever showed it answers."""
        view = self._views.find(action, self._seat.may_see, self._channel)
        if view is None or view.channel is None:
            return event
        return structs.replace(event, scope=structs.replace(event.scope, channel=view.channel))

    async def _place(self, event: Event) -> list[Event] | int:
        """An event with the scope of what it answers; the old seq of an answer given before."""
        call_id = call_of(event.payload)
        if call_id is None or isinstance(event.payload, Unknown):
            return list(self._everywhere(event)) if is_stop(event.payload) else [self._opening(event)]
        try:
            scope, call = waiting_call(self._driver.tree, call_id)
        except NotFound:
            return await self._given(event.payload, call_id)
        if isinstance(event.payload, ApprovalDecision) and call.asked is None:  # another process runs it
            return await self._given(event.payload, call_id)
        if not self._seat.may_see(scope.channel):
            raise NotFound(f"no call {call_id[:80]} waits for an answer")
        if not self._seat.may_answer(call):
            log.warning("%s has no role that may answer %s", self._seat.principal.name, call_id)
            problem = f"{call_id} is for another process: expected the role {EXECUTOR} or {OWNER}"
            raise InvalidEvent(problem, "$.payload.call_id")
        if event.id.startswith(REMOTE_ANSWER) and event.id != answer_id(
            self._seat.session_id, scope.agent_id, call_id
        ):
            raise InvalidEvent("expected an id of your own, not the one of another answer", "$.id")
        if isinstance(event.payload, ToolResult):
            self._check_images(event.payload)
        if call.asked is not None and is_over(call.asked, now_ms()):
            await self._expire(scope, call.asked)
        scope = structs.replace(scope, actor=self._seat.principal.name)
        items = answered(event.payload, scope, call, self._seat.acts_as, now_ms())
        catalog = self._seat.app.catalog
        return [
            catalog.event(
                item.payload, id=new_id("evt_") if number else event.id, origin=item.origin, scope=item.scope
            )
            for number, item in enumerate(items)
        ]

    async def _expire(self, scope: Scope, asked: ApprovalRequest) -> None:
        """Write down that an approval has expired: it stays so when the clock is set back."""
        over = ApprovalDecision(call_id=asked.call_id, args_hash=asked.args_hash, decision="expired")
        event_id = closing_id("approval", f"{scope.agent_id}:{asked.call_id}:{asked.args_hash}")
        event = self._seat.app.catalog.event(over, id=event_id, origin="system", scope=scope)
        await self._log.append(self._seat.session_id, [event])

    def _check_images(self, result: ToolResult) -> None:
        """Refuse pictures from elsewhere: the provider of a model would fetch any address that it gets."""
        own = ("data:image/", f"api/blobs/{self._seat.session_id}/", f"/api/blobs/{self._seat.session_id}/")
        for number, image in enumerate(result.images):
            if not image.src.startswith(own):
                problem = f"expected a blob of this session or a data URI, got {quote(image.src)}"
                raise InvalidEvent(problem, f"$.payload.images[{number}].src")

    def _everywhere(self, event: Event) -> Iterator[Event]:
        """A stop in each channel that this member may stop."""
        for number, channel in enumerate(self._seat.stops):
            more = f"evt_{sha256(f'{event.id}:{channel}'.encode()).hexdigest()[:32]}"
            scope = structs.replace(event.scope, channel=channel)
            yield structs.replace(event, scope=scope, id=more if number else event.id)

    def _opening(self, event: Event) -> Event:
        """An action that answers nothing opens a turn; so does a command that a process is to carry out."""
        told = isinstance(event.payload, UiCommand) and speaks(event.payload.command)
        if not isinstance(event.payload, UiAction) and not (told and self._seat.app.cli):
            return event
        return structs.replace(event, scope=structs.replace(event.scope, trace_id=new_id("tr_")))

    async def _given(self, answer: Payload, call_id: str) -> int:
        """The seq of the same answer, given before; another one is a conflict."""
        agents = self._driver.tree.open.values()  # now: while the log is read the call may end
        trace = next((agent.scope.trace_id for agent in agents if call_id in agent.calls), None)
        row = await self._log.ended(self._seat.session_id, call_id)
        if not isinstance(answer, ToolResult):  # a decision, or an input: the call may still run
            row = await self._decided(answer, call_id, row.trace if row else trace) or row
        if row is None or not self._seat.may_see(row.channel):
            raise NotFound(f"no call {call_id} waits for an answer")
        return self._again(answer, call_id, self._payload(row), row.seq)

    def _again(self, answer: Payload | Unknown, call_id: str, given: Payload | Unknown, place: int) -> int:
        """The place of an answer that comes again; another one is a conflict."""
        if given != answer:
            raise Conflict(f"{call_id} has another answer already", self._driver.tree.last)
        return place

    async def _decided(self, answer: Payload, call_id: str, trace: str | None) -> Row | None:
        """The first answer of its kind to a call, in the turn of the call."""
        place = await self._log.turn(self._seat.session_id, trace) if trace else None
        after, kind = (place[0] - 1 if place else -1), self._seat.app.catalog.name(type(answer))
        while place and (page := await self._log.read(self._seat.session_id, after, origin=-1)):
            for row in page:
                if (row.type, row.trace) == (kind, trace) and call_of(self._payload(row)) == call_id:
                    return row
            after = page.last
        return None

    def _payload(self, row: Row) -> Payload | Unknown:
        return self._seat.app.catalog.payload(decode(line_of(row)))
