"""What a store promises about what stands beside the events, and about pruning."""

from turnlog.errors import CallerError, NotFound
from turnlog.log import Blob, Document
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
from turnlog.testing.harness import StoreFactory, expect_raises, open_follower, open_harness


async def blob_round_trip(make: StoreFactory) -> None:
    """Binary content is known by its session and hash; the same content is kept once, as it first came."""
    async with open_harness(make) as b:
        data = bytes(range(256)) * 40
        digest = await b.log.put_blob(b.session, data, "image/png")
        assert await b.log.put_blob(b.session, data, "image/other") == digest
        assert await b.log.put_blob(b.session, b"", "text/plain") != digest
        assert await b.log.get_blob(digest) == Blob("image/png", data)
        assert await b.log.put_blob("sess_other", data, "image/png") != digest
        await expect_raises(NotFound, b.log.get_blob("0" * 64))


async def blob_requires_media_type(make: StoreFactory) -> None:
    """Binary content without a media type is refused."""
    async with open_harness(make) as b:
        await expect_raises(CallerError, b.log.put_blob(b.session, b"x", ""))


async def list_blob_names(make: StoreFactory) -> None:
    """The blobs of a session are found by its id, in the order of their names, and no other session's."""
    async with open_harness(make) as b:
        made = [await b.log.put_blob(b.session, b"%d" % number, "text/plain") for number in range(5)]
        await b.log.put_blob(f"{b.session}0", b"other", "text/plain")
        await b.log.put_blob(b.session[:-1], b"other", "text/plain")
        assert await b.log.blob_names(b.session) == sorted(made)
        assert await b.log.blob_names("sess_none") == []


async def query_documents(make: StoreFactory) -> None:
    """Documents are found by session, type and category, ordered by session and id; a new one replaces."""
    async with open_harness(make) as b:
        made = [
            Document("sess_1", "doc-2", "lead", "open", b"2"),
            Document("sess_1", "doc-1", "lead", "closed", b"1"),
            Document("sess_1", "doc-3", "note", "open", b"3"),
            Document("sess_2", "doc-1", "lead", "open", b"4"),
        ]
        for document in made:
            await b.log.put_document(document)
        assert await b.log.documents() == [made[1], made[0], made[2], made[3]]
        assert await b.log.documents("sess_1", type="lead") == [made[1], made[0]]
        assert await b.log.documents(type="lead", category="open") == [made[0], made[3]]
        assert await b.log.documents("sess_2", category="open") == [made[3]]
        assert await b.log.documents("sess_3") == []
        changed = made[0]._replace(type="note", body=b"\x00")
        await b.log.put_document(changed)
        assert await b.log.documents("sess_1", type="note") == [changed, made[2]]
        assert await b.log.documents("sess_1", type="lead") == [made[1]]


async def latest_snapshot(make: StoreFactory) -> None:
    """A snapshot is found by session and name: the newest at or before a seq."""
    async with open_harness(make) as b:
        for seq, body in ((4, b"four"), (9, b"nine"), (4, b"four again")):
            await b.log.put_snapshot(b.session, "tree", seq, body)
        await b.log.put_snapshot(b.session, "roster", 6, b"six")
        await b.log.put_snapshot("sess_2", "tree", 5, b"five")
        found = [await b.log.snapshot(b.session, "tree", at) for at in (3, 4, 8, 9, 1000)]
        assert found == [None, (4, b"four again"), (4, b"four again"), (9, b"nine"), (9, b"nine")]
        assert await b.log.snapshot(b.session, "roster", 1000) == (6, b"six")
        assert await b.log.snapshot(b.session, "unheard-of", 1000) is None


async def drop_snapshots_by_seq(make: StoreFactory) -> None:
    """Snapshots of one session and name are removed by their seqs, the first and the last included."""
    async with open_harness(make) as b:
        for seq in (3, 4, 8, 9):
            await b.log.put_snapshot(b.session, "tree", seq, b"%d" % seq)
        await b.log.put_snapshot(b.session, "roster", 4, b"roster")
        await b.log.put_snapshot("sess_2", "tree", 4, b"other")
        await b.log.drop_snapshots(b.session, "tree", 4, 8)
        await b.log.drop_snapshots("sess_3", "tree", 0, 100)
        found = [await b.log.snapshot(b.session, "tree", at) for at in (3, 8, 9)]
        assert found == [(3, b"3"), (3, b"3"), (9, b"9")]
        assert await b.log.snapshot(b.session, "roster", 4) == (4, b"roster")
        assert await b.log.snapshot("sess_2", "tree", 4) == (4, b"other")


