"""The SQLite store as a file: who may open it, a full disk, reading beside a writer."""

import asyncio
import logging
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from tests.support.coverage_pause import without_coverage
from tests.support.limits import HANG_S
from tests.support.transact import transact
from tests.unit.log.delegates import THREAD_DIES, all_pages, held, scenario, soon, until
from turnlog.errors import CallerError, StoreError, TurnlogError
from turnlog.events import Event
from turnlog.ids import uuid7
from turnlog.log import Document, Log, SqliteStore
from turnlog.log.records import SessionRecord
from turnlog.log.sqlite.queries import REPLAY_WINDOW_SEQS
from turnlog.log.sqlite.schema import SCHEMA_VERSION
from turnlog.log.sqlite.watermark import GROW_SLOTS
from turnlog.testing.factories import (
    block_delta_event,
    block_end_event,
    block_start_event,
    durable_event,
    durable_events,
)
from turnlog.testing.harness import open_follower

SESSION = "sess_1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "log.db"


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Log]:
    log = Log(SqliteStore(path))
    try:
        if not await log.sessions():
            await log.create("t", SESSION)
        yield log
    finally:
        await log.close()


@asynccontextmanager
async def reading(path: Path) -> AsyncIterator[Log]:
    log = Log(SqliteStore(path, writable=False), writable=False)
    try:
        yield log
    finally:
        await log.close()


