"""The PostgreSQL store beyond its contracts: damage, values that text cannot hold, claims, migrations."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.support.postgres_server import PostgresServer, empty_log, running_server
from tests.support.tables import for_each_row
from turnlog.errors import CallerError, SessionDamaged, StoreError
from turnlog.events import UiMessage
from turnlog.ids import new_id
from turnlog.log import Blob, Document, Log, Page, open_log
from turnlog.log.jobs import AppendRequest, Job, PutBlob
from turnlog.log.postgres.arrays import (
    EncodeArray,
    bigint_array,
    boolean_array,
    bytea_array,
    text_array,
)
from turnlog.log.postgres.connections import (
    EngineAway,
    EscapedTextDumper,
    EscapedTextLoader,
    open_connection,
    translate_engine_errors,
)
from turnlog.log.postgres.contention import CONTENTION_S, Contention
from turnlog.log.postgres.group_commit import split_group
from turnlog.log.postgres.notify_bell import (
    MAX_PAYLOAD_BYTES,
    MAX_RING_INTERVAL_S,
    MIN_RING_INTERVAL_S,
    decode_ring,
    encode_rings,
    ring_interval_s,
)
from turnlog.log.postgres.reading import EngineReader
from turnlog.log.postgres.rows import SpanColumns
from turnlog.log.postgres.schema import MIGRATIONS
from turnlog.log.postgres.store import MAX_GROUP_BYTES, PostgresStore, split_by_size
from turnlog.log.postgres.verify import VERIFY_BYTES, VERIFY_ROWS, read_stored_events
from turnlog.log.records import News
from turnlog.log.spans import SpanEdge
from turnlog.testing.factories import (
    agent_scope,
    agent_start_event,
    block_delta_event,
    block_end_event,
    block_start_event,
    durable_event,
    durable_events,
    make_event,
)
from turnlog.testing.sessions import member_event

SESSION = "sess_1"
OTHER = "sess_2"
FLIP = "set_byte({0}, 3, get_byte({0}, 3) # 1)"


@pytest.fixture(scope="module")
def running() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def server(running: PostgresServer) -> PostgresServer:
    empty_log(running)
    return running


@asynccontextmanager
async def opened(server: PostgresServer) -> AsyncIterator[Log]:
    log = Log(PostgresStore(server.url()), lambda: 1_767_875_696_000)
    try:
        yield log
    finally:
        await log.close()


def with_log(server: PostgresServer, work: Callable[[Log], Awaitable[None]]) -> None:
    async def run() -> None:
        async with opened(server) as log:
            await work(log)

    asyncio.run(run())


async def fill(log: Log) -> None:
    """Store a session with one of everything that is verified."""
    await log.create("t", OTHER, durable_events("other"))
    await log.create("t", SESSION, [member_event("ada", "owner")])
    await log.append(SESSION, [agent_start_event(agent_scope(1)), block_start_event("x")])
    await log.append(SESSION, [block_delta_event("x"), block_end_event("x"), *durable_events("a", "b")])
    await log.put_blob(SESSION, b"data", "text/plain")
    await log.put_document(Document(SESSION, "doc", "lead", "open", b"body"))
    await log.put_snapshot(SESSION, "tree", 3, b"state")


async def read_all(log: Log) -> tuple[list[int], list[SessionDamaged]]:
    seqs: list[int] = []
    damages: list[SessionDamaged] = []
    after = -1
    while len(damages) < 10:
        try:
            page = await log.read(SESSION, after)
        except SessionDamaged as damage:
            damages.append(damage)
            continue
        if not page:
            break
        seqs += [row.seq for row in page]
        after = page.last
    return seqs, damages


IN_SESSION = f"where session = (select id from turnlog.session where name = '{SESSION}')"


@for_each_row(
    "statement, problem",
    [
        (f"update turnlog.event set frame = {FLIP.format('frame')} {IN_SESSION} and seq = 2", "the event"),
        (f"update turnlog.event set meta = {FLIP.format('meta')} {IN_SESSION} and seq = 5", "the event"),
        (f"update turnlog.event set crc = crc + 1 {IN_SESSION} and seq = 5", "the event"),
        (f"delete from turnlog.event {IN_SESSION} and seq = 2", "events are missing"),
        (f"delete from turnlog.event {IN_SESSION} and seq = 6", "the end of the session"),
        (f"update turnlog.event set chain = {FLIP.format('chain')} {IN_SESSION} and seq = 2", "hash chain"),
        (f"update turnlog.event set span = 'block:y' {IN_SESSION} and seq = 3", "index of blocks"),
        (f"update turnlog.event set type = 'ui.message' {IN_SESSION} and seq = 5", "index of blocks"),
        ("update turnlog.span set first = first + 1 where key = 'block:x'", "index of blocks"),
        ("update turnlog.span set last = last + 1 where key = 'block:x'", "index of blocks"),
        (f"update turnlog.session set record = {FLIP.format('record')} where name = '{SESSION}'", "record"),
        (f"update turnlog.session set epoch = 'g0000000' where name = '{SESSION}'", "record"),
        (f"delete from turnlog.listing where session = '{SESSION}'", "lists of sessions"),
        (f"update turnlog.listing set active = 0 where session = '{SESSION}'", "lists of sessions"),
        ("update turnlog.document set body = 'other'", "a document"),
        ("update turnlog.snapshot set body = 'other'", "a document"),
        ("update turnlog.blob set data = 'other'", "a document"),
    ],
)
def test_verify_names_what_is_not_as_it_was_written(
    running: PostgresServer, statement: str, problem: str
) -> None:
    empty_log(running)

    async def work(log: Log) -> None:
        await fill(log)
        assert await log.verify() == []
        running.execute(statement)
        damages = await log.verify()
        assert {damage.session_id for damage in damages} == {SESSION}
        assert any(problem in damage.problem for damage in damages), damages

    with_log(running, work)


def test_verify_reads_pages_of_a_bounded_size(server: PostgresServer) -> None:
    async def work(log: Log) -> None:
        await log.create("t", SESSION)
        for number in range(4):
            await log.append(SESSION, [durable_event(str(number), "x" * (VERIFY_BYTES // 2))])
        await log.append(SESSION, durable_events(*range(4, 4 + VERIFY_ROWS)))
        assert await log.verify() == []

    with_log(server, work)
    with open_connection(server.url()) as connection:
        pages = list(read_stored_events(EngineReader(connection), 1, 1_000))
    assert [len(page) for page in pages] == [2, 2, VERIFY_ROWS]


def test_a_damaged_event_is_never_returned_and_its_id_may_be_used_again(server: PostgresServer) -> None:
    async def work(log: Log) -> None:
        await fill(log)
        epoch = (await log.info(SESSION)).epoch
        server.execute(f"update turnlog.event set frame = 'other' {IN_SESSION} and seq = 5")
        seqs, [damage] = await read_all(log)
        assert (seqs, damage.first, damage.last) == ([0, 1, 2, 3, 4, 6], 5, 5)
        assert (await log.info(SESSION)).epoch != epoch
        assert [damage.first for damage in await log.damages()] == [5]
        assert (await log.append(SESSION, durable_events("a"))).seqs == [7]
        assert await log.verify() == []

    with_log(server, work)


def test_an_append_that_meets_a_damaged_event_records_it(server: PostgresServer) -> None:
    async def work(log: Log) -> None:
        await fill(log)
        server.execute(f"update turnlog.event set frame = 'other' {IN_SESSION} and seq = 5")
        result = await log.append(SESSION, durable_events("a", "c"))
        assert (result.seqs, result.new) == ([7, 8], [True, True])
        assert [damage.first for damage in await log.damages()] == [5]

    with_log(server, work)


def test_a_damaged_record_is_built_again_from_the_events(server: PostgresServer) -> None:
    async def work(log: Log) -> None:
        await fill(log)
        before = await log.info(SESSION)
        lease = await log.leases.claim(SESSION, "one")
        assert lease is not None
        server.execute(f"update turnlog.session set crc = crc + 1 where name = '{SESSION}'")
        assert await log.damaged_sessions() == [SESSION]
        after = await log.info(SESSION)
        assert (after.members, after.last, after.fence) == (before.members, before.last, lease.fence)
        assert after.epoch != before.epoch
        assert (await log.append(SESSION, durable_events("a", "c"))).seqs == [5, 7]
        assert [record.session_id for record in await log.sessions()] == [OTHER, SESSION]

    with_log(server, work)


def test_damaged_side_data_is_an_error_or_skipped(server: PostgresServer) -> None:
    async def work(log: Log) -> None:
        await fill(log)
        name = (await log.blob_names(SESSION))[0]
        await log.put_snapshot(SESSION, "tree", 5, b"later")
        server.execute("update turnlog.blob set data = 'other'; update turnlog.document set body = 'other'")
        server.execute("update turnlog.snapshot set body = 'other' where seq = 5")
        server.execute("update turnlog.span set crc = crc + 1")
        with pytest.raises(StoreError, match="is not what was written"):
            await log.get_blob(name)
        with pytest.raises(StoreError, match="turnlog rebuild"):
            await log.documents()
        assert await log.snapshot(SESSION, "tree", 9) == (3, b"state")
        assert await log.oldest_open_turn_start(SESSION, 6) == 0
        assert await log.turn_bounds(SESSION, "tr_1") == (0, None)
        assert await log.closing_event(SESSION, "x") is None
        assert await log.agent_starts("agt_1") == []
        await log.delete_derived()
        assert await log.documents() == []
        assert [record.session_id for _, record in await log.listing("ada")] == [SESSION]

    with_log(server, work)


def test_nul_is_stored_and_fails_no_append(server: PostgresServer) -> None:
    async def work(log: Log) -> None:
        await log.create("t\0", SESSION)
        await log.create("t", OTHER)
        title = make_event(UiMessage(text="a\0b\1c"), "title")
        jobs = [log.submit(SESSION, [title, *durable_events("a")])]
        jobs += [log.submit(OTHER, durable_events(number)) for number in range(10)]
        await asyncio.gather(*jobs)
        await log.put_document(Document(SESSION, "d\0", "t\1", "c\0010", b"\0"))
        record = await log.info(SESSION)
        assert (record.app, record.title, record.last) == ("t\0", "a\0b\1c", 1)
        assert await log.documents(type="t\1") == [Document(SESSION, "d\0", "t\1", "c\0010", b"\0")]
        assert (await log.info(OTHER)).last == 9
        assert await log.verify() == []

    with_log(server, work)


def test_lone_surrogates_and_large_numbers_fail_their_own_job(server: PostgresServer) -> None:
    async def work(log: Log) -> None:
        await log.create("t", SESSION)
        blob = Blob("text/\ud800", b"x")
        good = [log.submit(SESSION, durable_events(number)) for number in range(5)]
        bad = [
            log._submit(PutBlob("sess_1/0", blob)),
            log.submit(SESSION, durable_events("large"), fence=1 << 70),
            log.submit(SESSION, [structs.replace(durable_event("x"), id="evt_\ud800")]),
        ]
        good += [log.submit(SESSION, durable_events(number)) for number in range(5, 10)]
        outcomes = await asyncio.gather(*bad, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [CallerError] * 3
        assert [seq for append in good for seq in (await append).seqs] == list(range(10))

    with_log(server, work)


@given(st.text())
def test_text_with_nul_is_written_without_and_read_as_it_was(text: str) -> None:
    if any("\ud800" <= character <= "\udfff" for character in text):
        return
    data = EscapedTextDumper(str).dump(text)
    assert data is not None
    assert b"\0" not in bytes(data)
    assert EscapedTextLoader(25).load(data) == text


SESSION_IDS = st.from_regex(r"\Asess_[A-Za-z0-9_-]{1,64}\Z")


@given(st.dictionaries(SESSION_IDS, st.integers(-1, 1 << 40), max_size=300), st.booleans())
def test_rings_reach_others_as_they_were_whatever_their_number(
    moved: dict[str, int], is_wanted: bool
) -> None:
    payloads = list(encode_rings("0123456789abcdef", moved, is_wanted))
    assert all(len(payload.encode()) <= MAX_PAYLOAD_BYTES for payload in payloads)
    rings = [decode_ring(payload) for payload in payloads]
    assert {sender for sender, _, _ in rings} == {"0123456789abcdef"}
    assert [pair for _, part, _ in rings for pair in part.items()] == list(moved.items())
    assert any(wanted for _, _, wanted in rings) == is_wanted


@given(st.text(max_size=200))
def test_a_ring_of_another_program_is_no_error(payload: str) -> None:
    decode_ring(payload)


EDGES = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.booleans()), max_size=12)


@given(EDGES, st.lists(st.integers(1, 4), max_size=12))
def test_merged_edges_of_spans_are_those_of_one_after_the_other(
    edges: list[tuple[str, bool]], sizes: list[int]
) -> None:
    expected: dict[str, tuple[int, int | None]] = {}
    stored: dict[str, tuple[int, int | None]] = {}
    seq = 0
    while edges:
        size = sizes.pop() if sizes else 12
        columns = SpanColumns()
        for key, is_start in edges[:size]:
            columns.add(1, SpanEdge(key, is_start, seq, None, False))
            if is_start:
                expected[key] = (seq, None)
            elif key in expected and expected[key][1] is None:
                expected[key] = (expected[key][0], seq)
            seq += 1
        edges = edges[size:]
        for _, key, _, first, last, *_ in columns.start_rows():
            stored[str(key)] = (first, last)
        for _, key, last, _ in columns.end_rows():
            if str(key) in stored and stored[str(key)][1] is None:
                stored[str(key)] = (stored[str(key)][0], last)
    assert stored == expected


@pytest.mark.parametrize(
    ("encode", "type_name", "values"),
    [
        (bigint_array, "bigint", [1, -(1 << 63), (1 << 63) - 1]),
        (bigint_array, "bigint", [None, 7, None]),
        (text_array, "text", ["", "ä\u2028", "a\0b\1c\0010", "x" * 5000]),
        (text_array, "text", [None, "\0", ""]),
        (bytea_array, "bytea", [b"", b"\0\xff", None]),
        (bytea_array, "bytea", [None, None]),
        (boolean_array, "boolean", [True, False]),
        *[(encode, name, []) for encode, name in [(bigint_array, "bigint"), (text_array, "text")]],
    ],
)
def test_an_encoded_array_has_its_values(
    server: PostgresServer, encode: EncodeArray, type_name: str, values: list[object]
) -> None:
    with open_connection(server.url()) as connection:
        query = f"select value from unnest(%b::{type_name}[]) as value"
        rows = connection.execute(query.encode(), [encode(values)], binary=True).fetchall()
    assert [value for (value,) in rows] == values


def test_a_session_is_contended_after_two_rings_within_a_short_time() -> None:
    now_s = 1000.0
    contention = Contention(lambda: now_s)
    contention.note_rings([SESSION, OTHER])
    assert contention.find_contended([SESSION, OTHER]) == set()
    now_s += CONTENTION_S / 2
    contention.note_rings([SESSION])
    assert contention.find_contended([SESSION, OTHER]) == {SESSION}
    now_s += CONTENTION_S
    assert contention.find_contended([SESSION]) == set()
    contention.note_rings([SESSION])
    assert contention.find_contended([SESSION]) == set()


def test_appends_to_a_contended_session_run_under_locks_and_others_in_one_statement() -> None:
    jobs = [AppendRequest(session_id, (), 0) for session_id in (SESSION, OTHER, SESSION)]
    grouped, locking = split_group(jobs, {SESSION})
    assert list(grouped) == [1]
    assert list(locking) == [0, 2]
    grouped, locking = split_group(jobs, set())
    assert list(grouped) == [0, 1, 2]
    assert not locking


def test_a_slow_ring_makes_rings_fewer() -> None:
    assert ring_interval_s(0.0) == MIN_RING_INTERVAL_S
    assert ring_interval_s(0.0005) == pytest.approx(0.005)
    assert ring_interval_s(1.0) == MAX_RING_INTERVAL_S


def test_claims_are_of_the_applications_that_an_owner_runs(server: PostgresServer) -> None:
    async def work(log: Log) -> None:
        await log.create("shop", SESSION, wants_work=True)
        await log.create("desk", OTHER, wants_work=True)
        assert await log.leases.claim_wanted("one", apps=["other"], limit=5) == []
        [lease] = await log.leases.claim_wanted("one", apps=["desk"], limit=5)
        assert lease.session_id == OTHER
        assert await log.leases.claim_wanted("two", limit=0) == []

    with_log(server, work)


def test_an_append_changes_no_index_of_the_sessions(server: PostgresServer) -> None:
    """HOT updates: an index on a column that appends change would end them."""

    async def work(log: Log) -> None:
        await log.create("t", SESSION)
        server.execute("select pg_stat_reset()")
        for _ in range(200):
            await log.append(SESSION, [structs.replace(durable_event("x"), id=new_id("evt_"))])

    with_log(server, work)
    query = """select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'session'"""
    changes, hot = server.execute(query)[0]
    while changes < 200:  # the statistics arrive with the end of the connection
        changes, hot = server.execute(query)[0]
    assert hot >= 0.9 * changes


def test_logs_that_open_an_empty_database_at_once_make_the_tables_once(server: PostgresServer) -> None:
    server.execute("create database fresh")

    async def run() -> None:
        with pytest.raises(StoreError, match="there is no log in this database yet"):
            await open_log(server.url("fresh"), writable=False)
        stores = await asyncio.gather(
            *[asyncio.to_thread(PostgresStore, server.url("fresh")) for _ in range(4)]
        )
        for store in stores:
            store.close()
        assert server.execute("select version from turnlog.version", "fresh") == [(len(MIGRATIONS),)]

        log = await open_log(server.url("fresh").replace("postgresql:", "postgres:"), writable=False)
        assert await log.sessions() == []
        await log.close()

    asyncio.run(run())
    server.execute("update turnlog.version set version = 99", "fresh")
    with pytest.raises(StoreError, match="a newer Turnlog"):
        PostgresStore(server.url("fresh"))
    server.execute("drop database fresh")


def test_logs_that_open_a_database_of_an_older_version_at_once_migrate_it_once(
    server: PostgresServer,
) -> None:
    server.execute("create database older")
    url = server.url("older")
    with psycopg.connect(url) as connection:
        connection.execute("create schema turnlog")
        connection.execute("create table turnlog.version (version integer not null)")
        connection.execute("insert into turnlog.version values (1)")
        connection.execute("set search_path to turnlog")
        connection.execute(MIGRATIONS[0].encode())

    async def run() -> None:
        with pytest.raises(StoreError, match="an older Turnlog has written the log of this database"):
            await open_log(url, writable=False)
        logs = await asyncio.gather(*[asyncio.to_thread(PostgresStore, url) for _ in range(4)])
        for store in logs:
            store.close()
        log = await open_log(url)
        await log.create("t", SESSION, [member_event("ada", "owner")])
        await log.put_upload(SESSION, b"data", "text/plain")
        assert await log.verify() == []
        await log.close()

    asyncio.run(run())
    assert server.execute("select version from turnlog.version", "older") == [(len(MIGRATIONS),)]
    server.execute("drop database older")


def test_an_unknown_host_is_a_store_error() -> None:
    with pytest.raises(StoreError, match="PostgreSQL cannot be used"):
        PostgresStore("postgresql://turnlog@127.0.0.1:1/postgres")


def test_appends_that_are_too_large_for_one_statement_are_committed_in_parts_and_in_order() -> None:
    jobs: list[Job] = [
        AppendRequest(SESSION, [durable_event(str(number), "x" * size)], 0)
        for number, size in enumerate(
            [10, MAX_GROUP_BYTES // 2, MAX_GROUP_BYTES // 2, 2 * MAX_GROUP_BYTES, 10]
        )
    ]
    assert [[jobs.index(job) for job in part] for part in split_by_size(jobs)] == [[0, 1], [2], [3], [4]]


def test_a_full_disk_is_an_error_at_once_and_another_lack_of_resources_is_waited_for() -> None:
    with pytest.raises(StoreError) as caught, translate_engine_errors():
        raise psycopg.errors.DiskFull("could not extend file")
    assert not isinstance(caught.value, EngineAway)
    with pytest.raises(EngineAway), translate_engine_errors():
        raise psycopg.errors.TooManyConnections("too many connections")


@pytest.mark.parametrize(
    ("name", "default", "needed"),
    [
        ("synchronous_commit", "off", "on"),
        ("idle_session_timeout", "1min", "0"),
        ("default_transaction_isolation", "serializable", "read committed"),
        ("statement_timeout", "1min", "0"),
        ("search_path", "public", "turnlog"),
    ],
)
def test_a_connection_does_not_depend_on_the_defaults_of_the_database(
    server: PostgresServer, name: str, default: str, needed: str
) -> None:
    server.execute(f"alter role turnlog set {name} = '{default}'")
    try:
        with open_connection(server.url()) as connection, psycopg.connect(server.url()) as control:
            assert connection.execute(f"show {name}").fetchall() == [(needed,)]
            assert control.execute(f"show {name}").fetchall() == [(default,)]
    finally:
        server.execute(f"alter role turnlog reset {name}")


class CountingStore(PostgresStore):
    """A store that counts its reads of rows."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.calls: Counter[str] = Counter()

    def read(self, session_id: str, after: int, replay_from: int | None, limit_bytes: int) -> Page:
        self.calls["read"] += 1
        return super().read(session_id, after, replay_from, limit_bytes)

    def read_news(self, positions: Mapping[str, int]) -> dict[str, News]:
        self.calls["read_news"] += 1
        self.calls["sessions"] += len(positions)
        return super().read_news(positions)


