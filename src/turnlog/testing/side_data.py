"""Contracts of a store: blobs, documents, snapshots, pruning and erasing."""

from turnlog.errors import CallerError, Conflict, NotFound, SessionClosed
from turnlog.log import Blob, Document, Snapshot
from turnlog.testing.factories import (
    block_delta_event,
    block_end_event,
    block_start_event,
    durable_event,
    durable_events,
    tool_call_event,
    tool_progress_event,
    tool_result_event,
)
from turnlog.testing.harness import StoreFactory, expect_raises, next_seqs, open_follower, open_harness


async def blob_round_trip(make_store: StoreFactory) -> None:
    """The store keeps a blob once per session and hash, with its first media type."""
    async with open_harness(make_store) as harness:
        data = bytes(range(256)) * 40
        digest = await harness.put_blob(data, "image/png")
        assert await harness.put_blob(data, "image/other") == digest
        assert await harness.put_blob(b"", "text/plain") != digest
        assert await harness.log.get_blob(digest) == Blob("image/png", data)
        assert await harness.log.put_blob("sess_other", data, "image/png") != digest
        await expect_raises(NotFound, harness.log.get_blob("0" * 64))


async def blob_requires_media_type(make_store: StoreFactory) -> None:
    """The log refuses a blob without a media type."""
    async with open_harness(make_store) as harness:
        await expect_raises(CallerError, harness.put_blob(b"x", ""))


async def list_blob_names(make_store: StoreFactory) -> None:
    """The store lists the blob names of one session, sorted, and of no other session."""
    async with open_harness(make_store) as harness:
        names = [await harness.put_blob(b"%d" % number, "text/plain") for number in range(5)]
        await harness.log.put_blob(f"{harness.session}0", b"other", "text/plain")
        await harness.log.put_blob(harness.session[:-1], b"other", "text/plain")
        assert await harness.log.blob_names(harness.session) == sorted(names)
        assert await harness.log.blob_names("sess_none") == []


async def query_documents(make_store: StoreFactory) -> None:
    """The store finds documents by session, type and category, sorted; a new one replaces the old."""
    async with open_harness(make_store) as harness:
        documents = [
            Document("sess_1", "doc-2", "lead", "open", b"2"),
            Document("sess_1", "doc-1", "lead", "closed", b"1"),
            Document("sess_1", "doc-3", "note", "open", b"3"),
            Document("sess_2", "doc-1", "lead", "open", b"4"),
        ]
        for document in documents:
            await harness.log.put_document(document)
        assert await harness.log.documents() == [documents[1], documents[0], documents[2], documents[3]]
        assert await harness.log.documents("sess_1", type="lead") == [documents[1], documents[0]]
        assert await harness.log.documents(type="lead", category="open") == [documents[0], documents[3]]
        assert await harness.log.documents("sess_2", category="open") == [documents[3]]
        assert await harness.log.documents("sess_3") == []
        changed = documents[0]._replace(type="note", body=b"\x00")
        await harness.log.put_document(changed)
        assert await harness.log.documents("sess_1", type="note") == [changed, documents[2]]
        assert await harness.log.documents("sess_1", type="lead") == [documents[1]]


async def latest_snapshot(make_store: StoreFactory) -> None:
    """The store returns the newest snapshot of a session and name at or before a seq."""
    async with open_harness(make_store) as harness:
        for seq, body in ((4, b"four"), (9, b"nine"), (4, b"four again")):
            await harness.put_snapshot("tree", seq, body)
        await harness.put_snapshot("roster", 6, b"six")
        await harness.log.put_snapshot("sess_2", "tree", 5, b"five")
        snapshots = [await harness.snapshot("tree", at) for at in (3, 4, 8, 9, 1000)]
        assert snapshots == [None, (4, b"four again"), (4, b"four again"), (9, b"nine"), (9, b"nine")]
        assert await harness.snapshot("roster", 1000) == (6, b"six")
        assert await harness.snapshot("unheard-of", 1000) is None


async def drop_snapshots_by_seq(make_store: StoreFactory) -> None:
    """The store drops snapshots of one session and name from a first to a last seq, inclusive."""
    async with open_harness(make_store) as harness:
        for seq in (3, 4, 8, 9):
            await harness.put_snapshot("tree", seq, b"%d" % seq)
        await harness.put_snapshot("roster", 4, b"roster")
        await harness.log.put_snapshot("sess_2", "tree", 4, b"other")
        await harness.log.drop_snapshots(harness.session, "tree", 4, 8)
        await harness.log.drop_snapshots("sess_3", "tree", 0, 100)
        snapshots = [await harness.snapshot("tree", at) for at in (3, 8, 9)]
        assert snapshots == [(3, b"3"), (3, b"3"), (9, b"9")]
        assert await harness.snapshot("roster", 4) == (4, b"roster")
        assert await harness.log.snapshot("sess_2", "tree", 4) == (4, b"other")