def edit(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


# who may open it


def test_a_second_writer_is_refused_until_the_first_one_is_gone(path: Path) -> None:
    first = SqliteStore(path)
    with pytest.raises(StoreError, match=r"log.db is being written by another process; stop that one first"):
        SqliteStore(path)
    first.close()
    SqliteStore(path).close()


def test_a_second_writer_is_refused_by_whatever_name_it_comes(path: Path) -> None:
    first = SqliteStore(path)
    path.with_name("link.db").symlink_to(path)
    with pytest.raises(StoreError, match=r"log.db is being written"):
        SqliteStore(path.with_name("link.db"))
    first.close()


def test_a_second_writing_process_is_refused(path: Path) -> None:
    program = f"""
from pathlib import Path
from turnlog.errors import StoreError, TurnlogError
from turnlog.log import SqliteStore
try:
    SqliteStore(Path({str(path)!r}))
except StoreError as error:
    raise SystemExit(str(error))
"""
    first = SqliteStore(path)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (
        1,
        "log.db is being written by another process; stop that one first\n",
    )
    first.close()
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("writable", [True, False])
def test_a_file_of_a_newer_version_is_refused_and_left_alone(path: Path, writable: bool) -> None:
    SqliteStore(path).close()
    edit(path, f"pragma user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(StoreError, match=r"log.db was written by a newer Turnlog \(schema \d+\)"):
        SqliteStore(path, writable=writable)
    edit(path, f"pragma user_version = {SCHEMA_VERSION}")
    SqliteStore(path).close()


def test_a_file_of_the_version_before_is_brought_up_to_date_by_its_first_writer(path: Path) -> None:
    SqliteStore(path).close()
    edit(path, "drop table upload", "pragma user_version = 4")
    with pytest.raises(StoreError, match=r"older Turnlog \(schema 4\); open it once for writing"):
        SqliteStore(path, writable=False)
    SqliteStore(path).close()
    SqliteStore(path, writable=False).close()

    async def upload() -> None:
        log = Log(SqliteStore(path))
        session = await log.create("desk")
        name = await log.put_upload(session, b"text", "text/plain")
        assert await log.keep_uploads(session, [name]) == {name: ("text/plain", 4)}
        await log.close()

    asyncio.run(upload())


def test_reading_what_is_not_there_makes_nothing(path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no log at /.*log\.db"):
        SqliteStore(path, writable=False)
    assert not path.parent.exists()


@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize("content", [b"this is not a database" * 1000, b"SQLite format 3\0" + b"\0" * 5000])
def test_something_else_is_refused_and_left_alone(path: Path, content: bytes, writable: bool) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(StoreError, match="the log cannot be used"):
        SqliteStore(path, writable=writable)
    assert path.read_bytes() == content


def test_an_empty_file_is_a_new_log_for_a_writer_and_none_for_a_reader(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    with pytest.raises(StoreError):
        SqliteStore(path, writable=False)
    SqliteStore(path).close()


@pytest.mark.parametrize("name", ["a b.db", "a#b.db", "ü.db"])
def test_a_log_is_in_the_file_that_was_named(tmp_path: Path, name: str) -> None:
    SqliteStore(tmp_path / name).close()
    assert {file.name for file in tmp_path.iterdir()} == {name, f"{name}.lock", f"{name}.mark"}


@pytest.mark.parametrize("name", ["a?b.db", "a%41b.db"])
def test_a_log_is_in_the_file_that_was_named_whatever_the_name(tmp_path: Path, name: str) -> None:
    SqliteStore(tmp_path / name).close()
    assert {file.name for file in tmp_path.iterdir()} == {name, f"{name}.lock", f"{name}.mark"}


def test_a_place_where_no_file_can_be_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError):
        SqliteStore(tmp_path / "file" / "log.db")


# the mark


@scenario
async def test_a_lost_mark_is_told_and_the_log_is_used(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(path) as log:
        await log.append(SESSION, durable_events("a", "b"))
    path.with_name("log.db.mark").unlink()
    with caplog.at_level(logging.ERROR):
        async with opened(path) as log:
            [told] = await log.verify()
            assert "log.db.mark is missing" in told.problem
            assert await log.damages() == []
            assert (await log.append(SESSION, durable_events("c"))).seqs == [2]
    assert "log.db.mark is missing: a lost end of the log cannot be noticed this time" in caplog.text
    async with opened(path) as log:
        assert await log.verify() == []


@scenario
async def test_a_damaged_mark_is_told_and_the_log_is_used(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path) as log:
        await log.append(SESSION, durable_events("a", "b"))
    path.with_name("log.db.mark").write_bytes(b"nothing of the kind")
    with caplog.at_level(logging.ERROR, "turnlog.log"):
        async with opened(path) as log:
            assert (await log.append(SESSION, durable_events("c"))).seqs == [2]
            assert await log.damages() == []
            assert [damage.problem.split(":")[0] for damage in await log.verify()] == [
                "log.db.mark is damaged"
            ]
    assert "log.db.mark is damaged" in caplog.text


@pytest.mark.parametrize("content", [b"nothing of the kind" * 5])
def test_a_damaged_mark_does_not_keep_a_reader_out(path: Path, content: bytes) -> None:
    SqliteStore(path).close()
    path.with_name("log.db.mark").write_bytes(content)
    store = SqliteStore(path, writable=False)
    assert (store.sessions(), store.damages()) == ([], [])
    store.close()


@pytest.mark.parametrize("content", [b"", b"turnlog1"])
def test_a_mark_that_was_cut_off_does_not_keep_a_reader_out(path: Path, content: bytes) -> None:
    SqliteStore(path).close()
    path.with_name("log.db.mark").write_bytes(content)
    with closing(SqliteStore(path, writable=False)) as store:
        before = store.commit_count()
        assert (store.sessions(), store.damages()) == ([], [])
        writer = SqliteStore(path)
        with writer.transaction():
            writer.put_record(SessionRecord("sess_1", epoch="e", app="t"))
        writer.close()
        assert store.commit_count() != before, "news are noticed without the mark too"


@scenario
async def test_news_are_noticed_without_the_mark_whichever_thread_looks(path: Path) -> None:
    async with opened(path) as log:
        path.with_name("log.db.mark").rename(path.with_name("elsewhere"))
        with closing(SqliteStore(path, writable=False)) as store:
            before = store.commit_count()
            await log.append(SESSION, durable_events("a"))
            assert await asyncio.to_thread(store.commit_count) != before


@without_coverage()
@scenario
async def test_thousands_of_sessions_fit_and_the_memory_of_heads_is_bounded(path: Path) -> None:
    async with opened(path) as log:
        made = [SessionRecord(f"sess_{number}", epoch="e", app="t") for number in range(2, 10_010)]
        await transact(log, lambda store: put_heads(store, made))
        for number in (1, 2, GROW_SLOTS, 10_009):
            assert (await log.append(f"sess_{number}", durable_events("a"))).seqs == [0]
        assert len(await log.sessions()) == 10_009
    async with opened(path) as log:
        assert await log.damages() == []
        assert (await log.info("sess_10009")).last == 0


def put_heads(store: SqliteStore, heads: list[SessionRecord]) -> None:
    for head in heads:
        store.put_record(head)


# a full disk


async def limit_pages(log: Log, store: SqliteStore, more: int | None) -> None:
    """Let the file grow by so many pages and no more."""
    used = store._writer_connection.execute("pragma page_count").fetchone()[0]
    pages = 1 << 30 if more is None else used + more
    await transact(
        log, lambda _: store._writer_connection.execute(f"pragma max_page_count = {pages}").fetchone()
    )


async def fill(log: Log, size: int, events: int) -> list[int]:
    """Append until it fails three times; the seqs that were acknowledged."""
    acknowledged: list[int] = []
    refusals: list[str] = []
    for number in range(5000):
        try:
            batch = [durable_event(f"{number}-{part}", "z" * size) for part in range(events)]
            acknowledged += (await log.append(SESSION, batch)).seqs
        except StoreError as error:
            refusals.append(str(error))
        if len(refusals) == 3:
            break
    assert refusals == ["the log cannot be used: database or disk is full"] * 3
    return acknowledged


@pytest.mark.parametrize(("size", "events"), [(100, 1), (100, 3), (20_000, 1), (20_000, 3), (500_000, 1)])
def test_a_full_disk_fails_the_append_and_nothing_else(path: Path, size: int, events: int) -> None:
    @scenario
    async def run() -> None:
        store = SqliteStore(path)
        log = Log(store)
        for session in (SESSION, "sess_2"):
            await log.create("t", session)
        await limit_pages(log, store, 2)
        acknowledged = await fill(log, size, events)
        assert [row.seq for row in await log.read(SESSION, max_bytes=1 << 30)] == acknowledged
        with pytest.raises(StoreError):
            await log.append("sess_2", [durable_event(str(part), "z" * size) for part in range(100)])
        await limit_pages(log, store, None)
        assert (await log.append("sess_2", durable_events("a"))).seqs == [0]
        acknowledged += (await log.append(SESSION, durable_events("y", "z"))).seqs
        assert acknowledged == list(range(len(acknowledged)))
        assert [row.seq for row in await log.read(SESSION, max_bytes=1 << 30)] == acknowledged
        assert await log.verify() == await log.damages() == []
        await log.close()
        async with opened(path) as again:
            assert await again.damages() == []
            assert (await again.info(SESSION)).last == acknowledged[-1]

    run()


@scenario
async def test_a_session_that_did_not_fit_is_not_there_afterwards(path: Path) -> None:
    store = SqliteStore(path)
    log = Log(store)
    await limit_pages(log, store, 0)
    made = list[str]()
    with suppress(StoreError):
        while True:
            made.append(await log.create("t" * 1000, f"sess_{len(made)}"))
    assert [head.session_id for head in await log.sessions()] == made
    await limit_pages(log, store, None)
    made.append(await log.create("t", f"sess_{len(made)}"))
    assert (await log.append(made[-1], durable_events("a"))).seqs == [0]
    assert [head.session_id for head in await log.sessions()] == made
    await log.close()


@scenario
async def test_work_that_fails_in_the_store_takes_its_whole_group_back(path: Path) -> None:
    unfit = Document(SESSION, "doc-1", "t", "c", None)  # type: ignore[arg-type]
    async with opened(path) as log:
        async with held(log):
            good = log.submit(SESSION, durable_events("a"))
            bad = asyncio.create_task(log.put_document(unfit))
            await asyncio.sleep(0)
        outcomes = await asyncio.gather(good, bad, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StoreError, StoreError]
        assert (await log.append(SESSION, durable_events("a"))).seqs == [0]
        assert await log.verify() == []


@THREAD_DIES
@pytest.mark.parametrize("fence", [1 << 63, 1 << 70])
def test_a_number_that_no_column_holds_is_refused(path: Path, fence: int) -> None:
    @scenario
    async def run() -> None:
        async with opened(path) as log:
            with pytest.raises(TurnlogError):
                await soon(log.append(SESSION, durable_events("a"), fence=fence))
            assert (await soon(log.append(SESSION, durable_events("a")))).seqs == [0]

    run()


@THREAD_DIES
@scenario
async def test_text_that_cannot_be_stored_is_refused(path: Path) -> None:
    async with opened(path) as log:
        with pytest.raises(TurnlogError):
            await soon(log.create("a lone surrogate: \ud800"))
        assert (await soon(log.append(SESSION, durable_events("a")))).seqs == [0]


@scenario
async def test_what_no_column_holds_cannot_be_asked_for(path: Path) -> None:
    async with opened(path) as log:
        for seq in (1 << 63, -1 << 70):
            with pytest.raises(CallerError):
                await log.read(SESSION, seq)
        with pytest.raises(CallerError):
            await log.info("sess_\ud800")


# reading beside the process that writes


@scenario
async def test_a_reading_process_gets_what_is_written_and_writes_nothing(path: Path) -> None:
    async with opened(path) as log, reading(path) as reader:
        follower = asyncio.create_task(all_pages(reader, SESSION))
        for number in range(5):
            await log.append(SESSION, [durable_event(str(number))])
            assert (await reader.info(SESSION)).last == number
        await log.close_session(SESSION)
        assert [row.seq for row in await follower] == [0, 1, 2, 3, 4]
        for refused in (
            reader.append(SESSION, durable_events("a")),
            reader.create("t"),
            reader.put_blob(SESSION, b"", "t"),
        ):
            with pytest.raises(StoreError, match="reading only"):
                await refused


@scenario
async def test_a_log_nobody_writes_can_be_read(path: Path) -> None:
    async with opened(path) as log:
        await log.append(SESSION, durable_events("a", "b"))
    async with reading(path) as reader:
        assert [row.seq for row in await reader.read(SESSION)] == [0, 1]
        assert await reader.verify() == await reader.damages() == []


@scenario
async def test_a_reading_process_follows_sessions_that_are_new(path: Path) -> None:
    async with opened(path) as log, reading(path) as reader:
        other = await log.create("t")
        async with open_follower(reader, other) as pages:
            await log.append(other, durable_events("a"))
            assert [row.seq for row in await anext(pages)] == [0]
            await log.append(SESSION, durable_events("a"))
            await log.append(other, durable_events("b"))
            assert [row.seq for row in await anext(pages)] == [1]


@scenario
async def test_a_damaged_session_does_not_make_a_reading_process_deaf_to_the_others(path: Path) -> None:
    async with opened(path) as log, reading(path) as reader:
        other = await log.create("t")
        deaf = asyncio.create_task(all_pages(reader, other))
        await until(lambda: other in reader.tails)
        async with open_follower(reader, SESSION, idle_s=0.01) as pages:
            assert not await anext(pages)
            edit(path, f"update session set app = 'x' where name = '{other}'")
            for number in range(3):
                await log.append(SESSION, [durable_event(str(number))])
                async with asyncio.timeout(HANG_S):
                    while not (page := await anext(pages)):
                        pass
                assert page[-1].seq == number
        deaf.cancel()
        await asyncio.gather(deaf, return_exceptions=True)


@scenario
async def test_what_is_sent_at_once_is_bounded_whatever_the_size_of_events(path: Path) -> None:
    async with opened(path) as log:
        session = await log.create("t")
        await log.append(session, [durable_event(str(number), "z" * 500_000) for number in range(40)])
        await log.close_session(session)
        sizes = [len(data) async for data in log.follow_frames(session)]
        assert sum(sizes) > 40 * 500_000
        assert max(sizes) < 2 * 600_000


# lookups of ids


def timed(name: str, ms: int) -> Event:
    """A durable event whose id begins with a time, as that of `new_id` does."""
    return durable_event(uuid7(ms, name.encode().ljust(10)))


HASHED = "f" * 40  # larger than every id that begins with a time


@scenario
async def test_new_timed_ids_are_not_looked_up_beside_a_hashed_one(path: Path) -> None:
    store = SqliteStore(path)
    log = Log(store)
    await log.create("t", SESSION)
    await log.append(SESSION, [durable_event(HASHED), timed("a", 1_000)])
    looked_up: list[str] = []
    store._writer_connection.set_trace_callback(looked_up.append)
    for ms in range(2_000, 2_100):
        await log.append(SESSION, [timed("b", ms)])
    store._writer_connection.set_trace_callback(None)
    assert not [query for query in looked_up if "and id" in query]
    await log.close()


@scenario
async def test_ids_are_known_again_after_a_start_whether_timed_or_hashed(path: Path) -> None:
    events = [
        timed("b", 2_000),
        durable_event(HASHED),
        timed("a", 1_000),
        durable_event("0"),
        durable_event("z"),
    ]
    async with opened(path) as log:
        assert (await log.append(SESSION, events)).seqs == [0, 1, 2, 3, 4]
        assert [(await log.append(SESSION, [event])).seqs for event in events] == [[0], [1], [2], [3], [4]]
    async with opened(path) as log:
        assert [(await log.append(SESSION, [event])).seqs for event in events] == [[0], [1], [2], [3], [4]]
        assert (await log.append(SESSION, [timed("c", 1_500), durable_event("e" * 40)])).seqs == [5, 6]


@scenario
async def test_replay_leaves_out_a_block_that_is_longer_than_its_window(path: Path) -> None:
    async with opened(path) as log:
        deltas = [block_delta_event("x", number) for number in range(REPLAY_WINDOW_SEQS + 10)]
        await log.append(SESSION, [block_start_event("x"), *deltas, block_end_event("x"), durable_event("a")])
        await log.append(
            SESSION, [block_start_event("y"), block_delta_event("y"), block_delta_event("x", -1)]
        )
        replayed: list[int] = []
        while page := await log.read(SESSION, replayed[-1] if replayed else -1, replay_from=-1):
            replayed += [row.seq for row in page]

        end = len(deltas) + 1
        assert replayed == [0, end, end + 1, end + 2, end + 3]
