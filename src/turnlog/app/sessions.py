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

from turnlog.agents.answers import message_batch
from turnlog.agents.approvals import entitled
from turnlog.agents.driver import unobserved
from turnlog.agents.drivers import SessionDriver, driver_of
from turnlog.agents.executor import Describe, HungTools, mask
from turnlog.agents.loop import Item
from turnlog.app.app import App
from turnlog.app.derived import PARTS, STATE, Charge, Derived, Panels, charge_nothing
from turnlog.app.ledger import Ledger
from turnlog.app.members import Principal, Seat, seat_of
from turnlog.app.membership import Membership, Revoke
from turnlog.app.posting import Posted, Poster
from turnlog.app.sending import (
    Chat,
    Sent,
    by,
    in_channel,
    in_turn,
    joining,
    made,
    same_words,
    sent_before,
    waiting_scope,
)
from turnlog.errors import BadInput, CallerError, Conflict, Damaged, NotFound, TurnlogError
from turnlog.events import (
    Envelope,
    Event,
    Payload,
    Scope,
    SessionMember,
    SessionTitle,
    UiCommand,
    UiMessage,
    Unknown,
)
from turnlog.events.catalog import Misfit
from turnlog.events.envelope import timestamp
from turnlog.events.ui import Stop
from turnlog.ids import new_id
from turnlog.log import Document, Head, Log, Place
from turnlog.state.documents import seen_in
from turnlog.state.tree import Tree, within

PAGE_SESSIONS = 100  # in one page of a list, if the caller names no number

Observe = Callable[[Envelope, Payload | Unknown], None]


def keep_streams(session_id: str, change: SessionMember) -> None:
    """Do nothing: where there are no streams."""