async def delete_derived_data(make_store: StoreFactory) -> None:
    """The store deletes all documents and snapshots together; events and blobs stay."""
    async with open_harness(make_store) as harness:
        await harness.append(durable_event("a"))
        digest = await harness.put_blob(b"data", "text/plain")
        await harness.log.put_document(Document(harness.session, "doc-1", "lead", "open", b""))
        await harness.put_snapshot("tree", 0, b"")
        await harness.log.delete_derived()
        assert await harness.log.documents() == []
        assert await harness.snapshot("tree", 0) is None
        assert (await harness.log.get_blob(digest)).data == b"data"
        assert await harness.read_seqs() == [0]


async def prune_finished_live_events(make_store: StoreFactory) -> None:
    """Pruning removes only live events of finished blocks and calls older than a time."""
    async with open_harness(make_store) as harness:
        old = harness.now_ms
        await harness.append(
            block_start_event("x"),
            block_delta_event("x"),
            block_delta_event("x", 1),
            tool_call_event("c"),
            tool_progress_event("c"),
        )  # 0 to 4
        await harness.append(
            block_end_event("x"), block_start_event("y"), block_delta_event("y"), block_delta_event("stray")
        )  # 5 to 8
        harness.now_ms += 1000
        await harness.append(
            tool_result_event("c"), block_start_event("z"), block_delta_event("z"), block_end_event("z")
        )  # 9 to 12
        before = {row.seq: row for row in await harness.read_rows()}
        assert await harness.prune(old) == 0
        assert await harness.prune(old + 1) == 3
        assert await harness.prune(old + 1) == 0
        rows = await harness.read_rows()
        assert [row.seq for row in rows] == [0, 3, 5, 6, 7, 8, 9, 10, 11, 12]
        assert all(before[row.seq] == row for row in rows)
        stored = [seq for seq in range(6) if await harness.log.has_event(harness.session, seq)]
        assert stored == [0, 3, 5]
        await harness.expect_undamaged()


async def append_and_read_after_pruning(make_store: StoreFactory) -> None:
    """After pruning seqs continue, and a reader at any cursor gets the remaining events."""
    async with open_harness(make_store) as harness:
        await harness.append(
            durable_event("a"),
            block_start_event("x"),
            block_delta_event("x"),
            block_delta_event("x", 1),
            block_end_event("x"),
            durable_event("b"),
        )
        record = await harness.info()
        async with open_follower(harness.log, harness.session, 0) as pages:
            assert await harness.prune(harness.now_ms + 1) == 2
            assert await next_seqs(pages) == [1, 4, 5]
            assert await harness.append(durable_event("c"), expected_last=5) == [6]
            assert await next_seqs(pages) == [6]
        assert [await harness.read_seqs(after) for after in (1, 2, 3, 4)] == [[4, 5, 6]] * 3 + [[5, 6]]
        assert await harness.read_seqs(max_bytes=1, replay_from=-1) == [0, 1, 4, 5, 6]
        assert await harness.append(*durable_events("a", "b")) == [0, 5]
        now = await harness.info()
        assert now.first == 0
        assert now.last == 6
        assert now.epoch == record.epoch
        assert now.pruned_through == 3


async def prune_first_and_last_events(make_store: StoreFactory) -> None:
    """Pruning may remove the first and the last events of a session; the others stay."""
    async with open_harness(make_store) as harness:
        await harness.append(
            block_delta_event("x"),
            block_start_event("x"),
            block_end_event("x"),
            durable_event("a"),
            block_delta_event("x", 1),
        )
        assert await harness.prune(harness.now_ms + 1) == 2
        assert await harness.read_seqs() == [1, 2, 3]
        assert await harness.read_seqs(3) == []
        assert await harness.append(durable_event("b")) == [5]
        assert await harness.read_seqs(2) == [3, 5]
        await harness.expect_undamaged()


