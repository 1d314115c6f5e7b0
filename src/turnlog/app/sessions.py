"""The sessions of the served applications: memberships, commands of members, and what members read.

Everything is done through a `Membership`: a session that does not exist, belongs to an application that is
not served, or has no membership for the principal raises the same `NotFound`. Reading writes nothing: it uses
the folds of the session's runner, if this process owns the session, or of a watch. Sending, answering and
stopping append events that ask for work; the owner of the session reads them from the log.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import eq
from typing import Any, Literal, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from turnlog.agents.runtime.approvals import has_any_role
from turnlog.agents.runtime.executor import DescribeError, HungTools, mask_tool_error
from turnlog.agents.runtime.no_runners import NoRunners
from turnlog.agents.runtime.optimistic_append import AppendPlan, append_if_unchanged
from turnlog.agents.runtime.runner_pool import QUIET_S, RunnerPool
from turnlog.agents.runtime.session_folds import SessionFolds
from turnlog.agents.runtime.session_runner import SessionRunner
from turnlog.agents.runtime.session_runtime import EventObserver, NoObserver, RunnerOptions
from turnlog.agents.runtime.session_watch import WatchPool
from turnlog.agents.runtime.user_input import message_events
from turnlog.app.app import App
from turnlog.app.app_state import SessionAppState
from turnlog.app.attachments import settle_content
from turnlog.app.client_events import ClientEventBatch
from turnlog.app.member_changes import MemberChanges
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
from turnlog.app.recordings import Recordings
from turnlog.app.session_creation import (
    alias_session_id,
    default_session_id,
    default_session_key,
    find_newest_default,
    find_session,
    make_session,
)
from turnlog.errors import BadInput, CallerError, Conflict, Fenced, NotFound, Unavailable
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
from turnlog.log import AppendResult, Document, Lease, ListPosition, Log, SessionRecord, envelope_json
from turnlog.log.leases import LeaseState
from turnlog.state.derived_documents import is_document_visible
from turnlog.state.tree import Tree, restrict_to_channels

PAGE_SESSIONS = 100  # default size of a page of a list

CHAT_CHECK_INTERVAL_S = 1.0  # of silence, after which a chat checks that its session's runner still works

Role = Literal["web", "worker", "both"]  # of a process that shares its log with others

BuildEvents = Callable[[SessionFolds], Awaitable[list[Event]]]


class SessionSummary(NamedTuple):
    """A session as a list shows it to a member.

    `last` is None for a member who does not see every event, because it counts all of them.
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


class ChannelStates(msgspec.Struct, omit_defaults=True):
    """The channels of a session in which a turn runs, and in which agents wait; "" is no channel."""

    running: list[str] = []
    waiting: list[str] = []


