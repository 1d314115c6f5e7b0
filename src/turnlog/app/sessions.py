"""The sessions of the served applications: what their members send to them, and the drivers that run them.

Everything is done from a `Seat`: a session that does not exist, is of an application that is not served, or
has no seat for the principal is the same `NotFound`. A session's driver starts when the session is first
touched in this process, and closes what a dead process left running. Sending, answering and stopping only
append; the driver sees it in the log like everyone else.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from hashlib import sha256
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from turnlog.agents.runtime.agent_driver import ignore_event
from turnlog.agents.runtime.approvals import has_any_role
from turnlog.agents.runtime.drivers import SessionDriver, make_driver
from turnlog.agents.runtime.executor import DescribeError, HungTools, mask_tool_error
from turnlog.agents.runtime.turn_loop import TurnEvent
from turnlog.agents.runtime.user_input import message_events
from turnlog.app.app import App
from turnlog.app.app_state import SessionAppState
from turnlog.app.client_events import ClientEvent, ClientEventBatch
from turnlog.app.member_changes import MemberChanges, RevokeStreams
from turnlog.app.membership import Membership, Principal, membership_of
from turnlog.app.messages import (
    Chat,
    SendResult,
    build_event,
    has_same_payload,
    membership_events,
    previous_send,
    resolve_channel,
    waiting_turn_scope,
    with_actor,
    with_trace,
)
from turnlog.app.read_models import (
    READ_MODEL_NAMES,
    STATE,
    Charge,
    ReadModels,
    ReadModelStore,
    charge_nothing,
)
from turnlog.errors import BadInput, CallerError, Conflict, NotFound, SessionDamaged, TurnlogError
from turnlog.events import (
    Envelope,
    Event,
    Payload,
    Scope,
    SessionMember,
    SessionTitle,
    UiCommand,
    UiMessage,
    UnknownPayload,
)
from turnlog.events.catalog import Misfit
from turnlog.events.envelope import format_timestamp
from turnlog.events.ui import Stop
from turnlog.ids import new_id
from turnlog.log import Document, ListPosition, Log, SessionRecord
from turnlog.state.documents import is_document_visible
from turnlog.state.tree import Tree, restrict_to_channels

PAGE_SESSIONS = 100  # in one page of a list, if the caller names no number

Observe = Callable[[Envelope, Payload | UnknownPayload], None]


def ignore_revocation(session_id: str, change: SessionMember) -> None:
    """Do nothing: where there are no streams."""


class SessionSummary(NamedTuple):
    """A session as a list shows it to a member. `last` is None for who does not see every channel: it counts
    the events of all of them."""

    membership: Membership
    state: str
    last_activity: str
    last: int | None


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
        self._pid = pid
        self._observe = observe
        self._describe = describe
        self._hung_tools = HungTools()
        self.read_models = ReadModelStore(log, self.apps)
        self.member_changes = MemberChanges(log, self.apps, revoke, self._get_driver)
        self._drivers: dict[str, asyncio.Task[SessionDriver]] = {}
        self._recovery: asyncio.Task[None] | None = None
        # Each lock lives while a request holds it or waits for it: the maps do not grow with the sessions.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._create_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def recover(self) -> None:
        """Close what a dead process left running, in every session it worked on."""
        for session_id in await self.log.sessions_with_open_agents():
            head = await self.log.info(session_id)
            if head.app in self.apps:
                await self._get_driver(head)
        self.log.health.on_recovery = self._begin_recovery

    def _begin_recovery(self) -> None:
        """End the turns whose end could not be written, now that the log takes writes again."""
        if self._recovery is None or self._recovery.done():
            self._recovery = asyncio.create_task(self._recover_ended(), context=Context())

    async def _recover_ended(self) -> None:
        left = [session_id for session_id, opened in self._drivers.items() if has_driver_ended(opened)]
        with suppress(TurnlogError):  # the next recovery, or the next touch, tries again
            for session_id in left:
                await self._get_driver(await self.log.info(session_id))

    async def close(self) -> None:
        """Stop every driver; what waits stays open."""
        self.log.health.on_recovery = lambda: None
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.gather(self._recovery, return_exceptions=True)
        opened = await asyncio.gather(*self._drivers.values(), return_exceptions=True)
        closing = [driver.close() for driver in opened if not isinstance(driver, BaseException)]
        for fault in await asyncio.gather(*closing, return_exceptions=True):  # at once: a stop is short
            if fault is not None:
                raise fault

    # seats

    async def create(
        self,
        principal: Principal,
        app: str | None = None,
        title: str | None = None,
        session_id: str | None = None,
    ) -> Membership:
        """A new session of an application, the first one if none is named; whoever makes it is a member."""
        session_id = await make_session(self.log, self.get_app(app), principal, title, session_id)
        seat = await self.get_membership(principal, session_id)
        await self._get_driver(seat.head)
        return seat

    def get_app(self, name: str | None) -> App:
        """An application by its name, the first one without."""
        if name is None:
            return next(iter(self.apps.values()))
        if name not in self.apps:
            raise BadInput(f"expected one of the applications {', '.join(self.apps)}", "$.app")
        return self.apps[name]

    async def get_membership(self, principal: Principal, session_id: str) -> Membership:
        """The seat of a principal in a session."""
        if not session_id:
            raise NotFound("no session was named")
        head = await self.log.info(session_id)
        seat = membership_of(principal, head, self.apps[head.app]) if head.app in self.apps else None
        if seat is None:
            raise NotFound(f"no session {session_id[:80]}")
        return seat

    async def get_membership_by_agent(self, principal: Principal, agent_id: str) -> Membership:
        """The seat of a principal in the session in which an agent speaks, or spoke, that it sees."""
        for session_id, start in await self.log.agent_starts(agent_id):
            head = await self.log.info(session_id)
            seat = membership_of(principal, head, self.apps[head.app]) if head.app in self.apps else None
            if seat is not None and seat.may_see(start.channel):
                return seat
        raise NotFound(f"no session of {agent_id[:80]}")

    async def list_memberships(
        self, principal: Principal, after: ListPosition | None = None, limit: int = PAGE_SESSIONS
    ) -> tuple[list[Membership], ListPosition | None]:
        """A page of the seats of a principal, the last active first, and where the next page begins.

        Reads the heads of this page alone, and opens no driver. A principal with a server role has a seat in
        every session. Sessions of applications that are not served are left out, so a page may be short.
        """
        owner = None if principal.server_roles else principal.name
        found = await self.log.listing(owner, after, limit)
        heads = [head for _, head in found if head.app in self.apps]
        heads.sort(key=lambda head: (head.active_ms(owner), head.session_id), reverse=True)  # to the ms
        seats = [seat for head in heads if (seat := membership_of(principal, head, self.apps[head.app]))]
        return seats, found[-1][0] if len(found) == limit else None

    async def list_summaries(
        self, principal: Principal, after: ListPosition | None = None, limit: int = PAGE_SESSIONS
    ) -> tuple[list[SessionSummary], ListPosition | None]:
        """A page of the sessions of a principal, as it sees them, and where the next page begins."""
        seats, place = await self.list_memberships(principal, after, limit)
        return [await self.summarize(seat) for seat in seats], place

    async def summarize(self, membership: Membership) -> SessionSummary:
        """A session as its member sees it: nothing in it changes with what happens in another channel."""
        head, driver = membership.head, None
        if head.session_id in self._drivers:
            driver = await self._get_driver(head)
        state = self._state_of(membership, driver)
        if membership.visible_channels is None:
            return SessionSummary(membership, state, format_timestamp(head.active_ms(None)), head.last)
        return SessionSummary(
            membership, state, format_timestamp(head.active_ms(membership.principal.name)), None
        )

    def _state_of(self, membership: Membership, driver: SessionDriver | None) -> str:
        """Whether a session is closed, runs, waits or rests, by what its member sees of it.

        It waits when all that is open waits, or when a view was not answered. Without a driver it rests.
        """
        if membership.head.closed:
            return "closed"
        if driver is None:
            return "idle"
        tree = restrict_to_channels(driver.tree, membership.may_see)
        if not tree.open and not tree.queued_turns:
            return "waiting" if driver.views.has_question(membership.may_see) else "idle"
        return "waiting" if tree.open and tree.is_all_waiting else "running"

    async def ensure_default_session(self, principal: Principal, app: str | None = None) -> Membership:
        """The session a principal has in an application without naming one.

        One that is closed, or from which the principal was sent away, has a successor.
        """
        name = self.get_app(app).name
        key = f"{len(principal.name)}:{principal.name}:{name}"
        async with self._create_locks.setdefault(
            key, asyncio.Lock()
        ):  # two requests at once make one session
            number, newest = await self._newest_default(key)
            seat = membership_of(principal, newest, self.apps[name]) if newest else None
            if seat is not None and not seat.head.closed:
                return seat
            return await self.create(principal, name, session_id=default_session_id(key, number + 1))

    async def _newest_default(self, key: str) -> tuple[int, SessionRecord | None]:
        """The number and head of the newest default session under a key; -1 and None without one.

        Each session has a successor only after it: looking twice as far each time, then halving, finds the
        last one of n with about 2 log n looks.
        """
        last, head, step = -1, None, 1
        while found := await self._find_session(default_session_id(key, last + step)):
            last, head, step = last + step, found, 2 * step
        while step > 1:
            step //= 2
            if found := await self._find_session(default_session_id(key, last + step)):
                last, head = last + step, found
        return last, head

    async def _find_session(self, session_id: str) -> SessionRecord | None:
        try:
            return await self.log.info(session_id)
        except NotFound:
            return None

    # drivers

    async def ensure_driver(self, membership: Membership) -> None:
        """Open a session in this process, if it is not."""
        await self._get_driver(membership.head)

    async def _get_driver(self, head: SessionRecord) -> SessionDriver:
        """The driver of a session; the first touch opens it, and so does one that finds it left."""
        session_id = head.session_id
        opened = self._drivers.get(session_id)
        if opened is None or has_driver_ended(opened):
            # the driver serves everyone: it keeps nothing of the request that came first
            opening = self._open(session_id, self.apps[head.app], opened)
            opened = asyncio.create_task(opening, context=Context())
            self._drivers[session_id] = opened
        try:
            return await asyncio.shield(opened)
        except Exception:
            if self._drivers.get(session_id) is opened:
                del self._drivers[session_id]  # the next touch tries again
            raise

    async def _open(
        self, session_id: str, app: App, before: asyncio.Task[SessionDriver] | None
    ) -> SessionDriver:
        if before is not None:
            with suppress(TurnlogError):  # what it cannot close any more, the next one does
                await before.result().close()
        lost: SessionDamaged | None = None
        while True:
            driver = make_driver(
                app.runtime,
                self.log,
                session_id,
                app.catalog,
                app.vocabulary,
                describe=self._describe,
                hung=self._hung_tools,
                observe=self._observe,
                turn_limit_s=app.turn_limit_s,
                ledger=SessionAppState(app, session_id),
            )
            try:
                await driver.open(self._pid)
            except SessionDamaged as damage:  # it is recorded now: the next look passes over it
                if lost is not None and lost.args == damage.args:
                    raise
                lost = damage
            else:
                return driver

    @asynccontextmanager
    async def _synced_driver(self, membership: Membership) -> AsyncIterator[SessionDriver]:
        """The driver when it has seen everything in the log; who decides by what is open decides alone."""
        driver = await self._get_driver(membership.head)
        async with self._locks.setdefault(membership.session_id, asyncio.Lock()):
            await driver.wait_for_seq(await self._last_seq(membership))
            yield driver

    async def _last_seq(self, membership: Membership) -> int:
        """The last seq of a session."""
        return (await self.log.info(membership.session_id)).last

    # sending

    async def send(
        self, membership: Membership, message: UiMessage, event_id: str | None = None
    ) -> SendResult:
        """Append a message: it opens a turn, or goes to the agents that wait and frees them.

        It goes to the member's own channel unless it names another. A message whose id is in the log already
        is not sent again; another message under its id is refused.
        """
        membership.require_member()
        message = resolve_channel(membership, message)
        key, event_id, trace = event_id, event_id or new_id("evt_"), new_id("tr_")
        async with self._synced_driver(membership) as driver:
            if key and (rows := await self.log.find_events(membership.session_id, [key])):
                return previous_send(membership.app, message, rows[key], driver.tree.last_seq)

            async def batch() -> list[Event]:
                items = message_events(driver.tree, message, trace)
                freed = [build_event(membership.app, item) for item in items[:-1]]
                return [*freed, build_event(membership.app, with_actor(membership, items[-1]), event_id)]

            events, seqs = await self._append(driver, membership, batch)
            return SendResult(
                seqs[-1], event_id, events[-1].scope.trace_id or "", cancelled_calls=len(events) - 1
            )

    async def _append(
        self, driver: SessionDriver, membership: Membership, batch: Callable[[], Awaitable[list[Event]]]
    ) -> tuple[list[Event], list[int]]:
        """Append a batch that was made for what is open; when that has changed meanwhile, make it again."""
        while True:
            last, rank, events = driver.tree.last_seq, driver.writer.durable_count, await batch()
            joins, fresh = (
                membership_events(membership, driver.tree),
                await self._not_yet_appended(membership, events),
            )
            follows = driver.writer.app_state.rule_events(fresh, last + len(joins), "apply")
            bound = driver.writer.app_state.may_react_to(fresh) or any(
                event.scope.agent_id for event in events
            )
            expected = rank if follows or bound else None  # what depends on nothing needs no place
            try:
                together = [*joins, *events, *follows]
                seqs = await self.log.append(membership.session_id, together, expected_durable_count=expected)
            except Conflict as conflict:
                if conflict.last == last:
                    raise
                await driver.wait_for_seq(conflict.last)
            else:
                return events, seqs[len(joins) : len(joins) + len(events)]

    async def _not_yet_appended(self, membership: Membership, events: Sequence[Event]) -> Sequence[Event]:
        """The events that are not in the log: from what happened before, nothing follows again."""
        if not membership.app.has_rules:
            return events
        rows = await self.log.find_events(membership.session_id, [event.id for event in events])
        return [event for event in events if event.id not in rows]

    async def post(self, membership: Membership, client_events: Sequence[ClientEvent]) -> list[int]:
        """Append events of a page: answers to what waits, actions, events of the application."""
        async with self._synced_driver(membership) as driver:
            poster = ClientEventBatch(self.log, membership, driver, membership.channel)
            _, seqs = await self._append(driver, membership, lambda: poster.build_events(client_events))
            return poster.resolve_seqs(seqs)

    async def chat(self, membership: Membership, chat: Chat) -> SendResult:
        """Direct events and then a message, in one batch and one turn.

        When the turn is over or everyone in it waits: where the batch begins. A chat whose events are in the
        log already is not sent again.
        """
        membership.require_member()
        trace, message_id = new_id("tr_"), chat.key or new_id("evt_")
        message = chat.message and resolve_channel(membership, chat.message)
        async with self._synced_driver(membership) as driver:
            poster = ClientEventBatch(self.log, membership, driver, chat.channel)

            async def batch() -> list[Event]:
                words = message_events(driver.tree, message, trace) if message else []
                scope = words[-1].scope if words else waiting_turn_scope(driver.tree, chat.channel, trace)
                told = [with_trace(event, scope) for event in await poster.build_events(chat.direct_events)]
                freed = [build_event(membership.app, item) for item in words[:-1]]
                return [
                    *freed,
                    *told,
                    *[
                        build_event(membership.app, with_actor(membership, item), message_id)
                        for item in words[-1:]
                    ],
                ]

            ids = [*[item.id for item in chat.direct_events], *([message_id] if message else [])]
            sent = await self._previous_chat(membership, chat, await batch(), ids)
            if sent is None:
                events, seqs = await self._append(driver, membership, batch)
                sent = SendResult(seqs[0], events[-1].id, events[-1].scope.trace_id or "")
        await driver.wait_for_head()
        await driver.wait_until_idle(sent.turn)
        return sent

    async def _previous_chat(
        self, membership: Membership, chat: Chat, events: Sequence[Event], ids: Sequence[str]
    ) -> SendResult | None:
        """What became of a chat that was sent before; another one under its key or its ids is refused."""
        rows = await self.log.find_events(membership.session_id, [*ids, *chat.collision_ids])
        other = [
            event.id for event in events if event.id in rows and not has_same_payload(event, rows[event.id])
        ]
        whole = rows.keys() == set(ids)
        if chat.key and any(known.startswith(chat.key) for known in rows) and (other or not whole):
            raise Conflict("this key is that of another request", await self._last_seq(membership))
        if other:
            raise Conflict(f"{other[0]} is the id of another event", await self._last_seq(membership))
        if not whole:
            return None
        return SendResult(min(row.seq for row in rows.values()), ids[-1], rows[ids[-1]].trace or "")

    async def stop(self, membership: Membership) -> int:
        """Stop what runs where this member may look; the stop is an event like any other."""
        membership.require_member()
        await self._get_driver(membership.head)
        stop, actor = UiCommand(command=Stop()), membership.principal.name
        scopes = [Scope(channel=channel, actor=actor) for channel in membership.stoppable_channels]
        events = [build_event(membership.app, TurnEvent(stop, scope, "ui")) for scope in scopes]
        return (await self.log.append(membership.session_id, events))[0]

    # looking

    async def tree(self, membership: Membership) -> Tree:
        """What is open, when everything in the log has been taken into account."""
        async with self._synced_driver(membership) as driver:
            return driver.tree

    async def list_frontend_calls(self, membership: Membership) -> dict[str, tuple[str, str]]:
        """The calls that wait for this member's page, each with its tool and its turn."""
        async with self._synced_driver(membership) as driver:
            return {
                call_id: (call.call.tool, invocation.scope.trace_id or "")
                for invocation in driver.tree.open.values()
                for call_id, call in invocation.calls.items()
                if call.awaits_page
                and call.call.executor == "frontend"
                and membership.may_see(invocation.scope.channel)
                and has_any_role(call.roles, membership.effective_roles)
            }

    async def state(self, membership: Membership) -> tuple[int, Any]:
        """The application's state as this member sees it, and the seq it is of."""
        async with self._synced_driver(membership) as driver:
            assert isinstance(driver.writer.app_state, SessionAppState)
            return driver.tree.last_seq, membership.visible_state(driver.writer.app_state.state)

    async def misfits(self, membership: Membership) -> list[Misfit]:
        """Return which stored events no longer fit the application's classes; only owners may know.

        A session that is not open here is not opened for this: that would write into its log.
        """
        if not membership.is_owner or membership.session_id not in self._drivers:
            return []
        driver = await self._get_driver(membership.head)
        assert isinstance(driver.writer.app_state, SessionAppState)
        return list(driver.writer.app_state.misfits.values())

    async def load_read_models(
        self,
        membership: Membership,
        at: int | None = None,
        names: Iterable[str] = READ_MODEL_NAMES,
        charge: Charge = charge_nothing,
    ) -> ReadModels:
        """Parts of what is shown of a session, as of a seq or now; the state as this member sees it."""
        panels = await self.read_models.load_read_models(
            membership.app, membership.session_id, at, {STATE, *names}, charge
        )
        panels.models[STATE].value = membership.visible_state(panels.state)
        return panels

    async def documents(
        self, membership: Membership, type: str | None, category: str | None, charge: Charge = charge_nothing
    ) -> list[Document]:
        """The documents of a session that this member may see."""
        found = await self.read_models.documents(
            membership.session_id, type=type, category=category, charge=charge
        )
        return [
            one
            for one in found
            if membership.visible_channels is None
            or is_document_visible(membership.visible_channels, one.body)
        ]


