"""What a store promises about what stands beside the events, and about pruning."""

from turnlog.errors import CallerError, NotFound
from turnlog.log import Blob, Document
from turnlog.testing.factories import answered, began, called, delta, note, notes, over, progress
from turnlog.testing.harness import Make, bench, following, refused


async def blobs(make: Make) -> None:
    """Binary content is known by its session and hash; the same content is kept once, as it first came."""
    async with bench(make) as b:
        data = bytes(range(256)) * 40
        digest = await b.log.put_blob(b.session, data, "image/png")
        assert await b.log.put_blob(b.session, data, "image/other") == digest
        assert await b.log.put_blob(b.session, b"", "text/plain") != digest
        assert await b.log.get_blob(digest) == Blob("image/png", data)
        assert await b.log.put_blob("sess_other", data, "image/png") != digest
        await refused(NotFound, b.log.get_blob("0" * 64))


async def blobs_have_a_type(make: Make) -> None:
    """Binary content without a media type is refused."""
    async with bench(make) as b:
        await refused(CallerError, b.log.put_blob(b.session, b"x", ""))


async def blob_names(make: Make) -> None:
    """The blobs of a session are found by its id, in the order of their names, and no other session's."""
    async with bench(make) as b:
        made = [await b.log.put_blob(b.session, b"%d" % number, "text/plain") for number in range(5)]
        await b.log.put_blob(f"{b.session}0", b"other", "text/plain")
        await b.log.put_blob(b.session[:-1], b"other", "text/plain")
        assert await b.log.blob_names(b.session) == sorted(made)
        assert await b.log.blob_names("sess_none") == []


async def documents(make: Make) -> None:
    """Documents are found by session, type and category, ordered by session and id; a new one replaces."""
    async with bench(make) as b:
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


async def snapshots(make: Make) -> None:
    """A snapshot is found by session and name: the newest at or before a seq."""
    async with bench(make) as b:
        for seq, body in ((4, b"four"), (9, b"nine"), (4, b"four again")):
            await b.log.put_snapshot(b.session, "tree", seq, body)
        await b.log.put_snapshot(b.session, "roster", 6, b"six")
        await b.log.put_snapshot("sess_2", "tree", 5, b"five")
        found = [await b.log.snapshot(b.session, "tree", at) for at in (3, 4, 8, 9, 1000)]
        assert found == [None, (4, b"four again"), (4, b"four again"), (9, b"nine"), (9, b"nine")]
        assert await b.log.snapshot(b.session, "roster", 1000) == (6, b"six")
        assert await b.log.snapshot(b.session, "unheard-of", 1000) is None


async def snapshots_are_dropped(make: Make) -> None:
    """Snapshots of one session and name are removed by their seqs, the first and the last included."""
    async with bench(make) as b:
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


async def derived_is_forgotten(make: Make) -> None:
    """Documents and snapshots can be thrown away together; events and blobs stay."""
    async with bench(make) as b:
        await b.add(note("a"))
        digest = await b.log.put_blob(b.session, b"data", "text/plain")
        await b.log.put_document(Document(b.session, "doc-1", "lead", "open", b""))
        await b.log.put_snapshot(b.session, "tree", 0, b"")
        await b.log.forget_derived()
        assert await b.log.documents() == []
        assert await b.log.snapshot(b.session, "tree", 0) is None
        assert (await b.log.get_blob(digest)).data == b"data"
        assert await b.seqs() == [0]


async def pruned(make: Make) -> None:
    """Pruning removes live events of finished blocks and calls, older than a time, and nothing else."""
    async with bench(make) as b:
        old = b.now_ms
        await b.add(began("x"), delta("x"), delta("x", 1), called("c"), progress("c"))  # 0 to 4
        await b.add(over("x"), began("y"), delta("y"), delta("stray"))  # 5 to 8
        b.now_ms += 1000
        await b.add(answered("c"), began("z"), delta("z"), over("z"))  # 9 to 12
        before = {row.seq: row for row in await b.rows()}
        assert await b.log.prune(b.session, old) == 0
        assert await b.log.prune(b.session, old + 1) == 3
        assert await b.log.prune(b.session, old + 1) == 0
        rows = await b.rows()
        assert [row.seq for row in rows] == [0, 3, 5, 6, 7, 8, 9, 10, 11, 12]
        assert all(before[row.seq] == row for row in rows)
        held = [seq for seq in range(6) if await b.log.holds(b.session, seq)]
        assert held == [0, 3, 5]
        assert await b.log.verify() == await b.log.damages() == []


async def life_after_pruning(make: Make) -> None:
    """After pruning, seqs go on where they were, and every reader, from anywhere, gets what is left."""
    async with bench(make) as b:
        await b.add(note("a"), began("x"), delta("x"), delta("x", 1), over("x"), note("b"))
        head = await b.log.info(b.session)
        async with following(b.log, b.session, 0) as pages:
            assert await b.log.prune(b.session, b.now_ms + 1) == 2
            assert [row.seq for row in await anext(pages)] == [1, 4, 5]
            assert await b.add(note("c"), expected_last=5) == [6]
            assert [row.seq for row in await anext(pages)] == [6]
        assert [await b.seqs(after) for after in (1, 2, 3, 4)] == [[4, 5, 6]] * 3 + [[5, 6]]
        assert await b.seqs(max_bytes=1, origin=-1) == [0, 1, 4, 5, 6]
        assert await b.add(*notes("a", "b")) == [0, 5]
        now = await b.log.info(b.session)
        assert (now.first, now.last, now.epoch, now.pruned) == (0, 6, head.epoch, 3)


async def pruned_to_the_end(make: Make) -> None:
    """Pruning may take the last events of a session, and its first: nothing that is left is harmed."""
    async with bench(make) as b:
        await b.add(delta("x"), began("x"), over("x"), note("a"), delta("x", 1))
        assert await b.log.prune(b.session, b.now_ms + 1) == 2
        assert await b.seqs() == [1, 2, 3]
        assert await b.seqs(3) == []
        assert await b.add(note("b")) == [5]
        assert await b.seqs(2) == [3, 5]
        assert await b.log.verify() == await b.log.damages() == []


async def healthy(make: Make) -> None:
    """A store to which nothing happened has nothing to report."""
    async with bench(make) as b:
        await b.add(began("x"), delta("x"), over("x"), *notes(*range(300)))
        await b.log.create("contract")
        assert await b.log.verify() == await b.log.damages() == []