def test_followers_of_many_sessions_share_the_reads_of_what_another_log_appends(
    server: PostgresServer,
) -> None:
    """30 sessions with 5 followers each: a read brings several sessions, and followers do not read."""

    async def run() -> None:
        writer = Log(PostgresStore(server.url()))
        store = CountingStore(server.url())
        reader = Log(store)
        sessions = [await writer.create("t") for _ in range(30)]
        followers = [asyncio.create_task(follow_seqs(reader, session_id, 10)) for session_id in sessions * 5]
        while not are_followed(reader, len(sessions)):  # noqa: ASYNC110  a tail has no event for it
            await asyncio.sleep(0)
        for number in range(10):
            events = [structs.replace(durable_event(str(number)), id=new_id("evt_")) for _ in sessions]
            await asyncio.gather(
                *[writer.append(name, [event]) for name, event in zip(sessions, events, strict=True)]
            )
        assert await asyncio.gather(*followers) == [list(range(10))] * 150
        # A follower may read once while its tail begins; without the news each would read each event.
        assert store.calls["read"] <= len(followers)
        assert store.calls["read_news"] < store.calls["sessions"]
        await reader.close()
        await writer.close()

    asyncio.run(run())


def are_followed(log: Log, count: int) -> bool:
    return len(log.tails) == count and all(tail.is_synced for tail in log.tails.values())