class Sessions:
    """The sessions of this process' applications.

    `quiet_s`: a session that no request uses and in which nothing runs is released after this time. A process
    of the role `web` runs no sessions: workers that share its log do.
    """

    def __init__(
        self,
        log: Log,
        apps: Iterable[App],
        pid: int,
        observer: EventObserver = NoObserver(),  # noqa: B008
        describe: DescribeError = mask_tool_error,
        quiet_s: float = QUIET_S,
        role: Role = "both",
    ) -> None:
        self.log = log
        self.apps = index_apps(apps)
        hung_tools = HungTools()
        self._runner_options = {
            app.name: RunnerOptions(
                pid, app.turn_limit_s, app.on_crash, observer, describe, hung_tools, describe_state
            )
            for app in self.apps.values()
        }
        self.runners: RunnerPool | NoRunners = NoRunners()
        if role != "web":
            self.runners = RunnerPool(log, self._make_runner, self.apps.keys(), quiet_s)
        self.watches = WatchPool(log, self._make_watch_folds, quiet_s)
        self.recordings = Recordings(log, self.runners, self._synced_folds)
        self.read_models = ReadModelStore(log, self.apps)
        self.member_changes = MemberChanges(log, self.apps)
        # each lock lives while a request uses it, so the maps do not grow with the number of sessions
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._create_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def start(self) -> None:
        """Run the sessions that need an owner: their process has ended, or an event asks for work.

        Warn of stored events of recent sessions that do not fit the classes of their application any more.
        """
        await self.runners.claim_unowned()
        self.runners.start()
        await warn_of_misfits(self.log, self.apps)

    async def drain(self, timeout_s: float) -> None:
        """Hand all sessions over to other processes, each between two steps of its turns."""
        await self.runners.drain(timeout_s)

    async def close(self) -> None:
        """End all work. Calls that wait for an answer stay open, and turns that run are left to the next."""
        self.watches.close()
        await self.recordings.close()
        await self.runners.close()

    def forget(self, session_id: str) -> None:
        """Drop what this process holds of a session that is deleted. Its runner ends with the session."""
        self.watches.drop(session_id)
        self.read_models.forget(session_id)

    # folds

    def _make_watch_folds(self, record: SessionRecord) -> SessionFolds:
        app = self.apps[record.app]
        app_state = SessionAppState(app, record.session_id, logger=None)
        return SessionFolds(self.log, record.session_id, app.catalog, app_state)

    async def _make_runner(self, lease: Lease) -> SessionRunner:
        record = await self.log.info(lease.session_id)
        app = self.apps[record.app]
        self.watches.drop(record.session_id)
        options = self._runner_options[app.name]
        app_state = SessionAppState(app, record.session_id)
        folds = SessionFolds(self.log, record.session_id, app.catalog, app_state)
        return SessionRunner(self.log, lease, folds, app.runtime, app.vocabulary, options)

    async def _synced_folds(self, record: SessionRecord) -> SessionFolds:
        """Return the folds of a session as of now. They write nothing."""
        runner = self.runners.find(record.session_id)
        if runner is not None:
            with suppress(Unavailable):  # it has stopped: a watch reads the log itself
                await runner.wait_for_head()
                return runner.folds
        return await self.watches.synced_folds(record)

    def _session_lock(self, membership: Membership) -> asyncio.Lock:
        return self._locks.setdefault(membership.session_id, asyncio.Lock())

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
        """Create a session, let this process own it, and return the creator's membership."""
        session_id = await make_session(
            self.log, self.get_app(app), principal, title, session_id, wants_work=True
        )
        self.runners.start()
        with suppress(Conflict):  # another process was faster
            await self.runners.open(session_id)
        return await self.get_membership(principal, session_id)

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

        Only the records of this page are read, and no session is opened. A principal with a server role is in
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
        """Return a page of summaries, and the position of the next page. No session is opened."""
        memberships, next_position = await self.list_memberships(principal, after, limit)
        states = await self._lease_states(memberships)
        return self._summarize_all(memberships, states), next_position

    async def summarize(self, membership: Membership) -> SessionSummary:
        """Return a session as its member sees it: events of channels it cannot see change nothing in it."""
        states = await self._lease_states([membership])
        return self._summarize(membership, states.get(membership.session_id, LeaseState()))

    async def _lease_states(self, memberships: Sequence[Membership]) -> dict[str, LeaseState]:
        """Return what the last owners said of those sessions that this process does not run."""
        names = [item.session_id for item in memberships if self.runners.find(item.session_id) is None]
        return await self.log.leases.states(names) if names else {}

    def _summarize_all(
        self, memberships: Sequence[Membership], states: Mapping[str, LeaseState]
    ) -> list[SessionSummary]:
        return [self._summarize(item, states.get(item.session_id, LeaseState())) for item in memberships]

    def _summarize(self, membership: Membership, lease_state: LeaseState) -> SessionSummary:
        record = membership.record
        state = self._state_of(membership, lease_state)
        if membership.visible_channels is None and membership.event_view.shows_all:
            return SessionSummary(membership, state, format_timestamp(record.active_ms(None)), record.last)
        active_ms = record.active_ms(membership.principal.name)
        return SessionSummary(membership, state, format_timestamp(active_ms), None)

    def _state_of(self, membership: Membership, lease_state: LeaseState) -> str:
        """Return closed, running, waiting or idle, by what the member sees.

        A session waits when all its open agents wait, or when a view was not answered. If this process does
        not run it, the state is the one that its last owner has stored. Work that no process has claimed yet
        runs soon: the lease does not say in which channel, so only a member who sees all of them is told.
        """
        if membership.record.closed:
            return "closed"
        runner = self.runners.find(membership.session_id)
        if runner is None:
            if lease_state.is_unclaimed and membership.visible_channels is None:
                return "running"
            return visible_state(decode_state(lease_state.text), membership)
        tree = restrict_to_channels(runner.tree, membership.may_see)
        if tree.open:
            return "waiting" if tree.is_all_waiting else "running"
        if tree.queued_turns:
            return "running"
        return "waiting" if runner.folds.views.has_question(membership.may_see) else "idle"

    async def search(
        self, principal: Principal, text: str, after: ListPosition | None = None, limit: int = PAGE_SESSIONS
    ) -> tuple[list[SessionSummary], ListPosition | None]:
        """Return a page of summaries of sessions whose title contains a text, as `list_summaries` does."""
        owner = None if principal.server_roles else principal.name
        records, next_position = await self.log.search_sessions(owner, text, after, limit)
        found = [self._membership_in(principal, record) for record in records]
        memberships = [membership for membership in found if membership is not None]
        states = await self._lease_states(memberships)
        return self._summarize_all(memberships, states), next_position

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
                    continue  # another server on this store has created it in the meantime

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
        try:
            return await self.create(principal, served_app.name, session_id=session_id)
        except Conflict:  # another server on this store was faster
            return await self.get_membership(principal, session_id)

    # commands

    async def send(
        self, membership: Membership, message: UiMessage, event_id: str | None = None
    ) -> SendResult:
        """Append a message: it opens a turn, or resumes the agents that wait in its channel.

        A message that names no channel is sent in the member's own. A message whose id is in the log already
        is not appended again. Another message under that id raises `Conflict`.
        """
        membership.require_member()
        message = await settle_content(self.log, membership.session_id, resolve_channel(membership, message))
        catalog = membership.app.catalog
        message_id = event_id or new_id("evt_")
        trace = new_id("tr_")

        async def build_events(folds: SessionFolds) -> list[Event]:
            *cancellations, item = message_events(folds.tree, message, trace)
            events = [cancellation.build(catalog, new_id("evt_")) for cancellation in cancellations]
            events.append(with_actor(membership, item).build(catalog, message_id))
            return events

        async with self._session_lock(membership):
            events, result = await self._append(membership, build_events, message_id)
            if not result.new[-1]:
                rows = await self.log.find_events(membership.session_id, [message_id])
                last = await self._last_seq(membership)
                return previous_send(membership.app, message, rows[message_id], last)
        turn = events[-1].scope.trace_id or ""
        return SendResult(result.seqs[-1], message_id, turn, cancelled_calls=len(events) - 1)

    async def _append(
        self, membership: Membership, build_events: BuildEvents, key: str | None = None
    ) -> tuple[Sequence[Event], AppendResult]:
        """Append a member's batch with the events that rules emit. Return the batch and its result.

        If what is open has changed meanwhile, the batch is built again. With a `key`, the id of the batch's
        last event, nothing is appended if the log has that event already. If it is a message, and this
        process owns the session, the start of its turn is part of the append.
        """
        session_id = membership.session_id
        opener: SessionRunner | None = None

        async def make_plan() -> MemberPlan:
            nonlocal opener
            folds = await self._synced_folds(membership.record)
            app_state = folds.app_state
            last = folds.last_seq
            durable_count = folds.durable_count
            events = await build_events(folds)
            joins = membership_events(membership, folds.tree)
            new_events = await self._not_yet_appended(membership, events)
            rule_events = app_state.rule_events(new_events, last + len(joins), "apply")

            opener = self.runners.find(session_id) if key and not rule_events else None
            opening = opener.open_turn(events[-1]) if opener and opener.folds is folds else []
            if not opening:
                opener = None
            # a batch that depends on nothing may be appended wherever the log ends
            is_dependent = (
                bool(rule_events)
                or bool(opening)
                or app_state.may_react_to(new_events)
                or any(event.scope.agent_id for event in events)
            )
            return MemberPlan(
                [*joins, *events, *rule_events, *opening],
                last,
                {"expected_durable_count": durable_count if is_dependent else None},
                own_events=events,
                own_start=len(joins),
            )

        async def append(events: Sequence[Event], **expected: Any) -> AppendResult:
            if opener is not None:
                return await opener.append_opened(events, key=key, **expected)
            return await self.log.append(session_id, events, wants_work=True, key=key, **expected)

        self.runners.start()
        appended = None
        while appended is None:
            # `Fenced`: another process owns the session now, and starts the turn
            with suppress(Fenced):
                appended = await append_if_unchanged(append, make_plan)
        plan, result = appended
        self.runners.retry(session_id)
        seqs = result.seqs[plan.own_start : plan.own_start + len(plan.own_events)]
        return plan.own_events, AppendResult(seqs, result.previous_last)

    async def _not_yet_appended(self, membership: Membership, events: Sequence[Event]) -> Sequence[Event]:
        if not membership.app.has_rules:
            return events
        rows = await self.log.find_events(membership.session_id, [event.id for event in events])
        return [event for event in events if event.id not in rows]

    async def post(self, membership: Membership, client_events: Sequence[ClientEvent]) -> list[int]:
        """Append a page's events (messages, answers, actions, the application's) and return their seqs."""
        batch = ClientEventBatch(self.log, membership, membership.channel)
        async with self._session_lock(membership):
            _, result = await self._append(membership, lambda folds: batch.build_events(folds, client_events))
        return batch.resolve_seqs(result.seqs)

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

        batch = ClientEventBatch(self.log, membership, chat.channel)

        async def build_events(folds: SessionFolds) -> list[Event]:
            direct_events = await batch.build_events(folds, chat.direct_events)
            if message is None:
                scope = waiting_turn_scope(folds.tree, chat.channel, trace)
                return [with_trace(event, scope) for event in direct_events]
            *cancellations, item = message_events(folds.tree, message, trace)
            events = [cancellation.build(catalog, new_id("evt_")) for cancellation in cancellations]
            events += [with_trace(event, item.scope) for event in direct_events]
            events.append(with_actor(membership, item).build(catalog, message_id))
            return events

        async with self._session_lock(membership):
            folds = await self._synced_folds(membership.record)
            result = await self._previous_chat(membership, chat, await build_events(folds), ids)
            if result is None:
                result = await self._append_chat(membership, chat, build_events, ids)
        await self._wait_until_settled(membership, result.turn)
        return result

    async def _append_chat(
        self, membership: Membership, chat: Chat, build_events: BuildEvents, ids: Sequence[str]
    ) -> SendResult:
        async def find_previous() -> SendResult | None:
            folds = await self._synced_folds(membership.record)
            return await self._previous_chat(membership, chat, await build_events(folds), ids)

        try:
            events, appended = await self._append(membership, build_events)
        except Conflict:
            previous = await find_previous()
            if previous is None:
                raise
            return previous
        # another server may have appended the chat since: its turn is the one that runs
        previous = None if all(appended.new) else await find_previous()
        return previous or SendResult(appended.seqs[0], events[-1].id, events[-1].scope.trace_id or "")

    async def _wait_until_settled(self, membership: Membership, turn: str) -> None:
        runner = self.runners.find(membership.session_id)
        if runner is not None:
            with suppress(Unavailable):  # it was released or has stopped: a watch reads the log itself
                await runner.wait_for_head()
                await runner.wait_until_settled(turn)
                return
        await self.watches.wait_until_settled(
            membership.record, turn, CHAT_CHECK_INTERVAL_S, lambda: self._check_runner(membership)
        )

    def _check_runner(self, membership: Membership) -> None:
        """Raise `Unavailable` if the session's runner has failed: its turns do not go on for now."""
        if self.runners.has_failed(membership.session_id):
            raise Unavailable("the session's runner has stopped; try again")

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
        events: list[Event] = []
        for channel in membership.stoppable_channels:
            scope = Scope(channel=channel, actor=membership.principal.name)
            item = EventDraft(UiCommand(command=Stop()), scope, "ui")
            events.append(item.build(membership.app.catalog, new_id("evt_")))
        self.runners.start()
        result = await self.log.append(membership.session_id, events, wants_work=True)
        return result.seqs[0]

    async def _last_seq(self, membership: Membership) -> int:
        return await self.log.last_seq(membership.session_id)

    # reading

    async def tree(self, membership: Membership) -> Tree:
        """Return the open agents and calls, as of the end of the log."""
        return (await self._synced_folds(membership.record)).tree

    async def list_frontend_calls(self, membership: Membership) -> dict[str, tuple[str, str]]:
        """Return the tool and the turn of each call that waits for this member's page, by call id."""
        calls: dict[str, tuple[str, str]] = {}
        folds = await self._synced_folds(membership.record)
        for invocation in folds.tree.open.values():
            if not membership.may_see(invocation.scope.channel):
                continue
            for call_id, call in invocation.calls.items():
                is_frontend_call = call.awaits_page and call.call.executor == "frontend"
                if is_frontend_call and has_any_role(call.roles, membership.effective_roles):
                    calls[call_id] = call.call.tool, invocation.scope.trace_id or ""
        return calls

    async def state(self, membership: Membership) -> tuple[int, Any]:
        """Return the last seq, and the application's state as this member sees it."""
        folds = await self._synced_folds(membership.record)
        return folds.last_seq, membership.visible_state(folds.app_state.state)

    async def misfits(self, membership: Membership) -> list[Misfit]:
        """Return which stored events no longer fit the application's classes; nothing for non-owners."""
        if not membership.is_owner:
            return []
        folds = await self._synced_folds(membership.record)
        assert isinstance(folds.app_state, SessionAppState)
        return list(folds.app_state.misfits.values())

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
        """Return the documents of a session that this member may see: none without internals.

        A document of a reply has its thinking and its calls.
        """
        if not membership.event_view.shows_internals:
            return []
        documents = await self.read_models.documents(
            membership.session_id, type=type, category=category, charge=charge
        )
        channels = membership.visible_channels
        if channels is None:
            return documents
        return [document for document in documents if is_document_visible(channels, document.body)]