class Listed(NamedTuple):
    """A session as a list shows it to a member. `last` is None for who does not see every channel: it counts
    the events of all of them."""

    seat: Seat
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
        observe: Observe = unobserved,
        revoke: Revoke = keep_streams,
        describe: Describe = mask,
    ) -> None:
        self.log = log
        self.apps = by_name(apps)
        self._pid = pid
        self._observe = observe
        self._describe = describe
        self._hung = HungTools()
        self.derived = Derived(log, self.apps)
        self.membership = Membership(log, self.apps, revoke, self._driver)
        self._drivers: dict[str, asyncio.Task[SessionDriver]] = {}
        self._recovery: asyncio.Task[None] | None = None
        # Each lock lives while a request holds it or waits for it: the maps do not grow with the sessions.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._making: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def recover(self) -> None:
        """Close what a dead process left running, in every session it worked on."""
        for session_id in await self.log.unfinished():
            head = await self.log.info(session_id)
            if head.app in self.apps:
                await self._driver(head)
        self.log.health.on_recovery = self._begin_recovery

    def _begin_recovery(self) -> None:
        """End the turns whose end could not be written, now that the log takes writes again."""
        if self._recovery is None or self._recovery.done():
            self._recovery = asyncio.create_task(self._recover_left(), context=Context())

    async def _recover_left(self) -> None:
        left = [session_id for session_id, opened in self._drivers.items() if is_left(opened)]
        with suppress(TurnlogError):  # the next recovery, or the next touch, tries again
            for session_id in left:
                await self._driver(await self.log.info(session_id))

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
    ) -> Seat:
        """A new session of an application, the first one if none is named; whoever makes it is a member."""
        session_id = await make_session(self.log, self.app(app), principal, title, session_id)
        seat = await self.seat(principal, session_id)
        await self._driver(seat.head)
        return seat

    def app(self, name: str | None) -> App:
        """An application by its name, the first one without."""
        if name is None:
            return next(iter(self.apps.values()))
        if name not in self.apps:
            raise BadInput(f"expected one of the applications {', '.join(self.apps)}", "$.app")
        return self.apps[name]

    async def seat(self, principal: Principal, session_id: str) -> Seat:
        """The seat of a principal in a session."""
        if not session_id:
            raise NotFound("no session was named")
        head = await self.log.info(session_id)
        seat = seat_of(principal, head, self.apps[head.app]) if head.app in self.apps else None
        if seat is None:
            raise NotFound(f"no session {session_id[:80]}")
        return seat

    async def seat_beside(self, principal: Principal, agent_id: str) -> Seat:
        """The seat of a principal in the session in which an agent speaks, or spoke, that it sees."""
        for session_id, start in await self.log.agent_starts(agent_id):
            head = await self.log.info(session_id)
            seat = seat_of(principal, head, self.apps[head.app]) if head.app in self.apps else None
            if seat is not None and seat.may_see(start.channel):
                return seat
        raise NotFound(f"no session of {agent_id[:80]}")

    async def seats_of(
        self, principal: Principal, after: Place | None = None, limit: int = PAGE_SESSIONS
    ) -> tuple[list[Seat], Place | None]:
        """A page of the seats of a principal, the last active first, and where the next page begins.

        Reads the heads of this page alone, and opens no driver. A principal with a server role has a seat in
        every session. Sessions of applications that are not served are left out, so a page may be short.
        """
        owner = None if principal.server_roles else principal.name
        found = await self.log.listing(owner, after, limit)
        heads = [head for _, head in found if head.app in self.apps]
        heads.sort(key=lambda head: (head.active_ms(owner), head.session_id), reverse=True)  # to the ms
        seats = [seat for head in heads if (seat := seat_of(principal, head, self.apps[head.app]))]
        return seats, found[-1][0] if len(found) == limit else None

    async def seats(
        self, principal: Principal, after: Place | None = None, limit: int = PAGE_SESSIONS
    ) -> tuple[list[Listed], Place | None]:
        """A page of the sessions of a principal, as it sees them, and where the next page begins."""
        seats, place = await self.seats_of(principal, after, limit)
        return [await self.listed(seat) for seat in seats], place

    async def listed(self, seat: Seat) -> Listed:
        """A session as its member sees it: nothing in it changes with what happens in another channel."""
        head, driver = seat.head, None
        if head.session_id in self._drivers:
            driver = await self._driver(head)
        state = self._state_of(seat, driver)
        if seat.sees is None:
            return Listed(seat, state, timestamp(head.active_ms(None)), head.last)
        return Listed(seat, state, timestamp(head.active_ms(seat.principal.name)), None)

    def _state_of(self, seat: Seat, driver: SessionDriver | None) -> str:
        """Whether a session is closed, runs, waits or rests, by what its member sees of it.

        It waits when all that is open waits, or when a view was not answered. Without a driver it rests.
        """
        if seat.head.closed:
            return "closed"
        if driver is None:
            return "idle"
        tree = within(driver.tree, seat.may_see)
        if not tree.open and not tree.queue:
            return "waiting" if driver.views.has_question(seat.may_see) else "idle"
        return "waiting" if tree.open and tree.all_wait else "running"

    async def default(self, principal: Principal, app: str | None = None) -> Seat:
        """The session a principal has in an application without naming one.

        One that is closed, or from which the principal was sent away, has a successor.
        """
        name = self.app(app).name
        key = f"{len(principal.name)}:{principal.name}:{name}"
        async with self._making.setdefault(key, asyncio.Lock()):  # two requests at once make one session
            number, newest = await self._newest(key)
            seat = seat_of(principal, newest, self.apps[name]) if newest else None
            if seat is not None and not seat.head.closed:
                return seat
            return await self.create(principal, name, session_id=default_id(key, number + 1))

    async def _newest(self, key: str) -> tuple[int, Head | None]:
        """The number and head of the newest default session under a key; -1 and None without one.

        Each session has a successor only after it: looking twice as far each time, then halving, finds the
        last one of n with about 2 log n looks.
        """
        last, head, step = -1, None, 1
        while found := await self._head(default_id(key, last + step)):
            last, head, step = last + step, found, 2 * step
        while step > 1:
            step //= 2
            if found := await self._head(default_id(key, last + step)):
                last, head = last + step, found
        return last, head

    async def _head(self, session_id: str) -> Head | None:
        try:
            return await self.log.info(session_id)
        except NotFound:
            return None

    # drivers

    async def touch(self, seat: Seat) -> None:
        """Open a session in this process, if it is not."""
        await self._driver(seat.head)

    async def _driver(self, head: Head) -> SessionDriver:
        """The driver of a session; the first touch opens it, and so does one that finds it left."""
        session_id = head.session_id
        opened = self._drivers.get(session_id)
        if opened is None or is_left(opened):
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
        lost: Damaged | None = None
        while True:
            driver = driver_of(
                app.who,
                self.log,
                session_id,
                app.catalog,
                app.vocabulary,
                describe=self._describe,
                hung=self._hung,
                observe=self._observe,
                turn_limit_s=app.turn_limit_s,
                ledger=Ledger(app, session_id),
            )
            try:
                await driver.open(self._pid)
            except Damaged as damage:  # it is recorded now: the next look passes over it
                if lost is not None and lost.args == damage.args:
                    raise
                lost = damage
            else:
                return driver

    @asynccontextmanager
    async def _settled(self, seat: Seat) -> AsyncIterator[SessionDriver]:
        """The driver when it has seen everything in the log; who decides by what is open decides alone."""
        driver = await self._driver(seat.head)
        async with self._locks.setdefault(seat.session_id, asyncio.Lock()):
            await driver.reached(await self._last(seat))
            yield driver

    async def _last(self, seat: Seat) -> int:
        """The last seq of a session."""
        return await self.log.last_seq(seat.session_id)

    # sending

    async def send(self, seat: Seat, message: UiMessage, event_id: str | None = None) -> Sent:
        """Append a message: it opens a turn, or goes to the agents that wait and frees them.

        It goes to the member's own channel unless it names another. A message whose id is in the log already
        is not sent again; another message under its id is refused.
        """
        seat.must_be_member()
        message = in_channel(seat, message)
        key, event_id, trace = event_id, event_id or new_id("evt_"), new_id("tr_")
        async with self._settled(seat) as driver:
            if key and (rows := await self.log.known(seat.session_id, [key])):
                return sent_before(seat.app, message, rows[key], driver.tree.last)

            async def batch() -> list[Event]:
                items = message_batch(driver.tree, message, trace)
                freed = [made(seat.app, item) for item in items[:-1]]
                return [*freed, made(seat.app, by(seat, items[-1]), event_id)]

            events, seqs = await self._append(driver, seat, batch)
            return Sent(seqs[-1], event_id, events[-1].scope.trace_id or "", freed=len(events) - 1)

    async def _append(
        self, driver: SessionDriver, seat: Seat, batch: Callable[[], Awaitable[list[Event]]]
    ) -> tuple[list[Event], list[int]]:
        """Append a batch that was made for what is open; when that has changed meanwhile, make it again."""
        while True:
            last, rank, events = driver.tree.last, driver.pen.rank, await batch()
            joins, fresh = joining(seat, driver.tree), await self._fresh(seat, events)
            follows = driver.pen.ledger.follows(fresh, last + len(joins), "apply")
            bound = driver.pen.ledger.binds(fresh) or any(event.scope.agent_id for event in events)
            expected = rank if follows or bound else None  # what depends on nothing needs no place
            try:
                together = [*joins, *events, *follows]
                seqs = await self.log.append(seat.session_id, together, expected_rank=expected)
            except Conflict as conflict:
                if conflict.last == last:
                    raise
                await driver.reached(conflict.last)
            else:
                return events, seqs[len(joins) : len(joins) + len(events)]

    async def _fresh(self, seat: Seat, events: Sequence[Event]) -> Sequence[Event]:
        """The events that are not in the log: from what happened before, nothing follows again."""
        if not seat.app.rules:
            return events
        rows = await self.log.known(seat.session_id, [event.id for event in events])
        return [event for event in events if event.id not in rows]

    async def post(self, seat: Seat, posted: Sequence[Posted]) -> list[int]:
        """Append events of a page: answers to what waits, actions, events of the application."""
        async with self._settled(seat) as driver:
            poster = Poster(self.log, seat, driver, seat.channel)
            _, seqs = await self._append(driver, seat, lambda: poster.batch(posted))
            return poster.places(seqs)

    async def chat(self, seat: Seat, chat: Chat) -> Sent:
        """Direct events and then a message, in one batch and one turn.

        When the turn is over or everyone in it waits: where the batch begins. A chat whose events are in the
        log already is not sent again.
        """
        seat.must_be_member()
        trace, message_id = new_id("tr_"), chat.key or new_id("evt_")
        message = chat.message and in_channel(seat, chat.message)
        async with self._settled(seat) as driver:
            poster = Poster(self.log, seat, driver, chat.channel)

            async def batch() -> list[Event]:
                words = message_batch(driver.tree, message, trace) if message else []
                scope = words[-1].scope if words else waiting_scope(driver.tree, chat.channel, trace)
                told = [in_turn(event, scope) for event in await poster.batch(chat.direct)]
                freed = [made(seat.app, item) for item in words[:-1]]
                return [*freed, *told, *[made(seat.app, by(seat, item), message_id) for item in words[-1:]]]

            ids = [*[item.id for item in chat.direct], *([message_id] if message else [])]
            sent = await self._sent(seat, chat, await batch(), ids)
            if sent is None:
                events, seqs = await self._append(driver, seat, batch)
                sent = Sent(seqs[0], events[-1].id, events[-1].scope.trace_id or "")
        await driver.caught_up()
        await driver.rested(sent.turn)
        return sent

    async def _sent(self, seat: Seat, chat: Chat, events: Sequence[Event], ids: Sequence[str]) -> Sent | None:
        """What became of a chat that was sent before; another one under its key or its ids is refused."""
        rows = await self.log.known(seat.session_id, [*ids, *chat.others])
        other = [event.id for event in events if event.id in rows and not same_words(event, rows[event.id])]
        whole = rows.keys() == set(ids)
        if chat.key and any(known.startswith(chat.key) for known in rows) and (other or not whole):
            raise Conflict("this key is that of another request", await self._last(seat))
        if other:
            raise Conflict(f"{other[0]} is the id of another event", await self._last(seat))
        if not whole:
            return None
        return Sent(min(row.seq for row in rows.values()), ids[-1], rows[ids[-1]].trace or "")

    async def stop(self, seat: Seat) -> int:
        """Stop what runs where this member may look; the stop is an event like any other."""
        seat.must_be_member()
        await self._driver(seat.head)
        stop, actor = UiCommand(command=Stop()), seat.principal.name
        scopes = [Scope(channel=channel, actor=actor) for channel in seat.stops]
        events = [made(seat.app, Item(stop, scope, "ui")) for scope in scopes]
        return (await self.log.append(seat.session_id, events))[0]

    # looking

    async def tree(self, seat: Seat) -> Tree:
        """What is open, when everything in the log has been taken into account."""
        async with self._settled(seat) as driver:
            return driver.tree

    async def awaited(self, seat: Seat) -> dict[str, tuple[str, str]]:
        """The calls that wait for this member's page, each with its tool and its turn."""
        async with self._settled(seat) as driver:
            return {
                call_id: (call.call.tool, invocation.scope.trace_id or "")
                for invocation in driver.tree.open.values()
                for call_id, call in invocation.calls.items()
                if call.awaited
                and call.call.executor == "frontend"
                and seat.may_see(invocation.scope.channel)
                and entitled(call.roles, seat.acts_as)
            }

    async def state(self, seat: Seat) -> tuple[int, Any]:
        """The application's state as this member sees it, and the seq it is of."""
        async with self._settled(seat) as driver:
            assert isinstance(driver.pen.ledger, Ledger)
            return driver.tree.last, seat.seen(driver.pen.ledger.state)

    async def misfits(self, seat: Seat) -> list[Misfit]:
        """Return which stored events no longer fit the application's classes; only owners may know.

        A session that is not open here is not opened for this: that would write into its log.
        """
        if not seat.is_owner or seat.session_id not in self._drivers:
            return []
        driver = await self._driver(seat.head)
        assert isinstance(driver.pen.ledger, Ledger)
        return list(driver.pen.ledger.misfits.values())

    async def panels(
        self,
        seat: Seat,
        at: int | None = None,
        names: Iterable[str] = PARTS,
        charge: Charge = charge_nothing,
    ) -> Panels:
        """Parts of what is shown of a session, as of a seq or now; the state as this member sees it."""
        panels = await self.derived.panels(seat.app, seat.session_id, at, {STATE, *names}, charge)
        panels.parts[STATE].value = seat.seen(panels.state)
        return panels

    async def documents(
        self, seat: Seat, type: str | None, category: str | None, charge: Charge = charge_nothing
    ) -> list[Document]:
        """The documents of a session that this member may see."""
        found = await self.derived.documents(seat.session_id, type=type, category=category, charge=charge)
        return [one for one in found if seat.sees is None or seen_in(seat.sees, one.body)]


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
    events = [made(app, Item(payload, scope, "system"), first_id(session_id, payload)) for payload in about]
    await log.append(session_id, events)
    return session_id


