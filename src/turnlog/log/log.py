"""The log: append, read and follow events of sessions (protocol sections 6 and 7).

An append is one job of the writer: dedupe, expectation, fence, seqs, timestamps and rows in one transaction.
After the commit its rows are added to the session's tail, a bounded window of recent rows in memory, and each
follower of the session is woken once (`tails`). A follower is a cursor: it reads the tail, or the store if it
lags further behind (`followers`). Several logs may write to one store: the store's bell says which sessions
another log has changed, and their followers read the store. Damage that a read meets is recorded, and the
session's followers end because of its new epoch.
"""

import asyncio
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, suppress
from functools import cached_property, partial
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
from turnlog.ids import new_epoch, new_private_blob_name, new_session_id, now_ms
from turnlog.log.followers import Followers
from turnlog.log.jobs import (
    ANY_POSITION,
    AppendRequest,
    AppendResult,
    CloseSession,
    CollectDerived,
    CreateSession,
    DeleteDerived,
    DropPrivateBlobs,
    DropSnapshots,
    DropUploads,
    EraseSession,
    ExpectedPosition,
    FindEvents,
    ImportCounts,
    ImportEvents,
    Job,
    JobOutcome,
    JobResult,
    KeepUploads,
    PruneSession,
    PutBlob,
    PutDocuments,
    PutSnapshot,
    PutUpload,
    QuarantineDamage,
    ReplaceSnapshot,
    Snapshot,
)
from turnlog.log.log_leases import LogLeases
from turnlog.log.reach import StoreReach
from turnlog.log.records import (
    Blob,
    BlobInfo,
    Damage,
    Document,
    ListPosition,
    Page,
    Row,
    SessionRecord,
    TypeQuery,
)
from turnlog.log.spans import AGENT_SPAN_PREFIX, BLOCK_SPAN_PREFIX, CALL_SPAN_PREFIX
from turnlog.log.store import (
    BlobStore,
    DerivedStore,
    EventStore,
    EvictCallback,
    EvictingStore,
    LeaseStore,
    Maintenance,
    NewsReader,
    RemoteStore,
    SessionDirectory,
    SpanIndex,
)
from turnlog.log.subscription import (
    FIRST_PAGE_BYTES,
    MAX_PAGE_BYTES,
    NO_PAGE_LOCK,
    ChargeBytes,
    FollowOptions,
    FrameSink,
    PageEncoder,
    PageLock,
)
from turnlog.log.tail import Tail
from turnlog.log.tails import TailRegistry
from turnlog.log.write_probe import WriteProbe
from turnlog.log.writer import InlineWriter, WriterThread

T = TypeVar("T")

log = logging.getLogger("turnlog.log")

NOTHING_MOVED: Mapping[str, int] = {}
CLAIM_POLL_S = 1.0  # an orphaned session waits no longer than this beside the time of its lease
UPLOAD_MS = 24 * 3600 * 1000  # after which an upload that no event names is dropped
MAX_DROPPED_UPLOADS = 100  # in one transaction
MAX_SEARCHED_SESSIONS = 1000  # records that one search reads: about 1 MiB
SEARCH_PAGE_SESSIONS = 200
FIRST_WINDOW_SEQS = 256  # of a search backwards: a short turn