def describe_state(runner: SessionRunner) -> str:
    """Return the `ChannelStates` of a session as JSON, for the lists of other processes; "" if it rests."""
    tree = runner.tree
    questions = runner.folds.views.channels_with_questions
    channels = {agent.scope.channel for agent in tree.open.values()}
    channels |= {turn.scope.channel for turn in tree.queued_turns.values()}
    states = ChannelStates()
    for channel in sorted(channels | questions, key=lambda name: name or ""):
        part = restrict_to_channels(tree, partial(eq, channel))
        is_running = bool(part.queued_turns) or not part.is_all_waiting
        (states.running if is_running else states.waiting).append(channel or "")
    if not states.running and not states.waiting:
        return ""
    return msgspec.json.encode(states).decode()


def decode_state(state: str) -> ChannelStates:
    return msgspec.json.decode(state, type=ChannelStates) if state else ChannelStates()


def visible_state(states: ChannelStates, membership: Membership) -> str:
    """Return running, waiting or idle, by the channels that a member sees."""
    if any(membership.may_see(name or None) for name in states.running):
        return "running"
    return "waiting" if any(membership.may_see(name or None) for name in states.waiting) else "idle"


def index_apps(apps: Iterable[App]) -> dict[str, App]:
    """Return applications by name. Raise `CallerError` for none, or for two of the same name."""
    by_name: dict[str, App] = {}
    for app in apps:
        if by_name.setdefault(app.name, app) is not app:
            raise CallerError(f"expected applications of different names, got {app.name} twice")
    if not by_name:
        raise CallerError("expected an application, got none")
    return by_name