async def create_once(log: Log, app: App, session_id: str, title: str | None) -> None:
    """Create a session, unless the same one was created before."""
    try:
        await log.create(app.name, session_id)
    except Conflict:
        head = await log.info(session_id)
        titled = await log.known(session_id, [first_id(session_id, SessionTitle(title="x"))])
        if head.app != app.name or (titled and not title):
            raise Conflict("another session was made under this key", head.last) from None


def first_id(session_id: str, payload: Payload) -> str:
    """The id of one of the first events of a session; pages cannot take ids of this form."""
    return "evt_" + sha256(f"first:{session_id}:{payload.TYPE}".encode()).hexdigest()[:40]


def default_id(key: str, number: int) -> str:
    """The id of a principal's session of an application: of the first one, or of a later one."""
    return "sess_" + sha256(f"{key}:{number}".encode()).hexdigest()[:32]


def is_left(opened: asyncio.Task[SessionDriver]) -> bool:
    """Whether a driver was opened and follows its session no more."""
    return opened.done() and not opened.cancelled() and not opened.exception() and opened.result().left


def by_name(apps: Iterable[App]) -> dict[str, App]:
    """Applications by their names, each of which may be there once."""
    found: dict[str, App] = {}
    for app in apps:
        if found.setdefault(app.name, app) is not app:
            raise CallerError(f"expected applications of different names, got {app.name} twice")
    if not found:
        raise CallerError("expected an application, got none")
    return found
