"""Damage beside the events: definitions, session records that cannot be read, documents, snapshots, blobs."""

import logging
import sqlite3
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path

import pytest

from tests.unit.log.damaging import OTHER, SESSION, edit, fill, opened, seqs
from tests.unit.log.delegates import scenario
from turnlog.errors import NotFound, SessionClosed, SessionDamaged, StoreError
from turnlog.events import SessionInvite, SessionMember, SessionTitle
from turnlog.log import Document, SqliteStore
from turnlog.testing.closing import close_event
from turnlog.testing.factories import durable_event, durable_events, make_event


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.mark.parametrize(
    "change",
    [
        "replace(sql, 'primary key', 'trimary key') where name = 'session'",
        "replace(sql, 'seq integer', 'seq_integer') where name = 'event'",
        "cast(x'ff' || sql as text) where name = 'damage'",
        "replace(sql, 'not null', 'not nell') where name = 'span'",
    ],
)
@scenario
async def test_tables_that_are_not_defined_as_they_were_are_refused(path: Path, change: str) -> None:
    async with opened(path) as log:
        await fill(log)
    edit(path, "pragma writable_schema = 1", f"update sqlite_schema set sql = {change}")
    for writable in (True, False):
        with pytest.raises(StoreError):
            SqliteStore(path, writable=writable)


def find_in_record(path: Path, name: str) -> int:
    """Return the offset of a session's name in the table of records, behind its index."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
        page_bytes = connection.execute("pragma page_size").fetchone()[0]
        query = "select rootpage from sqlite_schema where name = 'session'"
        root = connection.execute(query).fetchone()[0]
    start = (root - 1) * page_bytes
    return path.read_bytes().index(name.encode(), start, start + page_bytes)


def unreadable_record(path: Path, name: str) -> None:
    """Spoil the length of the header of a session's record, so that SQLite cannot read it."""
    place = find_in_record(path, name)
    content = bytearray(path.read_bytes())
    header = next(size for size in range(14, 40) if content[place - size] == size)  # the id has no bytes
    content[place - header] = 0x7F
    path.write_bytes(content)


@scenario
async def test_a_record_that_cannot_be_read_leaves_the_other_sessions_alone(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path) as log:
        await fill(log)
        await log.create("t", "sess_3")
        await log.append("sess_3", durable_events("x"))
    unreadable_record(path, OTHER)
    with caplog.at_level(logging.ERROR, "turnlog.log"):
        async with opened(path) as log:
            assert OTHER in caplog.text
            assert [head.session_id for head in await log.sessions()] == [SESSION, "sess_3"]
            assert [row.seq for row in await log.read(SESSION)] == list(range(6))
            assert (await log.append("sess_3", [durable_event("y")])).seqs == [1]
            with pytest.raises(StoreError):
                await log.info(OTHER)
            assert any(damage.session_id == OTHER for damage in await log.verify())


def damage_name(path: Path, name: str) -> None:
    place = find_in_record(path, name)
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@scenario
async def test_a_damaged_name_that_its_index_still_has_is_told_and_the_session_goes_on(path: Path) -> None:
    async with opened(path) as log:
        await fill(log)
    damage_name(path, SESSION)
    async with opened(path) as log:
        assert await log.verify()
        assert (await log.append(SESSION, durable_events("new"))).seqs == [6]
    async with opened(path) as log:
        assert await seqs(log) == [0, 1, 2, 3, 4, 5, 6]


@scenario
async def test_a_missing_session_is_told_once_and_recorded(path: Path) -> None:
    async with opened(path) as log:
        await fill(log)
    edit(path, f"delete from session where name = '{OTHER}'")
    async with opened(path) as log:
        assert [(d.session_id, d.first, d.last) for d in await log.damages()] == [(OTHER, 0, 5)]
    async with opened(path) as log:
        assert len(await log.damages()) == 1


@scenario
async def test_verify_names_a_session_that_went_missing_meanwhile(path: Path) -> None:
    async with opened(path) as log:
        await fill(log)
        edit(path, f"delete from session where name = '{OTHER}'")
        assert [(d.session_id, d.problem) for d in await log.verify()] == [(OTHER, "the session is missing")]


@scenario
async def test_a_document_that_is_not_what_was_written_is_not_served(path: Path) -> None:
    async with opened(path) as log:
        await log.put_document(Document(SESSION, "d", "lead", "open", b"{}"))
        for column in ("session", "id", "type", "category", "body"):
            with closing(sqlite3.connect(path)) as connection:
                (kept,) = connection.execute(f"select {column} from document").fetchone()
                connection.execute(f"update document set {column} = 'x'")
                connection.commit()
                with pytest.raises(StoreError, match="document"):
                    await log.documents()
                assert [damage.problem for damage in await log.verify()] == [
                    "a document, snapshot or blob is not what was written"
                ]
                connection.execute(f"update document set {column} = ?", (kept,))
                connection.commit()
        assert len(await log.documents()) == 1


