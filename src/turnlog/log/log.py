"""The log: append, read, follow (protocol sections 6 and 7).

An append is one unit of work for the writer: dedupe, expectation, fence, seqs, stamping and rows in one
transaction. After the commit its rows go to the session's tail, a bounded window of recent rows in memory,
and everyone who follows the session wakes once. A follower is a cursor: it reads the tail, or the store
when it is further back. Damage that a read meets is recorded, and the session's readers are told by a new
epoch.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar

from turnlog.errors import (
    CallerError,
    Damaged,
    NotFound,
    StoreError,
    Unavailable,
    quote,
)
from turnlog.events import Event, is_session_id
from turnlog.ids import new_epoch, new_session_id, now_ms
from turnlog.log.append import (
    Expected,
    change_head,
    known_events,
    new_session,
    pruned,
    quarantine,
    write,
)
from turnlog.log.choice import is_a
from turnlog.log.live import Live, Take
from turnlog.log.store import (
    AGENT,
    BLOCK,
    CALL,
    LIVE_TYPES,
    Blob,
    Damage,
    Document,
    Head,
    Page,
    Place,
    Ready,
    Row,
    Sight,
    Store,
    Typed,
)
from turnlog.log.tail import Tail
from turnlog.log.walk import OPEN_GATE, PAGE_BYTES, Asked, Gate, Walk
from turnlog.log.writer import Direct, WriteHealth, Writer

T = TypeVar("T")
P = TypeVar("P", Page, Ready)
Read = Callable[[str, int, int | None, int], P | None]

log = logging.getLogger("turnlog.log")

WATCH_S = 0.05  # how often a reading process looks for news; half of the promised 100 ms
PROBE_S = 1.0  # how often a write is tried while writes fail
RECONCILE_S = 2.0  # how often it reads where sessions stand, whatever the counter says


class Log:
    """Sessions of events. Made by `open_log`."""

    def __init__(self, store: Store, clock: Callable[[], int] = now_ms, *, writable: bool = True) -> None:
        self._store = store
        self._clock = clock
        self.health = WriteHealth(self._begin_probe)
        self._probe: asyncio.Task[None] | None = None
        writer = Writer if store.readers else Direct
        self._writer = writer(store, self.health) if writable else None
        self._watcher = None if writable else asyncio.create_task(self._watch())
        self._readers = ThreadPoolExecutor(max(store.readers, 1), "turnlog-reader")
        self.tails: dict[str, Tail] = {}
        self._appends: dict[str, int] = {}  # by session: those under way, whose rows are not in its tail
        self._closed = False

    @property
    def writable(self) -> bool:
        """Whether this process may write."""
        return self._writer is not None

    # sessions

    async def create(self, app: str, session_id: str | None = None) -> str:
        """Make a session for an application; the id it gets cannot be guessed."""
        if session_id is not None and not is_session_id(session_id):
            raise CallerError(f"expected `sess_` and 1 to 64 of A-Z a-z 0-9 _ -, got {quote(session_id)}")
        head = Head(session_id or new_session_id(), epoch=new_epoch(), app=app, created_ms=self._clock())
        await self.work(lambda store: new_session(store, head))
        return head.session_id

    async def info(self, session_id: str) -> Head:
        """Where a session stands; `NotFound` if there is none."""
        try:
            head = await self._read(self._store.info, session_id)
        except Damaged as damage:
            await self._quarantine(damage)
            head = await self._read(self._store.info, session_id)
        if head is None:
            raise NotFound(f"no session {session_id[:80]}")
        return head

    async def last_seq(self, session_id: str) -> int:
        """Return the seq of the last event; `NotFound` if there is no session.

        Where a session is followed in the process that writes, its tail has every row of the store, unless an
        append is under way. Then nothing is read.
        """
        tail = self.tails.get(session_id)
        if tail is None or not tail.is_current or session_id in self._appends or self._writer is None:
            return (await self.info(session_id)).last
        return tail.last

    async def sessions(self) -> list[Head]:
        """All sessions, the oldest first."""
        for name in await self.broken() if self._writer else []:
            await self.info(name)  # repairs it
        return await self._read(self._store.sessions)

    async def listing(
        self, principal: str | None, after: Place | None = None, limit: int = 100
    ) -> list[tuple[Place, Head]]:
        """At most so many sessions of a principal after a place, the last active first; None: of all."""
        return await self._repaired(limit, self._store.listing, principal, after, limit)

    async def invitations(self, principal: str, limit: int = 100) -> list[Head]:
        """At most so many sessions that a principal is invited to, the last active first."""
        return await self._repaired(limit, self._store.invitations, principal, limit)

    async def _repaired(self, limit: int, read: Callable[..., T], *args: object) -> T:
        """Read heads; records that are damaged are repaired on the way, as many as were asked for."""
        damages = 0
        while True:
            try:
                return await self._read(read, *args)
            except Damaged as damage:
                if damages > limit:
                    raise
                damages += 1
                await self._quarantine(damage)

    async def broken(self) -> list[str]:
        """The sessions whose own record is damaged; `info` of one tells, and repairs it if it can."""
        return await self._read(self._store.broken)

    async def close_session(self, session_id: str) -> None:
        """The session takes no more events; its followers end when they have read everything."""
        await self._submit(
            lambda store: change_head(store, session_id, closed=True), lambda _: self._close_tail(session_id)
        )

    def _close_tail(self, session_id: str) -> None:
        if tail := self.tails.get(session_id):
            tail.closed = True
            tail.wakeup.wake()

    # events

    async def append(
        self,
        session_id: str,
        events: Sequence[Event],
        *,
        expected_last: int | None = None,
        expected_rank: int | None = None,
        expected_members_seq: int | None = None,
        fence: int | None = None,
    ) -> list[int]:
        """Append events, all or none; returns their seqs when they are durable."""
        return await self.submit(
            session_id,
            events,
            expected_last=expected_last,
            expected_rank=expected_rank,
            expected_members_seq=expected_members_seq,
            fence=fence,
        )

    def submit(
        self,
        session_id: str,
        events: Sequence[Event],
        *,
        expected_last: int | None = None,
        expected_rank: int | None = None,
        expected_members_seq: int | None = None,
        fence: int | None = None,
    ) -> asyncio.Future[list[int]]:
        """Queue an append of the events as they are now; the future resolves when it is durable.

        `expected_rank` is how many durable events there are to be before it: live ones may come in between.
        `expected_members_seq` is the last change of members and invites that the caller knows of.
        """
        expected = Expected(expected_last, expected_rank, expected_members_seq)
        ts_ms, batch = self._clock(), tuple(events)
        return self._append(session_id, lambda store: write(store, session_id, batch, expected, fence, ts_ms))

    async def restore(self, session_id: str, work: Callable[[Store], tuple[T, list[Row], str]]) -> T:
        """Add rows made elsewhere, as an append does; `work` returns its result, the rows and the epoch."""
        result: T = await self._append(session_id, work)
        return result

    def _append(self, session_id: str, work: Callable[[Store], Any]) -> asyncio.Future[Any]:
        """Submit work that adds rows, and count it until they are in the tail."""
        done = self._submit(
            work,
            lambda written: self._publish(session_id, *written),
            on_settled=partial(self._note_settled, session_id),
        )
        self._appends[session_id] = self._appends.get(session_id, 0) + 1
        return done

    def _note_settled(self, session_id: str) -> None:
        self._appends[session_id] -= 1
        if not self._appends[session_id]:
            del self._appends[session_id]

    def _publish(self, session_id: str, result: T, rows: list[Row], epoch: str) -> T:
        tail = self.tails.get(session_id)
        if tail is not None and tail.epoch != epoch:
            self._end_tail(session_id)
        elif tail is not None and rows:
            tail.extend(rows)
        return result

    def _end_tail(self, session_id: str) -> None:
        """The session has another history now: its followers end."""
        if tail := self.tails.pop(session_id, None):
            tail.epoch = ""
            tail.wakeup.wake()

    async def read(
        self, session_id: str, after: int = -1, *, origin: int | None = None, max_bytes: int = PAGE_BYTES
    ) -> Page:
        """One page of rows after a seq; with an origin, without the live rows of finished spans after it."""
        page = await self._checked(self._store.read, session_id, after, origin, max_bytes)
        if not page.epoch:
            raise NotFound(f"no session {session_id[:80]}")
        return page

    async def _checked(self, read: Callable[..., T], session_id: str, *args: object) -> T:
        """Read; damage that is met is recorded, and told."""
        try:
            return await self._read(read, session_id, *args)
        except Damaged as damage:
            await self._quarantine(damage)
            raise

    async def follow(
        self,
        session_id: str,
        after: int = -1,
        *,
        origin: int | None = None,
        idle_s: float | None = None,
        epoch: str | None = None,
        max_bytes: int = PAGE_BYTES,
        gate: Gate = OPEN_GATE,
        asked: Asked = Asked(),  # noqa: B008
    ) -> AsyncGenerator[Page, None]:
        """Pages of rows after a seq, history then live, no seam; an empty page after `idle_s` of silence.

        Ends when the session is closed; when its epoch changes or is not the one asked for, because what
        follows is another history; and when the store no longer keeps what comes next. From -1 it begins with
        what there is. Pages grow while they are taken, to about `max_bytes`. A page is read inside `gate`,
        and the gate is left when the next one is asked for: followers with the same lock hold one page.
        `asked.spend` is told what was read from the store. With `asked.types`, history is of these types
        alone, and `upto` of a page, which may be empty, says how far it reaches; live pages are of all types.
        """
        walk = await self._walk(session_id, after, origin, epoch)
        walk.most_bytes, walk.spend = max_bytes, asked.spend
        read: Read[Page] = self._store.read
        if asked.types and not any(is_a(live, one) for live in LIVE_TYPES for one in asked.types):
            read = partial(self._read_types, asked.types)
        async with aclosing(self._pages(walk, read, as_it_is, idle_s, gate)) as pages:
            async for page in pages:
                yield Page() if page is None else page
                del page

    def _read_types(
        self, types: tuple[str, ...], session_id: str, after: int, origin: int | None, limit_bytes: int
    ) -> Page:
        return self._store.read_types(session_id, Typed(after, types, limit_bytes))

    async def frames(
        self,
        session_id: str,
        after: int = -1,
        *,
        origin: int | None = None,
        idle_s: float | None = None,
        epoch: str | None = None,
        gate: Gate = OPEN_GATE,
    ) -> AsyncGenerator[bytes, None]:
        """What `follow` gives, as it is sent: every frame with its `id:` line."""
        walk = await self._walk(session_id, after, origin, epoch)
        async with aclosing(self._pages(walk, self._store.ready, Page.ready, idle_s, gate)) as pages:
            async for page in pages:
                yield page.data if page else b""
                page = None

    async def deliver(
        self,
        session_id: str,
        take: Take,
        after: int = -1,
        *,
        origin: int | None = None,
        idle_s: float | None = None,
        epoch: str | None = None,
    ) -> None:
        """Hand what `frames` gives to `take`: history at its own pace, then what is appended, as it comes.

        At the live end no task wakes for the reader while `take` need not wait. Ends where `frames` does.
        """
        walk = await self._walk(session_id, after, origin, epoch)
        try:
            while not walk.is_over():
                if page := await self._next(walk, self._store.ready, Page.ready):
                    rest = take(page.data)
                    page = None  # who waits holds on to nothing that was sent
                    if rest is not None:
                        await rest()
                elif not walk.is_over():
                    await Live(walk, take).stay(idle_s)
        finally:
            self._leave(walk)

    async def _walk(self, session_id: str, after: int, origin: int | None, epoch: str | None) -> Walk:
        """A cursor that has joined the session's tail; who walks also leaves."""
        tail = await self._join(session_id)
        history = -1 if origin is None else tail.last  # only the store knows what to leave out
        return Walk(session_id, tail, epoch or tail.epoch, after, origin, history)

    async def _pages(
        self, walk: Walk, read: Read[P], share: Callable[[Page], P], idle_s: float | None, gate: Gate
    ) -> AsyncGenerator[P | None, None]:
        """Page after page; None after a silence."""
        try:
            while not walk.is_over():
                async with gate:
                    if (page := await self._next(walk, read, share)) is not None:
                        yield page
                        page = None
                        continue
                if not walk.is_over() and not await walk.tail.wakeup.wait(idle_s):
                    yield None
        finally:
            self._leave(walk)

    async def _next(self, walk: Walk, read: Read[P], share: Callable[[Page], P]) -> P | None:
        """The next page, from the tail as `share` gives it or from the store; None if there is none."""
        tail = walk.tail
        while walk.after < tail.last and not walk.is_over():
            end = tail.last
            shared = tail.after(walk.after) if walk.after >= walk.history else None
            page = share(shared) if shared else None
            if page is None:
                page = await self._checked(read, walk.session_id, walk.after, walk.origin, walk.take())
                if walk.spend is not None and page is not None:
                    await walk.spend(page.size_bytes)
            gap = not page or page.first > walk.after + 1
            other = page and page.epoch != walk.epoch  # the store has a new epoch, and the tail not yet
            if other or (gap and await self._overtaken(walk.session_id, walk.after)):
                walk.epoch = ""
                return None
            upto = page.upto if page is not None else None
            if upto is None:
                upto = page.last if page else end
                page = page or None
            walk.after = upto
            if page is not None:
                return page
        return None

    async def _overtaken(self, session_id: str, after: int) -> bool:
        """Whether the store has let go of what comes after a cursor."""
        return after >= 0 and (await self.info(session_id)).first > after + 1

    async def _join(self, session_id: str) -> Tail:
        """The tail of a session, with one more follower."""
        tail = self.tails.get(session_id)
        if tail is None:
            head = await self.info(session_id)
            tail = self.tails.setdefault(session_id, Tail(head))
        tail.followers += 1
        try:  # what was appended between the look and the tail would be missed: look again
            if not tail.joined:
                tail.catch_up(await self.info(session_id))
        except BaseException:
            self._part(session_id, tail)
            raise
        if not tail.epoch and self.tails.get(session_id) is tail:
            del self.tails[session_id]
        return tail

    def _leave(self, walk: Walk) -> None:
        self._part(walk.session_id, walk.tail)

    def _part(self, session_id: str, tail: Tail) -> None:
        tail.followers -= 1
        if not tail.followers and self.tails.get(session_id) is tail:
            del self.tails[session_id]

    async def holds(self, session_id: str, seq: int) -> bool:
        """Whether the event of a seq is still there."""
        return await self._read(self._store.holds, session_id, seq)

    async def known(self, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
        """The rows of those event ids that are in a session; what was submitted before is looked at too."""
        found: dict[str, Row] = await self._submit(
            lambda store: known_events(store, session_id, event_ids), writes=False
        )
        return found

    async def turn_start(self, session_id: str, at: int) -> int:
        """Where the oldest turn that was open at a seq began."""
        return await self._read(self._store.turn_start, session_id, at)

    async def turn(self, session_id: str, trace: str) -> tuple[int, int | None] | None:
        """The first seq of the agents of a turn and the last, None while one is open; None if it has none."""
        return await self._read(self._store.turn, session_id, trace)

    async def ended(self, session_id: str, key: str) -> Row | None:
        """The event that closed a call, block or agent."""
        for kind in (CALL, BLOCK, AGENT):
            seq = await self._read(self._store.span_end, session_id, kind + key)
            if seq is not None:
                rows = await self.read(session_id, seq - 1, max_bytes=1)
                return rows[0] if rows and rows[0].seq == seq else None
        return None

    async def agent_starts(self, agent_id: str) -> list[tuple[str, Row]]:
        """The sessions in which an agent began, each with the event that began it."""
        found = []
        for session_id, seq in await self._read(self._store.agent_starts, AGENT + agent_id):
            rows = await self.read(session_id, seq - 1, max_bytes=1)
            found += [(session_id, row) for row in rows if row.seq == seq]
        return found

    async def unfinished(self) -> list[str]:
        """The sessions in which an agent is open."""
        return await self._read(self._store.unfinished)

    # what stands beside the events

    async def put_blob(self, session_id: str, data: bytes, media_type: str) -> str:
        """Keep binary content of a session; returns the name it is known by: the session's, and its hash."""
        if not media_type:
            raise CallerError("expected a media type, got nothing")
        name = f"{session_id}/{sha256(data).hexdigest()}"
        await self.work(lambda store: store.put_blob(name, Blob(media_type, data)))
        return name

    async def get_blob(self, name: str) -> Blob:
        """The content of a name; `NotFound` if there is none."""
        blob = await self._read(self._store.blob, name)
        if blob is None:
            raise NotFound(f"no blob {name[:80]}")
        return blob

    async def blob_names(self, session_id: str) -> list[str]:
        """The names of the blobs of a session, in order."""
        return await self._read(self._store.blob_names, session_id)

    async def put_document(self, document: Document) -> None:
        """Add or replace a document."""
        await self.work(lambda store: store.put_document(document))

    async def documents(
        self, session_id: str | None = None, *, type: str | None = None, category: str | None = None
    ) -> list[Document]:
        """The documents that match."""
        return await self._read(self._store.documents, session_id, type, category)

    async def put_snapshot(self, session_id: str, name: str, seq: int, body: bytes) -> None:
        """Keep a state as of a seq."""
        await self.work(lambda store: store.put_snapshot(session_id, name, seq, body))

    async def snapshot(self, session_id: str, name: str, at: int) -> tuple[int, bytes] | None:
        """The newest state of a name as of a seq or earlier."""
        return await self._read(self._store.snapshot, session_id, name, at)

    async def drop_snapshots(self, session_id: str, name: str, first: int, last: int) -> None:
        """Remove the states of a name as of the seqs from `first` to `last`."""
        await self.work(lambda store: store.drop_snapshots(session_id, name, first, last))

    def show_last(self, sight: Sight) -> None:
        """Have what a store lets go of shown first, in the transaction."""
        self._store.last_sight = sight

    async def forget_derived(self, session_id: str | None = None) -> None:
        """Remove every document and snapshot, or a session's; they can be made again from the events."""
        await self.work(lambda store: store.forget_derived(session_id))

    # care

    async def prune(self, session_id: str, before_ms: int) -> int:
        """Remove live events of finished blocks and calls older than a time; how many went."""
        return await self.work(lambda store: pruned(store, session_id, before_ms))

    async def verify(self) -> list[Damage]:
        """Check everything; what is wrong."""
        return await self._read(lambda: list(self._store.verify()))

    async def damages(self) -> list[Damage]:
        """What is known to be lost."""
        return await self._read(self._store.damages)

    async def work(self, work: Callable[[Store], T]) -> T:
        """Run work on the store as the one writer, in a transaction: it checks first and writes last."""
        result: T = await self._submit(work)
        return result

    def _submit(
        self,
        work: Callable[[Store], Any],
        after: Callable[[Any], Any] = lambda result: result,
        *,
        writes: bool = True,
        on_settled: Callable[[], None] | None = None,
    ) -> asyncio.Future[Any]:
        if self._writer is None:
            raise StoreError("this log was opened for reading only")
        return self._writer.submit(work, after, writes, on_settled)

    def _begin_probe(self) -> None:
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._write_until_stored())

    async def _write_until_stored(self) -> None:
        """Write a session's record again now and then while writes fail.

        A proxy that routes by the health of the server would otherwise never send the request that heals it.
        """
        session_id: str | None = None
        while self.health.is_failing and not self._closed:
            await asyncio.sleep(PROBE_S)
            try:
                if session_id is None:
                    session_id = next((head.session_id for head in await self.sessions()), None)
                if session_id is not None:
                    await self.work(partial(rewrite_head, session_id=session_id))
            except StoreError:
                continue

    async def _watch(self) -> None:
        """Notice what the process that writes has written: one look at shared memory, no query.

        Ends only with the log. Where the counter fails, or does not move, sessions are read now and then.
        """
        loop = asyncio.get_running_loop()
        seen: int | None = None
        reconciled_s = loop.time()
        while True:
            count = await self._counted()
            due = loop.time() - reconciled_s >= RECONCILE_S
            if due or (count is not None and count != seen):
                seen, reconciled_s = count, loop.time()
                for session_id, tail in list(self.tails.items()):
                    await self._look(session_id, tail)
            await asyncio.sleep(WATCH_S)

    async def _counted(self) -> int | None:
        """Return the store's counter; None, after a pause, where it cannot be read."""
        try:
            return await self._read(self._store.counter)
        except Exception as error:  # noqa: BLE001  whatever a store raises: followers must not sleep for ever
            log.error("cannot read the counter of commits, reading sessions instead: %s", error)
            await asyncio.sleep(RECONCILE_S)
            return None

    async def _look(self, session_id: str, tail: Tail) -> None:
        """Take over what is new in one session; one that cannot be read any more ends its followers."""
        try:
            tail.catch_up(await self.info(session_id))
        except Exception as error:  # noqa: BLE001  a follower that ends asks again, and gets the error itself
            log.error("cannot see what is new: %s", error)
            self._end_tail(session_id)

    async def _quarantine(self, damage: Damaged) -> None:
        log.error("%s", damage)
        if self._writer is None:
            raise damage
        await self._submit(
            lambda store: quarantine(store, damage), lambda news: self._told(damage.session_id, news)
        )

    def _told(self, session_id: str, news: bool) -> None:
        if news:
            self._end_tail(session_id)

    async def close(self) -> None:
        """Finish every append, end the followers and let go of the store."""
        for task in (self._watcher, self._probe):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        if self._writer is not None:
            await self._writer.close()
        for session_id in list(self.tails):
            self._close_tail(session_id)
        self._closed = True
        await asyncio.to_thread(self._let_go)

    def _let_go(self) -> None:
        """Wait for reads that have begun, then close the store."""
        self._readers.shutdown()
        self._store.close()

    async def _read(self, work: Callable[..., T], *args: object) -> T:
        if self._closed:
            raise Unavailable("the log is closed")
        if not self._store.readers:
            await asyncio.sleep(0)  # others get their turn between pages
            return work(*args)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, work, *args)
        except (OverflowError, UnicodeEncodeError) as error:  # a seq or a name that no column can hold
            raise CallerError(f"this cannot be asked for: {error}") from None


def rewrite_head(store: Store, session_id: str) -> None:
    """Write what the store has of a session once more."""
    if head := store.head(session_id):
        store.put_head(head)


def as_it_is(page: Page) -> Page:
    """A page of rows, for who wants rows."""
    return page
