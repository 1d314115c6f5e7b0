"""What a store promises that outlives its process: made again, it has everything."""

from turnlog.errors import Conflict, Fenced, SessionClosed
from turnlog.events import SessionInvite, SessionMember, SessionTitle
from turnlog.log import Blob, Document
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
from turnlog.testing.harness import StoreFactory, expect_raises, open_harness


async def events_survive_reopen(make: StoreFactory) -> None:
    """Everything acknowledged is there again, byte for byte, in the same epoch, and seqs go on."""
    async with open_harness(make) as b:
        other = await b.log.create("contract")
        await b.append(*durable_events(*range(50)))
        await b.append(durable_event("a"), session=other)
        rows, heads = await b.read_rows(), await b.log.sessions()
    async with open_harness(make) as b:
        assert (await b.read_rows(), await b.log.sessions()) == (rows, heads)
        assert await b.append(durable_event("x"), expected_last=49) == [50]
        assert await b.append(durable_event("x"), session=other) == [1]
        assert await b.log.verify() == await b.log.damages() == []


async def dedupe_survives_reopen(make: StoreFactory) -> None:
    """A retry gets its old seq from a store that was made again, and another body its conflict."""
    async with open_harness(make) as b:
        await b.append(*durable_events("a", "b"))
    async with open_harness(make) as b:
        assert await b.append(*durable_events("x", "a"), expected_last=1) == [2, 0]
        assert (await expect_raises(Conflict, b.append(durable_event("b", "another text")))).last == 2


async def fence_and_close_survive_reopen(make: StoreFactory) -> None:
    """Fence, closing and pruning are not forgotten."""
    async with open_harness(make) as b:
        other = await b.log.create("contract")
        await b.append(block_start_event("x"), block_delta_event("x"), block_end_event("x"), fence=4)
        assert await b.log.prune(b.session, b.now_ms + 1) == 1
        await b.log.close_session(other)
    async with open_harness(make) as b:
        await expect_raises(Fenced, b.append(durable_event("a"), fence=3))
        await expect_raises(SessionClosed, b.append(durable_event("a"), session=other))
        assert await b.read_seqs() == [0, 2]
        assert (await b.log.info(b.session)).pruned_through == 1


async def pruned_end_survives_reopen(make: StoreFactory) -> None:
    """A session whose last events were pruned is as healthy when the store is made again."""
    async with open_harness(make) as b:
        await b.append(block_start_event("x"), block_end_event("x"), block_delta_event("x"))
        assert await b.log.prune(b.session, b.now_ms + 1) == 1
        head = await b.log.info(b.session)
    async with open_harness(make) as b:
        assert await b.log.verify() == await b.log.damages() == []
        assert await b.log.info(b.session) == head
        assert await b.append(durable_event("a")) == [3]
        assert await b.read_seqs() == [0, 1, 3]


async def spans_survive_reopen(make: StoreFactory) -> None:
    """Open agents, turns and what replay leaves out are known again."""
    async with open_harness(make) as b:
        await b.append(
            durable_event("a"),
            agent_start_event(agent_scope(1)),
            block_start_event("x"),
            block_delta_event("x"),
            block_end_event("x"),
            block_start_event("y"),
            block_delta_event("y"),
        )
    async with open_harness(make) as b:
        assert await b.log.sessions_with_open_agents() == [b.session]
        assert await b.log.oldest_open_turn_start(b.session, 6) == 1
        assert await b.read_seqs(replay_from=-1) == [0, 1, 2, 4, 5, 6]
        await b.append(block_end_event("y"))
        assert await b.read_seqs(replay_from=-1) == [0, 1, 2, 4, 5, 7]


async def session_details_survive_reopen(make: StoreFactory) -> None:
    """Title, members, invites and last activity are there again."""
    async with open_harness(make) as b:
        await b.append(make_event(SessionMember(principal="ada", roles=("owner",)), "m"), durable_event("a"))
        await b.append(make_event(SessionTitle(title="A trip"), "t"))
        await b.append(make_event(SessionInvite(invite_id="inv_1", roles=("guest",), expires_ms=1), "i"))
        before = await b.log.info(b.session)
    async with open_harness(make) as b:
        assert await b.log.info(b.session) == before
        assert (before.title, before.members) == ("A trip", {"ada": ("owner",)})


async def side_data_survives_reopen(make: StoreFactory) -> None:
    """Blobs, documents and snapshots are there again."""
    document = Document("sess_1", "doc-1", "lead", "open", b"\x00")
    async with open_harness(make) as b:
        digest = await b.log.put_blob(b.session, b"data", "text/plain")
        await b.log.put_document(document)
        await b.log.put_snapshot(b.session, "tree", 3, b"state")
    async with open_harness(make) as b:
        assert await b.log.get_blob(digest) == Blob("text/plain", b"data")
        assert await b.log.documents() == [document]
        assert await b.log.snapshot(b.session, "tree", 3) == (3, b"state")
