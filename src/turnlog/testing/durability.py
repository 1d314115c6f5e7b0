"""What a store promises that outlives its process: made again, it has everything."""

from turnlog.errors import Closed, Conflict, Fenced
from turnlog.events import SessionInvite, SessionMember, SessionTitle
from turnlog.log import Blob, Document
from turnlog.testing.factories import agent, began, delta, event, note, notes, over, started
from turnlog.testing.harness import Make, bench, refused


async def events_last(make: Make) -> None:
    """Everything acknowledged is there again, byte for byte, in the same epoch, and seqs go on."""
    async with bench(make) as b:
        other = await b.log.create("contract")
        await b.add(*notes(*range(50)))
        await b.add(note("a"), session=other)
        rows, heads = await b.rows(), await b.log.sessions()
    async with bench(make) as b:
        assert (await b.rows(), await b.log.sessions()) == (rows, heads)
        assert await b.add(note("x"), expected_last=49) == [50]
        assert await b.add(note("x"), session=other) == [1]
        assert await b.log.verify() == await b.log.damages() == []


async def identity_lasts(make: Make) -> None:
    """A retry gets its old seq from a store that was made again, and another body its conflict."""
    async with bench(make) as b:
        await b.add(*notes("a", "b"))
    async with bench(make) as b:
        assert await b.add(*notes("x", "a"), expected_last=1) == [2, 0]
        assert (await refused(Conflict, b.add(note("b", "another text")))).last == 2


async def heads_last(make: Make) -> None:
    """Fence, closing and pruning are not forgotten."""
    async with bench(make) as b:
        other = await b.log.create("contract")
        await b.add(began("x"), delta("x"), over("x"), fence=4)
        assert await b.log.prune(b.session, b.now_ms + 1) == 1
        await b.log.close_session(other)
    async with bench(make) as b:
        await refused(Fenced, b.add(note("a"), fence=3))
        await refused(Closed, b.add(note("a"), session=other))
        assert await b.seqs() == [0, 2]
        assert (await b.log.info(b.session)).pruned == 1


async def pruned_to_the_end_lasts(make: Make) -> None:
    """A session whose last events were pruned is as healthy when the store is made again."""
    async with bench(make) as b:
        await b.add(began("x"), over("x"), delta("x"))
        assert await b.log.prune(b.session, b.now_ms + 1) == 1
        head = await b.log.info(b.session)
    async with bench(make) as b:
        assert await b.log.verify() == await b.log.damages() == []
        assert await b.log.info(b.session) == head
        assert await b.add(note("a")) == [3]
        assert await b.seqs() == [0, 1, 3]


async def spans_last(make: Make) -> None:
    """Open agents, turns and what replay leaves out are known again."""
    async with bench(make) as b:
        await b.add(note("a"), started(agent(1)), began("x"), delta("x"), over("x"), began("y"), delta("y"))
    async with bench(make) as b:
        assert await b.log.unfinished() == [b.session]
        assert await b.log.turn_start(b.session, 6) == 1
        assert await b.seqs(origin=-1) == [0, 1, 2, 4, 5, 6]
        await b.add(over("y"))
        assert await b.seqs(origin=-1) == [0, 1, 2, 4, 5, 7]


async def what_events_said_lasts(make: Make) -> None:
    """Title, members, invites and last activity are there again."""
    async with bench(make) as b:
        await b.add(event(SessionMember(principal="ada", roles=("owner",)), "m"), note("a"))
        await b.add(event(SessionTitle(title="A trip"), "t"))
        await b.add(event(SessionInvite(invite_id="inv_1", roles=("guest",), expires_ms=1), "i"))
        before = await b.log.info(b.session)
    async with bench(make) as b:
        assert await b.log.info(b.session) == before
        assert (before.title, before.members) == ("A trip", {"ada": ("owner",)})


async def the_rest_lasts(make: Make) -> None:
    """Blobs, documents and snapshots are there again."""
    document = Document("sess_1", "doc-1", "lead", "open", b"\x00")
    async with bench(make) as b:
        digest = await b.log.put_blob(b.session, b"data", "text/plain")
        await b.log.put_document(document)
        await b.log.put_snapshot(b.session, "tree", 3, b"state")
    async with bench(make) as b:
        assert await b.log.get_blob(digest) == Blob("text/plain", b"data")
        assert await b.log.documents() == [document]
        assert await b.log.snapshot(b.session, "tree", 3) == (3, b"state")