class Log:
    """Sessions of events on a store. `open_log` opens one by its URL."""

    def __init__(
        self, store: EventStore, clock: Callable[[], int] = now_ms, *, writable: bool = True
    ) -> None:
        self._store = store
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._write_probe = WriteProbe(self.sessions, self.run_job)
        self.health = self._write_probe.health
        writer = WriterThread if store.reader_threads else InlineWriter
        self._writer = writer(store, self.health, self._on_outcome) if writable else None
        self._reader_pool = ThreadPoolExecutor(max(store.reader_threads, 1), "turnlog-reader")
        self._running_jobs: dict[str, int] = {}  # by session: jobs whose outcome is not published yet
        # is called with the record of a session whose members may have changed, here or in another process
        self.on_members_changed: Callable[[SessionRecord], None] = ignore_record
        read_news = partial(self._run_read, store.read_news) if isinstance(store, NewsReader) else None
        # `on_members_changed` is assigned later: it is looked up for each call.
        self._tail_registry = TailRegistry(
            self._read_record, read_news, lambda record: self.on_members_changed(record)
        )
        self.tails: Mapping[str, Tail] = self._tail_registry.by_session
        self._followers = Followers(store, self._tail_registry, self._read_or_quarantine, self.info)
        self._reconciler: asyncio.Task[None] | None = None
        if store.reconcile_s is not None:
            self._reconciler = asyncio.create_task(self._reconcile(store.reconcile_s))
        self.leases = LogLeases(store, self.run_job, self._run_read, clock)
        self.reach = StoreReach(self.is_shared, partial(self._run_read, store.info, ""))
        self._stop_listening = store.listen(self._on_ring)
        self._closed = False

    @property
    def writable(self) -> bool:
        return self._writer is not None

    def now_ms(self) -> int:
        """Return the time of this log's clock."""
        return self._clock()

    @property
    def is_shared(self) -> bool:
        """Return whether several processes may own sessions of this log."""
        return isinstance(self._store, LeaseStore) and self._store.lease_s is not None

    @property
    def claim_poll_s(self) -> float | None:
        """Return how often an owner looks for sessions to claim; None if no ring of the bell is lost."""
        return None if self._store.reconcile_s is None else CLAIM_POLL_S

    # sessions

    async def create(
        self,
        app: str,
        session_id: str | None = None,
        events: Sequence[Event] = (),
        *,
        wants_work: bool = False,
    ) -> str:
        """Create a session for an application and return its id. A new id cannot be guessed.

        Its first events are stored with it: no reader sees the session without them. `wants_work` marks it as
        wanted for the owners of sessions (`leases`). Raise `Conflict` if the id exists.
        """
        if session_id is not None and not is_session_id(session_id):
            raise CallerError(f"expected `sess_` and 1 to 64 of A-Z a-z 0-9 _ -, got {quote(session_id)}")
        record = SessionRecord(
            session_id or new_session_id(), epoch=new_epoch(), app=app, created_ms=self._clock()
        )
        await self.run_job(CreateSession(record, tuple(events), wants_work))
        return record.session_id

    async def info(self, session_id: str) -> SessionRecord:
        """Return the record of a session, repaired if it is damaged. Raise `NotFound` if there is none.

        The record of a session that is followed in the writing process is in its tail, unless a job of the
        session is under way. Then nothing is read. A store whose rings may be late is always read.
        """
        tail = self.tails.get(session_id)
        is_writing = self._writer is not None and self._store.reconcile_s is None and not self._closed
        if tail is not None and is_writing and tail.is_current and session_id not in self._running_jobs:
            return tail.record
        return await self._read_record(session_id)

    async def _read_record(self, session_id: str) -> SessionRecord:
        try:
            record = await self._run_read(self._store.info, session_id)
        except SessionDamaged as damage:
            await self._quarantine(damage)
            record = await self._run_read(self._store.info, session_id)
        if record is None:
            raise NotFound(f"no session {session_id[:80]}")
        return record

    @asynccontextmanager
    async def hold_record(self, session_id: str) -> AsyncIterator[None]:
        """Keep the record of a session in memory: `info` and `last_seq` of it read nothing meanwhile."""
        tail = await self._tail_registry.acquire(session_id)
        try:
            yield
        finally:
            self._tail_registry.release(session_id, tail)

    async def last_seq(self, session_id: str) -> int:
        """Return the seq of the last event. Raise `NotFound` if there is no session."""
        return (await self.info(session_id)).last

    async def sessions(self) -> list[SessionRecord]:
        """Return all sessions, the oldest first. A writable log repairs damaged records first."""
        if self.writable:
            for session_id in await self.damaged_sessions():
                await self.info(session_id)
        return await self._run_read(self._directory.sessions)

    async def listing(
        self, principal: str | None, after: ListPosition | None = None, limit: int = 100
    ) -> list[tuple[ListPosition, SessionRecord]]:
        """Return at most `limit` sessions of a principal after a position, the last active first.

        None lists the sessions of all principals.
        """
        return await self._read_with_repair(limit, self._directory.listing, principal, after, limit)

    async def search_sessions(
        self, principal: str | None, text: str, after: ListPosition | None = None, limit: int = 100
    ) -> tuple[list[SessionRecord], ListPosition | None]:
        """Return sessions of a principal whose title contains a text, and the position to go on from.

        Upper and lower case are equal. The order is that of `listing`. One search reads a bounded number of
        records, so there may be fewer sessions than `limit`, or none, before the last page: its position is
        None.
        """
        wanted = text.casefold()
        matching: list[SessionRecord] = []
        searched = 0
        while searched < MAX_SEARCHED_SESSIONS:
            page = await self.listing(principal, after, SEARCH_PAGE_SESSIONS)
            for position, record in page:
                after = position
                if wanted in record.title.casefold():
                    matching.append(record)
                if len(matching) == limit:
                    return matching, after
            searched += len(page)
            if len(page) < SEARCH_PAGE_SESSIONS:
                return matching, None
        return matching, after

    async def invitations(self, principal: str, limit: int = 100) -> list[SessionRecord]:
        """Return at most `limit` sessions that a principal is invited to, the last active first."""
        return await self._read_with_repair(limit, self._directory.invitations, principal, limit)

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
        return await self._run_read(self._directory.damaged_sessions)

    async def close_session(
        self,
        session_id: str,
        events: Sequence[Event] = (),
        *,
        expected_durable_count: int | None = None,
        fence: int | None = None,
    ) -> AppendResult:
        """Close a session together with its last events, which end with a `session.close`.

        It accepts no more events, and its followers end when they have read all of them. Without events it is
        closed, and the log does not say by whom. Closing a closed session changes nothing: the seq of events
        that it does not have is -1. Expectations and errors are those of `submit`.
        """
        expected = ANY_POSITION
        if expected_durable_count is not None:
            expected = ExpectedPosition(durable_count=expected_durable_count)
        job = CloseSession(session_id, tuple(events), self._clock(), expected, fence)
        result: AppendResult = await self.run_job(job)
        return result

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
        wants_work: bool = False,
        key: str | None = None,
    ) -> AppendResult:
        """Append events, all or none. Return their seqs, and which were new, when they are durable.

        See `submit` for the expectations and errors.
        """
        return await self.submit(
            session_id,
            events,
            expected_last=expected_last,
            expected_durable_count=expected_durable_count,
            expected_members_seq=expected_members_seq,
            fence=fence,
            wants_work=wants_work,
            key=key,
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
        wants_work: bool = False,
        key: str | None = None,
    ) -> asyncio.Future[AppendResult]:
        """Queue an append. The future resolves to its result when the events are durable.

        `expected_last` is the last seq before the append, `expected_durable_count` the number of durable
        events (live ones may be added meanwhile), `expected_members_seq` the seq of the last change of
        members and invites. If one differs, the future raises `Conflict`. It raises `Fenced` for a fence
        below the highest one so far, `SessionClosed` and `NotFound`. An event that is stored already keeps
        its seq, and expectations do not count if all events are. `wants_work` marks the session as wanted
        for the owners of sessions (`leases`), in the same transaction. `key` is the id of one of the events:
        if it is stored, nothing is appended, whatever the other events are, and those that are not stored
        have the seq -1.
        """
        expected = ANY_POSITION
        if not (expected_last is expected_durable_count is expected_members_seq is None):
            expected = ExpectedPosition(expected_last, expected_durable_count, expected_members_seq)
        # the caller may change its list before the writer runs
        job = AppendRequest(session_id, tuple(events), self._clock(), expected, fence, wants_work, key)
        return self._submit(job)

    async def import_events(self, job: ImportEvents) -> ImportCounts:
        """Add exported events to a session, which is created if it does not exist."""
        counts: ImportCounts = await self._submit(job)
        return counts

    async def run_job(self, job: Job) -> Any:
        """Commit a job and return the value of its result; raise its refusal."""
        return await self._submit(job)

    def _submit(self, job: Job) -> asyncio.Future[Any]:
        """Queue a job, and count it until its outcome is published."""
        if self._writer is None:
            raise StoreError("this log was opened for reading only")
        future = self._writer.submit(job)
        session_id = job.session_id
        running = self._running_jobs
        running[session_id] = running.get(session_id, 0) + 1
        return future

    def _on_outcome(self, job: Job, outcome: JobOutcome) -> None:
        """Publish an outcome: add new rows to the tail of the session, and keep its record."""
        session_id = job.session_id
        running = self._running_jobs
        if running[session_id] == 1:
            del running[session_id]
        else:
            running[session_id] -= 1

        if isinstance(outcome, JobResult):
            rows = outcome.rows
            for record in outcome.records:
                if rows and record.members_seq >= rows[0].seq:
                    self.on_members_changed(record)
                self._tail_registry.publish(record, rows)
                rows = ()

    # changes by other logs

    def _on_ring(self, moved: Mapping[str, int], is_wanted: bool) -> None:
        """Take a ring of the store's bell, in any thread."""
        if self._writer is not None and self._writer.is_committing_here:
            moved = NOTHING_MOVED  # the outcomes say more
        elif not moved:
            moved = dict.fromkeys(list(self.tails), -1)
        if moved or is_wanted:
            # The commit of another log must not fail because this one was left open when its loop ended.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._note_changes, moved, is_wanted)

    def _note_changes(self, moved: Mapping[str, int], is_wanted: bool) -> None:
        if is_wanted:
            self.leases.work_wakeup.wake()
        self._tail_registry.note_changes(moved)

    async def _reconcile(self, interval_s: float) -> None:
        """Read the followed sessions now and then, in case a ring was lost."""
        while True:
            await asyncio.sleep(interval_s)
            self._note_changes(dict.fromkeys(self.tails, -1), True)

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
        rows are of all types. With `options.marks_history_end` the page `HISTORY_END` comes once, between
        the history and new rows.
        """
        subscription = await self._followers.subscribe(session_id, after, replay_from, epoch)
        subscription.max_bytes = max_bytes
        subscription.charge_bytes = options.charge_bytes
        pages = self._followers.pages(subscription, idle_s, page_lock, options)
        async with aclosing(pages):
            async for page in pages:
                yield Page() if page is None else page
                del page  # while it waits, a follower must not hold its last page in memory

    async def follow_frames(
        self,
        session_id: str,
        after: int = -1,
        *,
        replay_from: int | None = None,
        idle_s: float | None = None,
        epoch: str | None = None,
        page_lock: PageLock = NO_PAGE_LOCK,
        history_end: bytes = b"",
    ) -> AsyncGenerator[bytes, None]:
        """Yield what `follow` yields, as it is sent: each frame after its `id:` line, b"" when idle.

        `history_end` comes once, when all rows that the log had have come.
        """
        subscription = await self._followers.subscribe(session_id, after, replay_from, epoch)
        pages = self._followers.frames(subscription, idle_s, page_lock, history_end)
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
        history_end: bytes = b"",
    ) -> None:
        """Write what `follow_frames` yields to a sink, and end where it ends.

        At the end of the log no task is woken for this follower unless its sink has to drain.
        """
        subscription = await self._followers.subscribe(session_id, after, replay_from, epoch)
        await self._followers.push_frames(subscription, sink, idle_s, history_end)

    async def push_pages(
        self,
        session_id: str,
        sink: FrameSink,
        encode: PageEncoder,
        after: int = -1,
        *,
        idle_s: float | None = None,
        epoch: str | None = None,
        charge_bytes: ChargeBytes | None = None,
    ) -> None:
        """Write all rows after a seq to a sink as `encode` returns them, and end where `follow` ends.

        Followers at the end of the log get the same page object, so an encoder that they share may encode it
        once. An error that `encode` raises ends this follower and is raised here.
        """
        subscription = await self._followers.subscribe(session_id, after, None, epoch)
        subscription.charge_bytes = charge_bytes
        await self._followers.push_pages(subscription, sink, encode, idle_s)

    async def has_event(self, session_id: str, seq: int) -> bool:
        """Return False if the event was evicted, pruned or never stored."""
        return await self._run_read(self._store.has_event, session_id, seq)

    async def find_events(self, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
        """Return the rows of those event ids that a session contains, including appends submitted before."""
        rows: dict[str, Row] = await self.run_job(FindEvents(session_id, tuple(event_ids)))
        return rows

    async def oldest_open_turn_start(self, session_id: str, at: int) -> int:
        """Return the first seq of the oldest turn that was open at a seq, or `at + 1` if none was."""
        return await self._run_read(self._spans.oldest_open_turn_start, session_id, at)

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
        return await self._run_read(self._spans.turn_bounds, session_id, trace)

    async def closing_event(self, session_id: str, key: str) -> Row | None:
        """Return the event that ended a call, block or agent; None while it is open or unknown."""
        for prefix in (CALL_SPAN_PREFIX, BLOCK_SPAN_PREFIX, AGENT_SPAN_PREFIX):
            seq = await self._run_read(self._spans.span_end, session_id, prefix + key)
            if seq is not None:
                return await self._read_row(session_id, seq)
        return None

    async def agent_starts(self, agent_id: str) -> list[tuple[str, Row]]:
        """Return the sessions in which an agent was started, each with the event that started it."""
        starts = []
        for session_id, seq in await self._run_read(self._spans.agent_starts, AGENT_SPAN_PREFIX + agent_id):
            row = await self._read_row(session_id, seq)
            if row is not None:
                starts.append((session_id, row))
        return starts

    async def _read_row(self, session_id: str, seq: int) -> Row | None:
        page = await self.read(session_id, seq - 1, max_bytes=1)
        return page[0] if page and page.first == seq else None

    async def sessions_with_open_agents(self) -> list[str]:
        return await self._run_read(self._spans.sessions_with_open_agents)

    # blobs and derived data

    async def put_blob(self, session_id: str, data: bytes, media_type: str, *, private: bool = False) -> str:
        """Store binary content of a session. Return its name: session id, slash, SHA-256.

        The name of a private blob has random digits instead: events show it, and a hash of the content would
        tell a member whether a guess is right. The same content twice is two private blobs.
        """
        if not media_type:
            raise CallerError("expected a media type, got nothing")
        local_name = new_private_blob_name() if private else sha256(data).hexdigest()
        name = f"{session_id}/{local_name}"
        await self.run_job(PutBlob(name, Blob(media_type, data, private)))
        return name

    async def put_upload(self, session_id: str, data: bytes, media_type: str) -> str:
        """Store a member's upload, which no event names yet. Return its name, as that of a blob.

        Old uploads that no message named are dropped, of any session, a bounded number at a time.
        """
        now_ms = self._clock()
        await self.run_job(DropUploads(now_ms - UPLOAD_MS, MAX_DROPPED_UPLOADS))
        name = f"{session_id}/{sha256(data).hexdigest()}"
        await self.run_job(PutUpload(name, Blob(media_type, data), now_ms))
        return name

    async def keep_uploads(self, session_id: str, names: Sequence[str]) -> dict[str, BlobInfo]:
        """Keep uploads that an event is about to name. Return those blobs of the session that exist."""
        kept: dict[str, BlobInfo] = await self.run_job(KeepUploads(session_id, tuple(names)))
        return kept

    async def drop_uploads(self, before_ms: int) -> int:
        """Remove all uploads that were stored before a time and that no event names. Return how many."""
        total = 0
        while count := await self.run_job(DropUploads(before_ms, MAX_DROPPED_UPLOADS)):
            total += count
        return total

    async def get_blob(self, name: str) -> Blob:
        """Return a blob. Raise `NotFound` if there is none, or if it is private."""
        blob = await self._run_read(self._blobs.blob, name)
        if blob is None or blob.is_private:
            raise NotFound(f"no blob {name[:80]}")
        return blob

    async def get_private_blob(self, session_id: str, name: str) -> Blob:
        """Return a private blob of this session, for its runtime or the owner of the machine.

        Raise `NotFound` if there is none: an event may name a blob of another session.
        """
        blob = None
        if name.startswith(f"{session_id}/"):
            blob = await self._run_read(self._blobs.blob, name)
        if blob is None or not blob.is_private:
            raise NotFound(f"no private blob {name[:80]}")
        return blob

    async def blob_names(self, session_id: str) -> list[str]:
        """Return the names of the blobs of a session, sorted, without private ones."""
        return await self._run_read(self._blobs.blob_names, session_id, False)

    async def private_blob_names(self, session_id: str) -> list[str]:
        """Return the names of the private blobs of a session, sorted."""
        return await self._run_read(self._blobs.blob_names, session_id, True)

    async def drop_private_blobs(self, session_id: str, names: Sequence[str]) -> int:
        """Remove private blobs of a session, such as those of superseded checkpoints. Return how many."""
        count: int = await self.run_job(DropPrivateBlobs(session_id, tuple(names)))
        return count

    async def put_document(self, document: Document) -> None:
        """Add or replace a document."""
        await self.run_job(PutDocuments((document,), self._clock()))

    async def documents(
        self,
        session_id: str | None = None,
        *,
        type: str | None = None,
        category: str | None = None,
        version: str = "",
    ) -> list[Document]:
        """Return the documents of a version that match, sorted by session and id; None matches all values."""
        return await self._run_read(self._derived.documents, session_id, type, category, version)

    async def put_snapshot(
        self, session_id: str, name: str, seq: int, body: bytes, version: str = ""
    ) -> None:
        """Store a state as of a seq, built by a version of the code."""
        await self.run_job(PutSnapshot(Snapshot(session_id, name, seq, body, version), self._clock()))

    async def replace_snapshot(
        self, snapshot: Snapshot, expected: bytes | None, documents: Sequence[Document] = ()
    ) -> bool:
        """Store a snapshot and documents if the stored snapshot has the body `expected`; None: if none is.

        Return False, and store nothing, if it has another one.
        """
        job = ReplaceSnapshot(snapshot, expected, tuple(documents), self._clock())
        is_replaced: bool = await self.run_job(job)
        return is_replaced

    async def snapshot(
        self, session_id: str, name: str, at: int, version: str = ""
    ) -> tuple[int, bytes] | None:
        """Return the newest snapshot of a name and version as of a seq or earlier, with its seq."""
        return await self._run_read(self._derived.snapshot, session_id, name, at, version)

    async def drop_snapshots(
        self, session_id: str, name: str, first: int, last: int, version: str = ""
    ) -> None:
        """Remove the snapshots of a name and version as of the seqs from `first` to `last`."""
        await self.run_job(DropSnapshots(session_id, name, first, last, version))

    def set_evict_callback(self, callback: EvictCallback) -> None:
        """Call `callback` inside the transaction that evicts events, if the store evicts any."""
        if isinstance(self._store, EvictingStore):
            self._store.on_evict = callback

    async def delete_derived(self, session_id: str | None = None, version: str | None = None) -> None:
        """Remove the documents and snapshots of a session, or of all, and of a version, or of all.

        Events can derive them again.
        """
        await self.run_job(DeleteDerived(session_id or "", version))

    async def collect_derived(self, session_id: str, versions: Collection[str], older_ms: int) -> None:
        """Remove what other versions of the code have derived, if it was stored more than `older_ms` ago."""
        before_ms = self._clock() - older_ms
        await self.run_job(CollectDerived(session_id, frozenset(versions), before_ms))

    # maintenance

    async def prune(self, session_id: str, before_ms: int) -> int:
        """Remove live events of finished blocks and calls older than a time. Return how many."""
        count: int = await self.run_job(PruneSession(session_id, before_ms))
        return count

    async def erase(self, session_id: str) -> int:
        """Remove all events of a session and what was derived from them. Return how many events.

        The session stays closed and empty. Its followers end.
        """
        count: int = await self.run_job(EraseSession(session_id))
        return count

    async def verify(self) -> list[Damage]:
        """Check everything that is stored. Return the damages."""
        maintenance = self._maintenance
        return await self._run_read(lambda: list(maintenance.verify()))

    async def damages(self) -> list[Damage]:
        """Return the damages that are recorded."""
        return await self._run_read(self._maintenance.damages)

    async def _quarantine(self, damage: SessionDamaged) -> None:
        """Record a damage and end the followers if it is new. Raise it if the log is read only."""
        log.error("%s", damage)
        if self._writer is None:
            raise damage
        lost = Damage(damage.session_id, damage.first, damage.last, damage.problem)
        await self.run_job(QuarantineDamage(lost))

    def stop_waiting(self) -> None:
        """Let appends and reads fail at once if the store is away, from now on. Call it before `close`."""
        if isinstance(self._store, RemoteStore):
            self._store.stop_waiting()

    async def close(self) -> None:
        """Finish every append, end the followers and close the store; wait for no store that is away."""
        self.stop_waiting()
        if self._reconciler is not None:
            self._reconciler.cancel()
            await asyncio.wait([self._reconciler])
        await self._tail_registry.stop_refreshing()
        await self._write_probe.close()
        await self.reach.close()
        if self._writer is not None:
            await self.leases.close()
            await self._writer.close()
        self._tail_registry.close()
        self._closed = True
        await asyncio.to_thread(self._close_store)

    def _close_store(self) -> None:
        self._reader_pool.shutdown()  # waits for reads that have begun
        self._stop_listening()
        self._store.close()

    # abilities of the store: looked for once

    @cached_property
    def _spans(self) -> SpanIndex:
        if not isinstance(self._store, SpanIndex):
            raise missing_ability("finds no turns, agents and calls")
        return self._store

    @cached_property
    def _directory(self) -> SessionDirectory:
        if not isinstance(self._store, SessionDirectory):
            raise missing_ability("lists no sessions")
        return self._store

    @cached_property
    def _blobs(self) -> BlobStore:
        if not isinstance(self._store, BlobStore):
            raise missing_ability("has no blobs")
        return self._store

    @cached_property
    def _derived(self) -> DerivedStore:
        if not isinstance(self._store, DerivedStore):
            raise missing_ability("has no documents and snapshots")
        return self._store

    @cached_property
    def _maintenance(self) -> Maintenance:
        if not isinstance(self._store, Maintenance):
            raise missing_ability("cannot be verified")
        return self._store

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


def ignore_record(record: SessionRecord) -> None:
    """Do nothing, for logs whose readers have no rights that end."""


def missing_ability(problem: str) -> CallerError:
    return CallerError(f"this store {problem}")