async def make_session(
    log: Log, app: App, principal: Principal, title: str | None = None, session_id: str | None = None
) -> str:
    """A session with its maker as a member, in which nothing runs yet.

    A session id that is given makes one session, however often: the ids of its first events are derived from
    it, so that they are appended once. Another application or title under the same id is a `Conflict`.
    """
    if session_id is None:
        session_id = await log.create(app.name)
    else:
        await create_once(log, app, session_id, title)
    about: list[Payload] = [SessionMember(principal=principal.name, roles=app.roles.creator)]
    about += [SessionTitle(title=title)] if title else []
    scope = Scope(actor=principal.name)
    events = [
        build_event(app, TurnEvent(payload, scope, "system"), first_event_id(session_id, payload))
        for payload in about
    ]
    await log.append(session_id, events)
    return session_id


async def create_once(log: Log, app: App, session_id: str, title: str | None) -> None:
    """Create a session, unless the same one was created before."""
    try:
        await log.create(app.name, session_id)
    except Conflict:
        head = await log.info(session_id)
        titled = await log.find_events(session_id, [first_event_id(session_id, SessionTitle(title="x"))])
        if head.app != app.name or (titled and not title):
            raise Conflict("another session was made under this key", head.last) from None


def first_event_id(session_id: str, payload: Payload) -> str:
    """The id of one of the first events of a session; pages cannot take ids of this form."""
    return "evt_" + sha256(f"first:{session_id}:{payload.TYPE}".encode()).hexdigest()[:40]


def default_session_id(key: str, number: int) -> str:
    """The id of a principal's session of an application: of the first one, or of a later one."""
    return "sess_" + sha256(f"{key}:{number}".encode()).hexdigest()[:32]


def has_driver_ended(driver_task: asyncio.Task[SessionDriver]) -> bool:
    """Whether a driver was opened and follows its session no more."""
    return (
        driver_task.done()
        and not driver_task.cancelled()
        and not driver_task.exception()
        and driver_task.result().has_ended
    )


def index_apps(apps: Iterable[App]) -> dict[str, App]:
    """Applications by their names, each of which may be there once."""
    found: dict[str, App] = {}
    for app in apps:
        if found.setdefault(app.name, app) is not app:
            raise CallerError(f"expected applications of different names, got {app.name} twice")
    if not found:
        raise CallerError("expected an application, got none")
    return found