async def delete_derived_data(make: StoreFactory) -> None:
    """Documents and snapshots can be thrown away together; events and blobs stay."""
    async with open_harness(make) as b:
        await b.append(durable_event("a"))
        digest = await b.log.put_blob(b.session, b"data", "text/plain")
        await b.log.put_document(Document(b.session, "doc-1", "lead", "open", b""))
        await b.log.put_snapshot(b.session, "tree", 0, b"")
        await b.log.delete_derived()
        assert await b.log.documents() == []
        assert await b.log.snapshot(b.session, "tree", 0) is None
        assert (await b.log.get_blob(digest)).data == b"data"
        assert await b.read_seqs() == [0]


async def prune_finished_live_events(make: StoreFactory) -> None:
    """Pruning removes live events of finished blocks and calls, older than a time, and nothing else."""
    async with open_harness(make) as b:
        old = b.now_ms
        await b.append(
            block_start_event("x"),
            block_delta_event("x"),
            block_delta_event("x", 1),
            tool_call_event("c"),
            tool_progress_event("c"),
        )  # 0 to 4
        await b.append(
            block_end_event("x"), block_start_event("y"), block_delta_event("y"), block_delta_event("stray")
        )  # 5 to 8
        b.now_ms += 1000
        await b.append(
            tool_result_event("c"), block_start_event("z"), block_delta_event("z"), block_end_event("z")
        )  # 9 to 12
        before = {row.seq: row for row in await b.read_rows()}
        assert await b.log.prune(b.session, old) == 0
        assert await b.log.prune(b.session, old + 1) == 3
        assert await b.log.prune(b.session, old + 1) == 0
        rows = await b.read_rows()
        assert [row.seq for row in rows] == [0, 3, 5, 6, 7, 8, 9, 10, 11, 12]
        assert all(before[row.seq] == row for row in rows)
        held = [seq for seq in range(6) if await b.log.has_event(b.session, seq)]
        assert held == [0, 3, 5]
        assert await b.log.verify() == await b.log.damages() == []


async def append_and_read_after_pruning(make: StoreFactory) -> None:
    """After pruning, seqs go on where they were, and every reader, from anywhere, gets what is left."""
    async with open_harness(make) as b:
        await b.append(
            durable_event("a"),
            block_start_event("x"),
            block_delta_event("x"),
            block_delta_event("x", 1),
            block_end_event("x"),
            durable_event("b"),
        )
        head = await b.log.info(b.session)
        async with open_follower(b.log, b.session, 0) as pages:
            assert await b.log.prune(b.session, b.now_ms + 1) == 2
            assert [row.seq for row in await anext(pages)] == [1, 4, 5]
            assert await b.append(durable_event("c"), expected_last=5) == [6]
            assert [row.seq for row in await anext(pages)] == [6]
        assert [await b.read_seqs(after) for after in (1, 2, 3, 4)] == [[4, 5, 6]] * 3 + [[5, 6]]
        assert await b.read_seqs(max_bytes=1, replay_from=-1) == [0, 1, 4, 5, 6]
        assert await b.append(*durable_events("a", "b")) == [0, 5]
        now = await b.log.info(b.session)
        assert (now.first, now.last, now.epoch, now.pruned_through) == (0, 6, head.epoch, 3)


async def prune_first_and_last_events(make: StoreFactory) -> None:
    """Pruning may take the last events of a session, and its first: nothing that is left is harmed."""
    async with open_harness(make) as b:
        await b.append(
            block_delta_event("x"),
            block_start_event("x"),
            block_end_event("x"),
            durable_event("a"),
            block_delta_event("x", 1),
        )
        assert await b.log.prune(b.session, b.now_ms + 1) == 2
        assert await b.read_seqs() == [1, 2, 3]
        assert await b.read_seqs(3) == []
        assert await b.append(durable_event("b")) == [5]
        assert await b.read_seqs(2) == [3, 5]
        assert await b.log.verify() == await b.log.damages() == []


async def healthy_store_verifies(make: StoreFactory) -> None:
    """A store to which nothing happened has nothing to report."""
    async with open_harness(make) as b:
        await b.append(
            block_start_event("x"), block_delta_event("x"), block_end_event("x"), *durable_events(*range(300))
        )
        await b.log.create("contract")
        assert await b.log.verify() == await b.log.damages() == []