@scenario
async def test_an_older_snapshot_takes_the_place_of_a_damaged_one(path: Path) -> None:
    async with opened(path) as log:
        await log.put_snapshot(SESSION, "tree", 1, b"one")
        await log.put_snapshot(SESSION, "tree", 2, b"two")
        edit(path, "update snapshot set body = x'00' where seq = 2")
        assert await log.snapshot(SESSION, "tree", 5) == (1, b"one")
        edit(path, "update snapshot set seq = 3 where seq = 1")
        assert await log.snapshot(SESSION, "tree", 5) is None


@pytest.mark.parametrize("change", ["media_type = 'text/html'", "data = x'00'", "data = 'text'", "crc = 7"])
@scenario
async def test_a_blob_that_is_not_what_was_written_is_not_served(path: Path, change: str) -> None:
    async with opened(path) as log:
        name = await log.put_blob(SESSION, b"content", "image/png")
        assert name == f"{SESSION}/{sha256(b'content').hexdigest()}"
        edit(path, f"update blob set {change}")
        with pytest.raises(StoreError, match="blob"):
            await log.get_blob(name)


@pytest.mark.parametrize(
    "change", ["private = 0", "data = x'00'", "media_type = 'text/html'", "name = name || 'a'"]
)
@scenario
async def test_a_private_blob_that_is_not_what_was_written_is_not_returned(path: Path, change: str) -> None:
    async with opened(path) as log:
        name = await log.put_blob(SESSION, b"content", "image/png", private=True)
        assert (await log.get_private_blob(SESSION, name)).data == b"content"
        edit(path, f"update blob set {change}")
        with pytest.raises((StoreError, NotFound), match="blob"):
            await log.get_private_blob(SESSION, name)
        with pytest.raises((StoreError, NotFound), match="blob"):
            await log.get_blob(name)
        [damage] = await log.verify()
        assert damage.session_id == SESSION


@pytest.mark.parametrize("value", ["x'ff'", "7", "'zzz'"])
@scenario
async def test_an_id_that_is_damaged_hides_no_other(path: Path, value: str) -> None:
    async with opened(path) as log:
        await fill(log)
    edit(path, f"update event set id = {value} where session = 1 and seq = 5")
    async with opened(path) as log:
        assert (await log.append(SESSION, durable_events("2", "new"))).seqs == [2, 6]


@scenario
async def test_a_seq_of_another_type_is_told(path: Path) -> None:
    async with opened(path) as log:
        await fill(log)
    edit(path, "update event set seq = 'x' where session = 1 and seq = 5")
    async with opened(path) as log:
        assert any(damage.session_id == SESSION for damage in await log.damages())
        assert (await log.append(SESSION, [durable_event("new")])).seqs == [6]


@scenario
async def test_a_link_of_another_type_breaks_the_chain(path: Path) -> None:
    async with opened(path) as log:
        await fill(log)
        edit(path, "update event set chain = 'x' where session = 1 and seq = 2")
        assert {damage.first for damage in await log.verify()} == {2, 3}


@pytest.mark.parametrize("column", ["members = '{}'", "members = x'ff'", "title = 'other'", "updated = 1"])
def test_a_lost_record_keeps_the_members_that_its_events_name(path: Path, column: str) -> None:
    @scenario
    async def run() -> None:
        async with opened(path) as log:
            says = [
                make_event(SessionMember(principal="ada", roles=("owner",)), "ada"),
                make_event(SessionMember(principal="eve", roles=("owner",)), "eve"),
                make_event(SessionTitle(title="A trip"), "title"),
            ]
            await log.create("t", SESSION)
            await log.append(SESSION, says)
            edit(path, f"update session set {column}")
            edit(path, "update event set crc = 0 where seq = 1")
            with suppress(SessionDamaged):
                await log.info(SESSION)
            head = await log.info(SESSION)
            assert (head.title, head.members) == ("A trip", {"ada": ("owner",)})

    run()


@scenario
async def test_lost_record_with_an_open_invite_leaves_it_ended(path: Path) -> None:
    async with opened(path) as log:
        invite = SessionInvite(invite_id="inv_1", roles=("guest",), expires_ms=1)
        await log.create("t", SESSION)
        await log.append(SESSION, [make_event(SessionMember(principal="ada", roles=("owner",)), "ada")])
        await log.append(SESSION, [make_event(invite, "invite")])
        edit(path, "update session set invites = 'x'")
        with suppress(SessionDamaged):
            await log.info(SESSION)
        head = await log.info(SESSION)
        assert (head.creator, head.invites, head.members_seq) == ("ada", {}, 1)


@scenario
async def test_lost_record_of_a_closed_session_stays_closed(path: Path) -> None:
    async with opened(path) as log:
        await log.create("t", SESSION)
        await log.append(SESSION, durable_events("a"))
        await log.close_session(SESSION, [close_event()])
        edit(path, "update session set closed = 0")
        with suppress(SessionDamaged):
            await log.info(SESSION)
        assert (await log.info(SESSION)).closed
        with pytest.raises(SessionClosed):
            await log.append(SESSION, durable_events("b"))