async def follow_seqs(log: Log, session_id: str, count: int) -> list[int]:
    seqs: list[int] = []
    async with aclosing(log.follow(session_id)) as pages:
        async for page in pages:
            seqs += [row.seq for row in page]
            if len(seqs) >= count:
                break
    return seqs


def test_news_leave_out_what_is_damaged_and_followers_meet_the_damage(server: PostgresServer) -> None:
    async def work(log: Log) -> None:
        await fill(log)
        store = PostgresStore(server.url())
        news = store.read_news({SESSION: 4, OTHER: -1, "sess_unknown": -1})
        assert {name: [row.seq for row in rows] for name, (_, rows) in news.items()} == {
            SESSION: [5, 6],
            OTHER: [0],
        }
        server.execute(f"update turnlog.event set frame = 'other' {IN_SESSION} and seq = 5")
        assert store.read_news({SESSION: 4})[SESSION].rows == ()
        server.execute(f"update turnlog.session set crc = crc + 1 where name = '{SESSION}'")
        assert store.read_news({SESSION: 4}) == {}
        store.close()

    with_log(server, work)


def test_owners_that_were_killed_long_ago_are_forgotten(server: PostgresServer) -> None:
    async def work(log: Log) -> None:
        await log.create("t", SESSION)
        await log.leases.renew("one")

    with_log(server, work)
    server.execute(
        """insert into turnlog.worker values ('killed', 'p', '', now(), now() - interval '2 days'),
        ('silent', 'p', '', now(), now() - interval '1 hour')"""
    )
    with_log(server, lambda log: log.leases.renew("two"))
    assert server.execute("select owner from turnlog.worker") == [("silent",)]


def test_a_damaged_record_does_not_stop_the_doubt_after_a_failover(server: PostgresServer) -> None:
    with_log(server, fill)
    server.execute(f"update turnlog.session set record = {FLIP.format('record')} where name = '{SESSION}'")
    server.execute("update turnlog.engine set system_identifier = 1, quorum = false")

    async def work(log: Log) -> None:
        before = (await log.info(OTHER)).epoch
        await log.append(OTHER, durable_events("after"))
        assert (await log.info(OTHER)).epoch != before
        await log.append(SESSION, durable_events("repaired"))

    with_log(server, work)