async def erase_removes_all_events(make_store: StoreFactory) -> None:
    """Erasing removes all events and derived data of one session. Its id and its seqs stay used."""
    async with open_harness(make_store) as harness:
        log = harness.log
        other = await log.create("contract")
        await harness.append(durable_event("a"), session=other)
        await harness.append(
            durable_event("a"), block_start_event("x"), block_delta_event("x"), block_end_event("x")
        )
        await harness.put_snapshot("tree", 0, b"")
        blob = await harness.put_blob(b"public", "text/plain")
        upload = await log.put_upload(harness.session, b"upload", "text/plain")
        private = await log.put_blob(harness.session, b"private", "text/plain", private=True)
        other_blob = await log.put_blob(other, b"public", "text/plain")
        before = await harness.info()
        async with open_follower(log, harness.session, 3) as pages:
            assert await log.erase(harness.session) == 4
            assert [page async for page in pages] == []

        record = await harness.info()
        assert record.is_erased
        assert (record.first, record.last, record.epoch) == (4, 3, before.epoch)
        assert await harness.read_seqs() == []
        assert await harness.read_seqs(1, replay_from=-1) == []
        assert not await log.has_event(harness.session, 0)
        assert await log.find_events(harness.session, ["evt_a"]) == {}
        assert await harness.snapshot("tree", 0) is None
        assert (record.title, record.members, record.invites, record.creator) == ("", {}, {}, "")
        for name in (blob, upload):
            await expect_raises(NotFound, log.get_blob(name))
        await expect_raises(NotFound, log.get_private_blob(harness.session, private))
        assert (await log.get_blob(other_blob)).data == b"public"
        await expect_raises(SessionClosed, harness.append(durable_event("b")))
        await expect_raises(Conflict, log.create("contract", harness.session))
        assert await log.erase(harness.session) == 0
        assert (await log.read(other)).last == 0
        await harness.expect_undamaged()


async def healthy_store_verifies(make_store: StoreFactory) -> None:
    """An undamaged store reports no damage."""
    async with open_harness(make_store) as harness:
        await harness.append(
            block_start_event("x"), block_delta_event("x"), block_end_event("x"), *durable_events(*range(300))
        )
        await harness.log.create("contract")
        await harness.expect_undamaged()


async def versions_side_by_side(make_store: StoreFactory) -> None:
    """Snapshots and documents of two versions of the code do not affect each other."""
    async with open_harness(make_store) as harness:
        log = harness.log
        for version in ("old", "new"):
            await log.put_snapshot(harness.session, "tree", 4, version.encode(), version)
            await log.put_document(Document(harness.session, "d", "lead", "open", b"", version))
        assert await log.snapshot(harness.session, "tree", 9, "old") == (4, b"old")
        assert await log.snapshot(harness.session, "tree", 9, "new") == (4, b"new")
        assert await log.snapshot(harness.session, "tree", 9) is None
        assert [document.version for document in await log.documents(version="old")] == ["old"]
        assert await log.documents() == []

        await log.drop_snapshots(harness.session, "tree", 0, 9, "old")
        await log.delete_derived(harness.session, "old")
        assert await log.documents(version="old") == []
        assert await log.snapshot(harness.session, "tree", 9, "old") is None
        assert await log.snapshot(harness.session, "tree", 9, "new") == (4, b"new")
        assert len(await log.documents(harness.session, type="lead", version="new")) == 1


async def collect_old_versions(make_store: StoreFactory) -> None:
    """Collecting removes what other versions stored in one session long ago, and nothing else."""
    async with open_harness(make_store) as harness:
        log = harness.log
        other = await log.create("contract")
        for session in (harness.session, other):
            for version in ("old", "new"):
                await log.put_snapshot(session, "tree", 1, b"", version)
                await log.put_document(Document(session, "d", "lead", "open", b"", version))
        harness.now_ms += 1000
        await log.put_snapshot(harness.session, "tree", 2, b"", "late")
        await log.collect_derived(harness.session, ["new"], older_ms=1001)
        assert await log.snapshot(harness.session, "tree", 9, "old") == (1, b"")
        await log.collect_derived(harness.session, ["new"], older_ms=999)
        assert await log.snapshot(harness.session, "tree", 9, "old") is None
        assert await log.snapshot(harness.session, "tree", 9, "new") == (1, b"")
        assert await log.snapshot(harness.session, "tree", 9, "late") == (2, b"")
        assert [document.session_id for document in await log.documents(version="old")] == [other]
        assert len(await log.documents(version="new")) == 2


async def replace_unchanged_snapshot(make_store: StoreFactory) -> None:
    """A snapshot and its documents replace the stored ones only if the snapshot is the expected one."""
    async with open_harness(make_store) as harness:
        log = harness.log
        document = Document(harness.session, "d", "lead", "open", b"1", "v")
        first = Snapshot(harness.session, "documents", 0, b"first", "v")
        assert not await log.replace_snapshot(first, b"other", [document])
        assert await log.documents(version="v") == []
        assert await log.replace_snapshot(first, None, [document])
        assert not await log.replace_snapshot(first._replace(body=b"late"), None, [])
        assert await log.documents(version="v") == [document]
        changed = document._replace(body=b"2")
        assert await log.replace_snapshot(first._replace(body=b"second"), b"first", [changed])
        assert await log.snapshot(harness.session, "documents", 0, "v") == (0, b"second")
        assert await log.documents(version="v") == [changed]
