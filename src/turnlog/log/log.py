"""The log: append, read and follow events of sessions (protocol sections 6 and 7).

An append is one job of the writer: dedupe, expectation, fence, seqs, timestamps and rows in one transaction.
After the commit its rows are added to the session's tail, a bounded window of recent rows in memory, and each
follower of the session is woken once. A follower is a cursor: it reads the tail, or the store if it lags
further behind. Damage that a read meets is recorded, and the session's followers end because of its new
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
    NotFound,
    SessionDamaged,
    StoreError,
    Unavailable,
    quote,
)
from turnlog.events import CATALOG, Catalog, Entry, Event, is_session_id
from turnlog.ids import new_epoch, new_session_id, now_ms
from turnlog.log.append import (
    ExpectedPosition,
    append_events,
    find_rows_in_session,
    insert_session,
    prune_session,
    quarantine,
    update_record,
)
from turnlog.log.filter import matches_any_type
from turnlog.log.records import (
    Blob,
    Damage,
    Document,
    FrameBatch,
    ListPosition,
    Page,
    Row,
    SessionRecord,
    TypeQuery,
)
from turnlog.log.spans import AGENT_SPAN_PREFIX, BLOCK_SPAN_PREFIX, CALL_SPAN_PREFIX, LIVE_TYPES
from turnlog.log.store import EvictCallback, Store
from turnlog.log.subscription import (
    FIRST_PAGE_BYTES,
    MAX_PAGE_BYTES,
    NO_PAGE_LOCK,
    FollowOptions,
    FrameSink,
    PageLock,
    PushSubscription,
    Subscription,
)
from turnlog.log.tail import Tail
from turnlog.log.writer import InlineWriter, WriteHealth, WriterThread

T = TypeVar("T")
P = TypeVar("P", Page, FrameBatch)
PageReader = Callable[[str, int, int | None, int], P | None]

log = logging.getLogger("turnlog.log")

POLL_INTERVAL_S = 0.05  # how often a reading process looks for new commits; half of the promised 100 ms
PROBE_INTERVAL_S = 1.0  # how often a write is tried while writes fail
FIRST_WINDOW_SEQS = 256  # of a search backwards: a short turn
RECONCILE_INTERVAL_S = 2.0  # how often a reading process reads its sessions, whatever the commit count


class Log:
    """Sessions of events on a store. `open_log` opens one by its URL."""

    def __init__(self, store: Store, clock: Callable[[], int] = now_ms, *, writable: bool = True) -> None:
        self._store = store
        self._clock = clock
        self.health = WriteHealth(self._start_probe)
        self._probe: asyncio.Task[None] | None = None
        writer = WriterThread if store.reader_threads else InlineWriter
        self._writer = writer(store, self.health) if writable else None
        self._watcher = None if writable else asyncio.create_task(self._poll_commits())
        self._reader_pool = ThreadPoolExecutor(max(store.reader_threads, 1), "turnlog-reader")
        self.tails: dict[str, Tail] = {}
        self._running_appends: dict[str, int] = {}  # by session: appends whose rows are not in its tail yet
        self._closed = False

    @property
    def writable(self) -> bool:
        return self._writer is not None

    # sessions

    async def create(self, app: str, session_id: str | None = None) -> str:
        """Create a session for an application and return its id. A new id cannot be guessed.

        Raise `Conflict` if the id exists.
        """
        if session_id is not None and not is_session_id(session_id):
            raise CallerError(f"expected `sess_` and 1 to 64 of A-Z a-z 0-9 _ -, got {quote(session_id)}")
        record = SessionRecord(
            session_id or new_session_id(), epoch=new_epoch(), app=app, created_ms=self._clock()
        )
        await self.transact(lambda store: insert_session(store, record))
        return record.session_id

    async def info(self, session_id: str) -> SessionRecord:
        """Return the record of a session, repaired if it is damaged. Raise `NotFound` if there is none."""
        try:
            record = await self._run_read(self._store.info, session_id)
        except SessionDamaged as damage:
            await self._quarantine(damage)
            record = await self._run_read(self._store.info, session_id)
        if record is None:
            raise NotFound(f"no session {session_id[:80]}")
        return record

    async def last_seq(self, session_id: str) -> int:
        """Return the seq of the last event. Raise `NotFound` if there is no session.

        The tail of a session that is followed in the writing process has every row, unless an append is
        under way. Then nothing is read.
        """
        tail = self.tails.get(session_id)
        has_all_rows = tail is not None and tail.is_current and session_id not in self._running_appends
        if tail is None or not has_all_rows or self._writer is None:
            return (await self.info(session_id)).last
        return tail.last

    async def sessions(self) -> list[SessionRecord]:
        """Return all sessions, the oldest first. A writable log repairs damaged records first."""
        if self.writable:
            for session_id in await self.damaged_sessions():
                await self.info(session_id)
        return await self._run_read(self._store.sessions)

    async def listing(
        self, principal: str | None, after: ListPosition | None = None, limit: int = 100
    ) -> list[tuple[ListPosition, SessionRecord]]:
        """Return at most `limit` sessions of a principal after a position, the last active first.

        None lists the sessions of all principals.
        """
        return await self._read_with_repair(limit, self._store.listing, principal, after, limit)

    async def invitations(self, principal: str, limit: int = 100) -> list[SessionRecord]:
        """Return at most `limit` sessions that a principal is invited to, the last active first."""
        return await self._read_with_repair(limit, self._store.invitations, principal, limit)

    async def _read_with_repair(self, limit: int, read: Callable[..., T], *args: object) -> T:
        damages = 0
        while True:
            try:
                return await self._run_read(read, *args)
            except SessionDamaged as damage:
                if damages > limit:
                    raise
                damages += 1
                await self._quarantine(damage)

    async def damaged_sessions(self) -> list[str]:
        """Return the sessions whose record is damaged. `info` of one repairs it, or raises."""
        return await self._run_read(self._store.damaged_sessions)

    async def close_session(self, session_id: str) -> None:
        """Close a session: it accepts no more events. Its followers end when they have read all events."""
        await self._submit(
            lambda store: update_record(store, session_id, closed=True),
            lambda _: self._close_tail(session_id),
        )

    def _close_tail(self, session_id: str) -> None:
        tail = self.tails.get(session_id)
        if tail is not None:
            tail.closed = True
            tail.wakeup.wake()

    # appending

    async def append(
        self,
        session_id: str,
        events: Sequence[Event],
        *,
        expected_last: int | None = None,
        expected_durable_count: int | None = None,
        expected_members_seq: int | None = None,
        fence: int | None = None,
    ) -> list[int]:
        """Append events, all or none. Return their seqs when they are durable.

        See `submit` for the expectations and errors.
        """
        return await self.submit(
            session_id,
            events,
            expected_last=expected_last,
            expected_durable_count=expected_durable_count,
            expected_members_seq=expected_members_seq,
            fence=fence,
        )

    def submit(
        self,
        session_id: str,
        events: Sequence[Event],
        *,
        expected_last: int | None = None,
        expected_durable_count: int | None = None,
        expected_members_seq: int | None = None,
        fence: int | None = None,
    ) -> asyncio.Future[list[int]]:
        """Queue an append. The future resolves to the seqs when the events are durable.

        `expected_last` is the last seq before the append, `expected_durable_count` the number of durable
        events (live ones may be added meanwhile), `expected_members_seq` the seq of the last change of
        members and invites. If one differs, the future raises `Conflict`. It raises `Fenced` for a fence
        below the highest one so far, `SessionClosed` and `NotFound`. An event that is stored already keeps
        its seq, and expectations do not count if all events are.
        """
        expected = ExpectedPosition(expected_last, expected_durable_count, expected_members_seq)
        ts_ms = self._clock()
        batch = tuple(events)  # the caller may change its list before the writer runs
        return self._submit_rows(
            session_id, lambda store: append_events(store, session_id, batch, expected, fence, ts_ms)
        )

    async def append_raw(self, session_id: str, work: Callable[[Store], tuple[T, list[Row], str]]) -> T:
        """Run `work` in a transaction. It returns a result, the rows it has inserted and the epoch."""
        result: T = await self._submit_rows(session_id, work)
        return result

    def _submit_rows(self, session_id: str, work: Callable[[Store], Any]) -> asyncio.Future[Any]:
        future = self._submit(
            work,
            lambda outcome: self._publish(session_id, *outcome),
            on_settled=partial(self._end_append, session_id),
        )
        self._running_appends[session_id] = self._running_appends.get(session_id, 0) + 1
        return future

    def _end_append(self, session_id: str) -> None:
        self._running_appends[session_id] -= 1
        if not self._running_appends[session_id]:
            del self._running_appends[session_id]

    def _publish(self, session_id: str, result: T, rows: list[Row], epoch: str) -> T:
        tail = self.tails.get(session_id)
        if tail is not None and tail.epoch != epoch:
            self._end_tail(session_id)
        elif tail is not None and rows:
            tail.extend(rows)
        return result

    def _end_tail(self, session_id: str) -> None:
        tail = self.tails.pop(session_id, None)
        if tail is not None:
            tail.epoch = ""
            tail.wakeup.wake()

    # reading

    async def events(
        self, session_id: str, after: int = -1, *, follow: bool = False, catalog: Catalog = CATALOG
    ) -> AsyncGenerator[Entry, None]:
        """Yield the decoded events of a session after a seq: envelope fields and a typed payload.

            async for event in log.events(session_id):
                print(event.seq, event.type, event.payload)

        Without `follow` it ends at the last event that was stored when it began. With `follow` it waits for
        more events. It then ends when the session is closed, when damage gave it a new epoch, or when the
        store has evicted the next event.

        Types that `catalog` does not contain have an `UnknownPayload`: pass the catalog of an application
        (`app.catalog`) to decode its own events. Raise `NotFound` if there is no such session.
        """
        if follow:
            async with aclosing(self.follow(session_id, after)) as pages:
                async for page in pages:
                    for envelope in page.envelopes():
                        yield catalog.decode_entry(envelope)
            return

        last = (await self.info(session_id)).last
        while after < last:
            page = await self.read(session_id, after)
            if not page:
                return  # the rest was pruned
            for envelope in page.envelopes():
                if envelope.seq > last:
                    return
                yield catalog.decode_entry(envelope)
            after = page.last

    async def read(
        self,
        session_id: str,
        after: int = -1,
        *,
        replay_from: int | None = None,
        max_bytes: int = MAX_PAGE_BYTES,
    ) -> Page:
        """Return one page of rows after a seq, empty at the end.

        With `replay_from`, live rows of spans that began after that seq and have ended are left out.
        Raise `NotFound` if there is no such session, `SessionDamaged` if the next row is damaged.
        """
        page = await self._read_or_quarantine(self._store.read, session_id, after, replay_from, max_bytes)
        if not page.epoch:
            raise NotFound(f"no session {session_id[:80]}")
        return page

    async def read_types(self, session_id: str, types: tuple[str, ...], after: int = -1) -> Page:
        """Return one page of durable rows of some types after a seq; `upto` is how far it reaches."""
        type_query = TypeQuery(after, types, MAX_PAGE_BYTES)
        return await self._read_or_quarantine(self._store.read_types, session_id, type_query)

    async def _read_or_quarantine(self, read: Callable[..., T], session_id: str, *args: object) -> T:
        try:
            return await self._run_read(read, session_id, *args)
        except SessionDamaged as damage:
            await self._quarantine(damage)
            raise

    async def follow(
        self,
        session_id: str,
        after: int = -1,
        *,
        replay_from: int | None = None,
        idle_s: float | None = None,
        epoch: str | None = None,
        max_bytes: int = MAX_PAGE_BYTES,
        page_lock: PageLock = NO_PAGE_LOCK,
        options: FollowOptions = FollowOptions(),  # noqa: B008
    ) -> AsyncGenerator[Page, None]:
        """Yield pages of rows after a seq: first the history, then new rows, without a gap or a duplicate.

        Yields an empty page after `idle_s` without events. Ends when the session is closed, when its epoch
        changes or is not `epoch` (what follows is another history), and when the store has evicted the next
        row. With -1 it begins with the oldest row that is stored.

        Pages grow to about `max_bytes` while the caller takes them. A page is read inside `page_lock`, which
        is released when the caller asks for the next page: followers with one lock hold one page in memory.
        `options.charge_bytes` gets the size of what was read from the store. With `options.types` the history
        has rows of these types only, and `upto` of a page, which may be empty, is how far it reaches; new
        rows are of all types.
        """
        subscription = await self._subscribe(session_id, after, replay_from, epoch)
        subscription.max_bytes = max_bytes
        subscription.charge_bytes = options.charge_bytes
        read: PageReader[Page] = self._store.read
        # Live rows are not in the index of types.
        if options.types and not any(matches_any_type(live_type, options.types) for live_type in LIVE_TYPES):
            read = partial(self._read_types, options.types)

        pages = self._follow_pages(subscription, read, unchanged_page, idle_s, page_lock)
        async with aclosing(pages):
            async for page in pages:
                yield Page() if page is None else page
                del page  # while it waits, a follower must not hold its last page in memory

    def _read_types(
        self, types: tuple[str, ...], session_id: str, after: int, replay_from: int | None, limit_bytes: int
    ) -> Page:
        return self._store.read_types(session_id, TypeQuery(after, types, limit_bytes))

    async def follow_frames(
        self,
        session_id: str,
        after: int = -1,
        *,
        replay_from: int | None = None,
        idle_s: float | None = None,
        epoch: str | None = None,
        page_lock: PageLock = NO_PAGE_LOCK,
    ) -> AsyncGenerator[bytes, None]:
        """Yield what `follow` yields, as it is sent: each frame after its `id:` line, b"" when idle."""
        subscription = await self._subscribe(session_id, after, replay_from, epoch)
        pages = self._follow_pages(subscription, self._store.read_frames, Page.frames, idle_s, page_lock)
        async with aclosing(pages):
            async for page in pages:
                yield page.data if page else b""
                page = None  # while it waits, a follower must not hold its last page in memory

    async def push_frames(
        self,
        session_id: str,
        sink: FrameSink,
        after: int = -1,
        *,
        replay_from: int | None = None,
        idle_s: float | None = None,
        epoch: str | None = None,
    ) -> None:
        """Write what `follow_frames` yields to a sink, and end where it ends.

        At the end of the log no task is woken for this follower unless its sink has to drain.
        """
        subscription = await self._subscribe(session_id, after, replay_from, epoch)
        try:
            while not subscription.is_finished():
                page = await self._next_page(subscription, self._store.read_frames, Page.frames)
                if page:
                    drain = sink(page.data)
                    page = None  # while it waits, a follower must not hold its last page in memory
                    if drain is not None:
                        await drain()
                elif not subscription.is_finished():
                    await PushSubscription(subscription, sink).run(idle_s)
        finally:
            self._unsubscribe(subscription)

    async def _subscribe(
        self, session_id: str, after: int, replay_from: int | None, epoch: str | None
    ) -> Subscription:
        """Return a cursor on the tail of a session. The caller must `_unsubscribe` it."""
        tail = await self._acquire_tail(session_id)
        replay_until = -1 if replay_from is None else tail.last
        return Subscription(session_id, tail, epoch or tail.epoch, after, replay_from, replay_until)

    def _unsubscribe(self, subscription: Subscription) -> None:
        self._release_tail(subscription.session_id, subscription.tail)

    async def _follow_pages(
        self,
        subscription: Subscription,
        read: PageReader[P],
        convert: Callable[[Page], P],
        idle_s: float | None,
        page_lock: PageLock,
    ) -> AsyncGenerator[P | None, None]:
        """Yield page after page, None after an idle time."""
        try:
            while not subscription.is_finished():
                async with page_lock:
                    page = await self._next_page(subscription, read, convert)
                    if page is not None:
                        yield page
                        page = None
                        continue
                if not subscription.is_finished() and not await subscription.tail.wakeup.wait(idle_s):
                    yield None
        finally:
            self._unsubscribe(subscription)

    async def _next_page(
        self, subscription: Subscription, read: PageReader[P], convert: Callable[[Page], P]
    ) -> P | None:
        tail = subscription.tail
        while subscription.after < tail.last and not subscription.is_finished():
            last = tail.last
            page = self._page_from_tail(subscription, convert)
            if page is None:
                page = await self._page_from_store(subscription, read)

            if page and page.epoch != subscription.epoch:  # the tail does not have the new epoch yet
                subscription.epoch = ""
                return None
            has_gap = not page or page.first > subscription.after + 1
            if has_gap and await self._was_evicted(subscription.session_id, subscription.after):
                subscription.epoch = ""
                return None

            if page is not None and page.upto is not None:  # a page of some types, which may be empty
                subscription.after = page.upto
                return page
            if page:
                subscription.after = page.last
                return page
            subscription.after = last  # replay leaves out all rows up to here
        return None

    def _page_from_tail(self, subscription: Subscription, convert: Callable[[Page], P]) -> P | None:
        if subscription.after < subscription.replay_until:
            return None
        page = subscription.tail.page_after(subscription.after)
        return convert(page) if page else None

    async def _page_from_store(self, subscription: Subscription, read: PageReader[P]) -> P | None:
        page = await self._read_or_quarantine(
            read,
            subscription.session_id,
            subscription.after,
            subscription.replay_from,
            subscription.next_read_bytes(),
        )
        if page is not None and subscription.charge_bytes is not None:
            await subscription.charge_bytes(page.size_bytes)
        return page

    async def _was_evicted(self, session_id: str, after: int) -> bool:
        return after >= 0 and (await self.info(session_id)).first > after + 1

    async def _acquire_tail(self, session_id: str) -> Tail:
        tail = self.tails.get(session_id)
        if tail is None:
            record = await self.info(session_id)
            tail = self.tails.setdefault(session_id, Tail(record))
        tail.follower_count += 1
        try:
            if not tail.is_synced:
                # Events that were committed between `info` and the registration would be missed: read again.
                tail.catch_up(await self.info(session_id))
        except BaseException:
            self._release_tail(session_id, tail)
            raise
        if not tail.epoch and self.tails.get(session_id) is tail:
            del self.tails[session_id]
        return tail

    def _release_tail(self, session_id: str, tail: Tail) -> None:
        tail.follower_count -= 1
        if not tail.follower_count and self.tails.get(session_id) is tail:
            del self.tails[session_id]

    async def has_event(self, session_id: str, seq: int) -> bool:
        """Return False if the event was evicted, pruned or never stored."""
        return await self._run_read(self._store.has_event, session_id, seq)

    async def find_events(self, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
        """Return the rows of those event ids that a session contains, including appends submitted before."""
        rows: dict[str, Row] = await self._submit(
            lambda store: find_rows_in_session(store, session_id, event_ids), writes=False
        )
        return rows

    async def oldest_open_turn_start(self, session_id: str, at: int) -> int:
        """Return the first seq of the oldest turn that was open at a seq, or `at + 1` if none was."""
        return await self._run_read(self._store.oldest_open_turn_start, session_id, at)

    async def last_of_types(
        self, session_id: str, types: tuple[str, ...], before: int, matches: Callable[[Row], bool]
    ) -> Row | None:
        """Return the last durable event of some types before a seq that `matches`; None without one.

        It reads windows backwards, each twice as long as the one before: the cost follows the distance.
        """
        size = FIRST_WINDOW_SEQS
        end = before
        while end > 0:
            start = max(0, end - size)
            rows = await self.rows_of_types(session_id, types, start, end)
            matching = [row for row in rows if matches(row)]
            if matching:
                return matching[-1]
            end = start
            size *= 2
        return None

    async def rows_of_types(self, session_id: str, types: tuple[str, ...], start: int, end: int) -> list[Row]:
        """Return the durable events of some types from a seq up to, and without, another."""
        rows: list[Row] = []
        after = start - 1
        while after < end - 1:
            query = TypeQuery(after, types, FIRST_PAGE_BYTES)
            page = await self._read_or_quarantine(self._store.read_types, session_id, query)
            rows += [row for row in page if row.seq < end]
            # None: there is no such session; the same seq: nothing follows.
            if page.upto is None or page.upto <= after:
                break
            after = page.upto
        return rows

    async def turn_bounds(self, session_id: str, trace: str) -> tuple[int, int | None] | None:
        """Return the first seq of the agents of a turn and the last, None while one is open.

        Return None if the turn has no agents.
        """
        return await self._run_read(self._store.turn_bounds, session_id, trace)

    async def closing_event(self, session_id: str, key: str) -> Row | None:
        """Return the event that ended a call, block or agent; None while it is open or unknown."""
        for prefix in (CALL_SPAN_PREFIX, BLOCK_SPAN_PREFIX, AGENT_SPAN_PREFIX):
            seq = await self._run_read(self._store.span_end, session_id, prefix + key)
            if seq is not None:
                return await self._read_row(session_id, seq)
        return None

    async def agent_starts(self, agent_id: str) -> list[tuple[str, Row]]:
        """Return the sessions in which an agent was started, each with the event that started it."""
        starts = []
        for session_id, seq in await self._run_read(self._store.agent_starts, AGENT_SPAN_PREFIX + agent_id):
            row = await self._read_row(session_id, seq)
            if row is not None:
                starts.append((session_id, row))
        return starts

    async def _read_row(self, session_id: str, seq: int) -> Row | None:
        page = await self.read(session_id, seq - 1, max_bytes=1)
        return page[0] if page and page.first == seq else None

    async def sessions_with_open_agents(self) -> list[str]:
        return await self._run_read(self._store.sessions_with_open_agents)

    # blobs and derived data

    async def put_blob(self, session_id: str, data: bytes, media_type: str) -> str:
        """Store binary content of a session. Return its name: session id, slash, SHA-256."""
        if not media_type:
            raise CallerError("expected a media type, got nothing")
        name = f"{session_id}/{sha256(data).hexdigest()}"
        await self.transact(lambda store: store.put_blob(name, Blob(media_type, data)))
        return name

    async def get_blob(self, name: str) -> Blob:
        """Return a blob. Raise `NotFound` if there is none."""
        blob = await self._run_read(self._store.blob, name)
        if blob is None:
            raise NotFound(f"no blob {name[:80]}")
        return blob

    async def blob_names(self, session_id: str) -> list[str]:
        """Return the names of the blobs of a session, sorted."""
        return await self._run_read(self._store.blob_names, session_id)

    async def put_document(self, document: Document) -> None:
        """Add or replace a document."""
        await self.transact(lambda store: store.put_document(document))

    async def documents(
        self, session_id: str | None = None, *, type: str | None = None, category: str | None = None
    ) -> list[Document]:
        """Return the documents that match, sorted by session and id; None matches all values."""
        return await self._run_read(self._store.documents, session_id, type, category)

    async def put_snapshot(self, session_id: str, name: str, seq: int, body: bytes) -> None:
        """Store a state as of a seq."""
        await self.transact(lambda store: store.put_snapshot(session_id, name, seq, body))

    async def snapshot(self, session_id: str, name: str, at: int) -> tuple[int, bytes] | None:
        """Return the newest snapshot of a name as of a seq or earlier, with its seq."""
        return await self._run_read(self._store.snapshot, session_id, name, at)

    async def drop_snapshots(self, session_id: str, name: str, first: int, last: int) -> None:
        """Remove the snapshots of a name as of the seqs from `first` to `last`."""
        await self.transact(lambda store: store.drop_snapshots(session_id, name, first, last))

    def set_evict_callback(self, callback: EvictCallback) -> None:
        """Call `callback` inside the transaction that evicts events."""
        self._store.on_evict = callback

    async def delete_derived(self, session_id: str | None = None) -> None:
        """Remove the documents and snapshots of a session, or of all. Events can derive them again."""
        await self.transact(lambda store: store.delete_derived(session_id))

    # maintenance

    async def prune(self, session_id: str, before_ms: int) -> int:
        """Remove live events of finished blocks and calls older than a time. Return how many."""
        return await self.transact(lambda store: prune_session(store, session_id, before_ms))

    async def verify(self) -> list[Damage]:
        """Check everything that is stored. Return the damages."""
        return await self._run_read(lambda: list(self._store.verify()))

    async def damages(self) -> list[Damage]:
        """Return the damages that are recorded."""
        return await self._run_read(self._store.damages)

    async def transact(self, work: Callable[[Store], T]) -> T:
        """Run `work` on the store in a transaction. It must check first and write last."""
        result: T = await self._submit(work)
        return result

    def _submit(
        self,
        work: Callable[[Store], Any],
        on_commit: Callable[[Any], Any] = lambda result: result,
        *,
        writes: bool = True,
        on_settled: Callable[[], None] | None = None,
    ) -> asyncio.Future[Any]:
        if self._writer is None:
            raise StoreError("this log was opened for reading only")
        return self._writer.submit(work, on_commit, writes, on_settled)

    def _start_probe(self) -> None:
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._write_until_stored())

    async def _write_until_stored(self) -> None:
        """Rewrite the record of a session until a write succeeds.

        A load balancer sends no requests to an unhealthy server, so no request would prove that it is healthy
        again.
        """
        session_id: str | None = None
        while self.health.is_failing and not self._closed:
            await asyncio.sleep(PROBE_INTERVAL_S)
            try:
                if session_id is None:
                    session_id = next((record.session_id for record in await self.sessions()), None)
                if session_id is not None:
                    await self.transact(partial(rewrite_record, session_id=session_id))
            except StoreError:
                continue

    async def _poll_commits(self) -> None:
        """Refresh tails when the writing process has committed, until the log is closed.

        The commit count is in shared memory and costs no query. In case it fails or does not move, the
        sessions are read now and then.
        """
        loop = asyncio.get_running_loop()
        last_count: int | None = None
        reconciled_s = loop.time()
        while True:
            count = await self._read_commit_count()
            is_due = loop.time() - reconciled_s >= RECONCILE_INTERVAL_S
            if is_due or (count is not None and count != last_count):
                last_count = count
                reconciled_s = loop.time()
                for session_id, tail in list(self.tails.items()):
                    await self._refresh_tail(session_id, tail)
            await asyncio.sleep(POLL_INTERVAL_S)

    async def _read_commit_count(self) -> int | None:
        """Return the store's commit count; None, after a pause, if it cannot be read."""
        try:
            return await self._run_read(self._store.commit_count)
        except Exception as error:  # noqa: BLE001  whatever a store raises: followers must not sleep for ever
            log.error("cannot read the commit count, reading the sessions instead: %s", error)
            await asyncio.sleep(RECONCILE_INTERVAL_S)
            return None

    async def _refresh_tail(self, session_id: str, tail: Tail) -> None:
        try:
            tail.catch_up(await self.info(session_id))
        except Exception as error:  # noqa: BLE001  a follower that ends reads again, and gets the error itself
            log.error("cannot read new events of %s: %s", session_id, error)
            self._end_tail(session_id)

    async def _quarantine(self, damage: SessionDamaged) -> None:
        """Record a damage and end the followers if it is new. Raise it if the log is read only."""
        log.error("%s", damage)
        if self._writer is None:
            raise damage
        await self._submit(
            lambda store: quarantine(store, damage),
            lambda is_new: self._on_quarantined(damage.session_id, is_new),
        )

    def _on_quarantined(self, session_id: str, is_new: bool) -> None:
        if is_new:
            self._end_tail(session_id)

    async def close(self) -> None:
        """Finish every append, end the followers and close the store."""
        for task in (self._watcher, self._probe):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        if self._writer is not None:
            await self._writer.close()
        for session_id in list(self.tails):
            self._close_tail(session_id)
        self._closed = True
        await asyncio.to_thread(self._close_store)

    def _close_store(self) -> None:
        self._reader_pool.shutdown()  # waits for reads that have begun
        self._store.close()

    async def _run_read(self, work: Callable[..., T], *args: object) -> T:
        if self._closed:
            raise Unavailable("the log is closed")
        if not self._store.reader_threads:
            await asyncio.sleep(0)  # other tasks run between two pages
            return work(*args)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reader_pool, work, *args)
        except (OverflowError, UnicodeEncodeError) as error:  # a seq or a name that no column can hold
            raise CallerError(f"this cannot be asked for: {error}") from None


def rewrite_record(store: Store, session_id: str) -> None:
    record = store.get_record(session_id)
    if record is not None:
        store.put_record(record)


def unchanged_page(page: Page) -> Page:
    return page
