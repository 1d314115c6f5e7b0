"""The sessions of the served applications: memberships, commands of members, and what members read.

Everything is done through a `Membership`: a session that does not exist, belongs to an application that is
not served, or has no membership for the principal raises the same `NotFound`. The first use of a session in
this process opens its driver. Sending, answering and stopping only append events; the driver reads them from
the log.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from turnlog.agents.runtime.agent_driver import ignore_event
from turnlog.agents.runtime.approvals import has_any_role
from turnlog.agents.runtime.drivers import SessionDriver
from turnlog.agents.runtime.executor import DescribeError, mask_tool_error
from turnlog.agents.runtime.optimistic_append import AppendPlan, append_if_unchanged
from turnlog.agents.runtime.user_input import message_events
from turnlog.app.app import App
from turnlog.app.app_state import SessionAppState
from turnlog.app.client_events import ClientEventBatch
from turnlog.app.driver_registry import DriverRegistry, Observe
from turnlog.app.member_changes import MemberChanges, RevokeStreams
from turnlog.app.membership import Membership, Principal, membership_of
from turnlog.app.messages import (
    Chat,
    ClientEvent,
    SendResult,
    has_same_payload,
    membership_events,
    previous_send,
    resolve_channel,
    waiting_turn_scope,
    with_actor,
    with_trace,
)
from turnlog.app.misfits import warn_of_misfits
from turnlog.app.read_models import (
    READ_MODEL_NAMES,
    STATE,
    Charge,
    ReadModels,
    ReadModelStore,
    charge_nothing,
)
from turnlog.app.session_creation import (
    alias_session_id,
    default_session_id,
    default_session_key,
    find_newest_default,
    find_session,
    make_session,
)
from turnlog.errors import BadInput, CallerError, Conflict, NotFound
from turnlog.events import (
    Event,
    EventDraft,
    Scope,
    SessionMember,
    UiCommand,
    UiMessage,
    decode_envelope,
)
from turnlog.events.catalog import Misfit
from turnlog.events.envelope import format_timestamp
from turnlog.events.ui import Stop
from turnlog.ids import new_id
from turnlog.log import Document, ListPosition, Log, SessionRecord, envelope_json
from turnlog.state.derived_documents import is_document_visible
from turnlog.state.tree import Tree, restrict_to_channels

PAGE_SESSIONS = 100  # default size of a page of a list

BuildEvents = Callable[[], Awaitable[list[Event]]]


def ignore_revocation(session_id: str, change: SessionMember) -> None:
    """Do nothing, for servers without streams."""


class SessionSummary(NamedTuple):
    """A session as a list shows it to a member.

    `last` is None for a member who does not see every channel, because it counts the events of all of them.
    """

    membership: Membership
    state: str
    last_activity: str
    last: int | None


@dataclass(slots=True)
class MemberPlan(AppendPlan):
    """A batch of a member: the events that it sent, behind events that record its membership."""

    own_events: Sequence[Event] = field(kw_only=True)
    own_start: int = field(kw_only=True)


class Sessions:
    """The sessions of this process' applications."""

    def __init__(
        self,
        log: Log,
        apps: Iterable[App],
        pid: int,
        observe: Observe = ignore_event,
        revoke: RevokeStreams = ignore_revocation,
        describe: DescribeError = mask_tool_error,
    ) -> None:
        self.log = log
        self.apps = index_apps(apps)
        self.drivers = DriverRegistry(log, self.apps, pid, observe, describe)
        self.read_models = ReadModelStore(log, self.apps)
        self.member_changes = MemberChanges(log, self.apps, revoke, self.drivers.get)
        # each lock lives while a request uses it, so the maps do not grow with the number of sessions
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._create_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def recover(self) -> None:
        """Close what a dead process left running, in every session it worked on.

        Warn of stored events of recent sessions that do not fit the classes of their application any more.
        """
        await self.drivers.recover()
        await warn_of_misfits(self.log, self.apps)

    async def close(self) -> None:
        """Close every driver. Calls that wait for an answer stay open."""
        await self.drivers.close()

    # memberships

    def get_app(self, name: str | None) -> App:
        """Return an application by its name; without a name, the first one."""
        if name is None:
            return next(iter(self.apps.values()))
        if name not in self.apps:
            raise BadInput(f"expected one of the applications {', '.join(self.apps)}", "$.app")
        return self.apps[name]

    async def create(
        self,
        principal: Principal,
        app: str | None = None,
        title: str | None = None,
        session_id: str | None = None,
    ) -> Membership:
        """Create a session, open its driver and return the creator's membership."""
        session_id = await make_session(self.log, self.get_app(app), principal, title, session_id)
        membership = await self.get_membership(principal, session_id)
        await self.drivers.get(membership.record)
        return membership

    async def get_membership(self, principal: Principal, session_id: str) -> Membership:
        if not session_id:
            raise NotFound("no session was named")
        membership = self._membership_in(principal, await self.log.info(session_id))
        if membership is None:
            raise NotFound(f"no session {session_id[:80]}")
        return membership

    def _membership_in(self, principal: Principal, record: SessionRecord) -> Membership | None:
        app = self.apps.get(record.app)
        return membership_of(principal, record, app) if app else None

    async def get_membership_by_agent(self, principal: Principal, agent_id: str) -> Membership:
        """Return the membership in the session of an agent, if the principal may see the agent."""
        for session_id, start in await self.log.agent_starts(agent_id):
            membership = self._membership_in(principal, await self.log.info(session_id))
            if membership is not None and membership.may_see(start.channel):
                return membership
        raise NotFound(f"no session of {agent_id[:80]}")

    async def list_memberships(
        self, principal: Principal, after: ListPosition | None = None, limit: int = PAGE_SESSIONS
    ) -> tuple[list[Membership], ListPosition | None]:
        """Return a page of memberships, the last active first, and the position of the next page.

        Only the records of this page are read, and no driver is opened. A principal with a server role is in
        every session. Sessions of applications that are not served are left out, so a page may be short.
        """
        owner = None if principal.server_roles else principal.name
        listed = await self.log.listing(owner, after, limit)
        records = [record for _, record in listed]
        # the listing is sorted by seconds
        records.sort(key=lambda record: (record.active_ms(owner), record.session_id), reverse=True)
        memberships = [self._membership_in(principal, record) for record in records]
        next_position = listed[-1][0] if len(listed) == limit else None
        return [membership for membership in memberships if membership is not None], next_position

    async def list_summaries(
        self, principal: Principal, after: ListPosition | None = None, limit: int = PAGE_SESSIONS
    ) -> tuple[list[SessionSummary], ListPosition | None]:
        """Return a page of summaries, and the position of the next page."""
        memberships, next_position = await self.list_memberships(principal, after, limit)
        return [await self.summarize(membership) for membership in memberships], next_position

    async def summarize(self, membership: Membership) -> SessionSummary:
        """Return a session as its member sees it: events of channels it cannot see change nothing in it."""
        record = membership.record
        driver = None
        if self.drivers.has_driver(record.session_id):
            driver = await self.drivers.get(record)
        state = self._state_of(membership, driver)
        if membership.visible_channels is None:
            return SessionSummary(membership, state, format_timestamp(record.active_ms(None)), record.last)
        active_ms = record.active_ms(membership.principal.name)
        return SessionSummary(membership, state, format_timestamp(active_ms), None)

    def _state_of(self, membership: Membership, driver: SessionDriver | None) -> str:
        """Return closed, running, waiting or idle, by what the member sees.

        A session waits when all its open agents wait, or when a view was not answered. Without a driver it is
        idle.
        """
        if membership.record.closed:
            return "closed"
        if driver is None:
            return "idle"
        tree = restrict_to_channels(driver.tree, membership.may_see)
        if tree.open:
            return "waiting" if tree.is_all_waiting else "running"
        if tree.queued_turns:
            return "running"
        return "waiting" if driver.views.has_question(membership.may_see) else "idle"

    # default sessions

    async def ensure_default_session(self, principal: Principal, app: str | None = None) -> Membership:
        """Return the session that a principal has in an application without naming one.

        If it is closed, or the principal was removed from it, a new one is created. A shared session is the
        same for all principals. Each joins it with its first request; `Forbidden` is raised for those who
        were removed from it.
        """
        served_app = self.get_app(app)
        key = default_session_key(principal, served_app)
        # two requests at once create one session
        async with self._create_locks.setdefault(key, asyncio.Lock()):
            while True:
                number, newest = await find_newest_default(self.log, key)
                membership = membership_of(principal, newest, served_app) if newest else None
                if newest is not None and not newest.closed:
                    if membership is not None:
                        return membership
                    if served_app.shared_session:
                        await self.member_changes.join_shared_session(principal.name, newest.session_id)
                        return await self.get_membership(principal, newest.session_id)
                session_id = default_session_id(key, number + 1)
                try:
                    return await self.create(principal, served_app.name, session_id=session_id)
                except Conflict:
                    # Another server on this store has created the shared session for another principal.
                    if not served_app.shared_session:
                        raise

    # aliases

    async def find_by_alias(
        self, principal: Principal, alias: str, app: str | None = None
    ) -> Membership | None:
        """Return the session under a principal's alias; None without one. `NotFound`: it is not a member."""
        session_id = alias_session_id(principal, self.get_app(app), alias)
        if await find_session(self.log, session_id) is None:
            return None
        return await self.get_membership(principal, session_id)

    async def create_with_alias(self, principal: Principal, alias: str, app: str | None = None) -> Membership:
        """Create the session under a principal's alias; two requests at once create one session."""
        served_app = self.get_app(app)
        session_id = alias_session_id(principal, served_app, alias)
        return await self.create(principal, served_app.name, session_id=session_id)

    # drivers

    async def ensure_driver(self, membership: Membership) -> None:
        """Open the session's driver, if this process has none."""
        await self.drivers.get(membership.record)

    @asynccontextmanager
    async def _synced_driver(self, membership: Membership) -> AsyncIterator[SessionDriver]:
        """Yield the driver, caught up with the log, under the session's lock."""
        driver = await self.drivers.get(membership.record)
        async with self._locks.setdefault(membership.session_id, asyncio.Lock()):
            await driver.wait_for_seq(await self._last_seq(membership))
            yield driver

    async def _last_seq(self, membership: Membership) -> int:
        return await self.log.last_seq(membership.session_id)

    # commands

    async def send(
        self, membership: Membership, message: UiMessage, event_id: str | None = None
    ) -> SendResult:
        """Append a message: it opens a turn, or resumes the agents that wait in its channel.

        A message that names no channel is sent in the member's own. A message whose id is in the log already
        is not appended again. Another message under that id raises `Conflict`.
        """
        membership.require_member()
        message = resolve_channel(membership, message)
        catalog = membership.app.catalog
        message_id = event_id or new_id("evt_")
        trace = new_id("tr_")
        async with self._synced_driver(membership) as driver:
            if event_id:
                rows = await self.log.find_events(membership.session_id, [event_id])
                if rows:
                    return previous_send(membership.app, message, rows[event_id], driver.tree.last_seq)

            async def build_events() -> list[Event]:
                *cancellations, item = message_events(driver.tree, message, trace)
                events = [cancellation.build(catalog, new_id("evt_")) for cancellation in cancellations]
                events.append(with_actor(membership, item).build(catalog, message_id))
                return events

            events, seqs = await self._append(driver, membership, build_events)
            turn = events[-1].scope.trace_id or ""
            return SendResult(seqs[-1], message_id, turn, cancelled_calls=len(events) - 1)

    async def _append(
        self,
        driver: SessionDriver,
        membership: Membership,
        build_events: Callable[[], Awaitable[list[Event]]],
    ) -> tuple[Sequence[Event], list[int]]:
        """Append a member's batch with the events that rules emit. Return the batch and its seqs.

        If what is open has changed meanwhile, the batch is built again.
        """
        app_state = driver.writer.app_state

        async def make_plan() -> MemberPlan:
            last = driver.tree.last_seq
            durable_count = driver.writer.durable_count
            events = await build_events()
            joins = membership_events(membership, driver.tree)
            new_events = await self._not_yet_appended(membership, events)
            rule_events = app_state.rule_events(new_events, last + len(joins), "apply")
            # a batch that depends on nothing may be appended wherever the log ends
            is_dependent = (
                bool(rule_events)
                or app_state.may_react_to(new_events)
                or any(event.scope.agent_id for event in events)
            )
            return MemberPlan(
                [*joins, *events, *rule_events],
                last,
                {"expected_durable_count": durable_count if is_dependent else None},
                own_events=events,
                own_start=len(joins),
            )

        appended = await append_if_unchanged(
            partial(self.log.append, membership.session_id), make_plan, driver.wait_for_seq
        )
        assert appended is not None
        plan, result = appended
        return plan.own_events, result.seqs[plan.own_start : plan.own_start + len(plan.own_events)]

    async def _not_yet_appended(self, membership: Membership, events: Sequence[Event]) -> Sequence[Event]:
        if not membership.app.has_rules:
            return events
        rows = await self.log.find_events(membership.session_id, [event.id for event in events])
        return [event for event in events if event.id not in rows]

    async def post(self, membership: Membership, client_events: Sequence[ClientEvent]) -> list[int]:
        """Append a page's events (messages, answers, actions, the application's) and return their seqs."""
        async with self._synced_driver(membership) as driver:
            batch = ClientEventBatch(self.log, membership, driver, membership.channel)
            _, seqs = await self._append(driver, membership, lambda: batch.build_events(client_events))
            return batch.resolve_seqs(seqs)

    async def chat(self, membership: Membership, chat: Chat) -> SendResult:
        """Append a page's events and then a message, in one batch and one turn.

        Return when the turn has ended or all its agents wait. The seq is that of the batch's first event. A
        chat whose events are in the log already is not appended again.
        """
        membership.require_member()
        catalog = membership.app.catalog
        trace = new_id("tr_")
        message_id = chat.key or new_id("evt_")
        message = resolve_channel(membership, chat.message) if chat.message else None
        ids = [item.id for item in chat.direct_events]
        if message is not None:
            ids.append(message_id)

        async with self._synced_driver(membership) as driver:
            batch = ClientEventBatch(self.log, membership, driver, chat.channel)

            async def build_events() -> list[Event]:
                direct_events = await batch.build_events(chat.direct_events)
                if message is None:
                    scope = waiting_turn_scope(driver.tree, chat.channel, trace)
                    return [with_trace(event, scope) for event in direct_events]
                *cancellations, item = message_events(driver.tree, message, trace)
                events = [cancellation.build(catalog, new_id("evt_")) for cancellation in cancellations]
                events += [with_trace(event, item.scope) for event in direct_events]
                events.append(with_actor(membership, item).build(catalog, message_id))
                return events

            result = await self._previous_chat(membership, chat, await build_events(), ids)
            if result is None:
                events, seqs = await self._append(driver, membership, build_events)
                result = SendResult(seqs[0], events[-1].id, events[-1].scope.trace_id or "")
        await driver.wait_for_head()
        await driver.wait_until_idle(result.turn)
        return result

    async def _previous_chat(
        self, membership: Membership, chat: Chat, events: Sequence[Event], ids: Sequence[str]
    ) -> SendResult | None:
        """Return the result of a chat that was sent before. Raise `Conflict` if its key or ids differ."""
        rows = await self.log.find_events(membership.session_id, [*ids, *chat.collision_ids])
        different = [
            event.id for event in events if event.id in rows and not has_same_payload(event, rows[event.id])
        ]
        is_complete = rows.keys() == set(ids)
        key = chat.key or ""
        has_key = bool(key) and any(event_id.startswith(key) for event_id in rows)
        if has_key and (different or not is_complete):
            raise Conflict("this key is that of another request", await self._last_seq(membership))
        if different:
            raise Conflict(f"{different[0]} is the id of another event", await self._last_seq(membership))
        if not is_complete:
            return None
        first_seq = min(row.seq for row in rows.values())
        return SendResult(first_seq, ids[-1], rows[ids[-1]].trace or "")

    async def other_member_names(self, membership: Membership) -> set[str]:
        """Return the principals and display names of the other members, and of those who left, casefolded."""
        end = membership.record.members_seq + 1
        rows = await self.log.rows_of_types(membership.session_id, (SessionMember.TYPE,), 0, end)
        names: set[str] = set()
        for row in rows:
            member = membership.app.catalog.decode_payload(decode_envelope(envelope_json(row)))
            if isinstance(member, SessionMember) and member.principal != membership.principal.name:
                names.update(name.casefold() for name in (member.principal, member.name) if name)
        return names

    async def stop(self, membership: Membership) -> int:
        """Append a stop for the channels that this member may stop. Return the seq of the first."""
        membership.require_member()
        await self.drivers.get(membership.record)
        events: list[Event] = []
        for channel in membership.stoppable_channels:
            scope = Scope(channel=channel, actor=membership.principal.name)
            item = EventDraft(UiCommand(command=Stop()), scope, "ui")
            events.append(item.build(membership.app.catalog, new_id("evt_")))
        result = await self.log.append(membership.session_id, events)
        return result.seqs[0]

    # reading

    async def tree(self, membership: Membership) -> Tree:
        """Return the open agents and calls, as of the end of the log."""
        async with self._synced_driver(membership) as driver:
            return driver.tree

    async def list_frontend_calls(self, membership: Membership) -> dict[str, tuple[str, str]]:
        """Return the tool and the turn of each call that waits for this member's page, by call id."""
        calls: dict[str, tuple[str, str]] = {}
        async with self._synced_driver(membership) as driver:
            for invocation in driver.tree.open.values():
                if not membership.may_see(invocation.scope.channel):
                    continue
                for call_id, call in invocation.calls.items():
                    is_frontend_call = call.awaits_page and call.call.executor == "frontend"
                    if is_frontend_call and has_any_role(call.roles, membership.effective_roles):
                        calls[call_id] = call.call.tool, invocation.scope.trace_id or ""
        return calls

    async def state(self, membership: Membership) -> tuple[int, Any]:
        """Return the last seq, and the application's state as this member sees it."""
        async with self._synced_driver(membership) as driver:
            assert isinstance(driver.writer.app_state, SessionAppState)
            return driver.tree.last_seq, membership.visible_state(driver.writer.app_state.state)

    async def misfits(self, membership: Membership) -> list[Misfit]:
        """Return which stored events no longer fit the application's classes; nothing for non-owners.

        A session without a driver is not opened for this: that would write to its log.
        """
        if not membership.is_owner or not self.drivers.has_driver(membership.session_id):
            return []
        driver = await self.drivers.get(membership.record)
        assert isinstance(driver.writer.app_state, SessionAppState)
        return list(driver.writer.app_state.misfits.values())

    async def load_read_models(
        self,
        membership: Membership,
        at: int | None = None,
        names: Iterable[str] = READ_MODEL_NAMES,
        charge: Charge = charge_nothing,
    ) -> ReadModels:
        """Return read models as of a seq, or now. The state is what this member sees of it."""
        read_models = await self.read_models.load_read_models(
            membership.app, membership.session_id, at, {STATE, *names}, charge
        )
        read_models.models[STATE].value = membership.visible_state(read_models.state)
        return read_models

    async def documents(
        self, membership: Membership, type: str | None, category: str | None, charge: Charge = charge_nothing
    ) -> list[Document]:
        """Return the documents of a session that this member may see."""
        documents = await self.read_models.documents(
            membership.session_id, type=type, category=category, charge=charge
        )
        channels = membership.visible_channels
        if channels is None:
            return documents
        return [document for document in documents if is_document_visible(channels, document.body)]


def index_apps(apps: Iterable[App]) -> dict[str, App]:
    """Return applications by name. Raise `CallerError` for none, or for two of the same name."""
    by_name: dict[str, App] = {}
    for app in apps:
        if by_name.setdefault(app.name, app) is not app:
            raise CallerError(f"expected applications of different names, got {app.name} twice")
    if not by_name:
        raise CallerError("expected an application, got none")
    return by_name
