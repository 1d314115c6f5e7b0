"""Contracts of a durable store: a reopened store has everything."""

from turnlog.errors import Fenced, SessionClosed
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
from turnlog.testing.harness import StoreFactory, expect_conflict, expect_raises, open_harness


async def events_survive_reopen(make_store: StoreFactory) -> None:
    """A reopened store has all acknowledged events, byte for byte, in the same epoch; seqs continue."""
    async with open_harness(make_store) as harness:
        other = await harness.log.create("contract")
        await harness.append(*durable_events(*range(50)))
        await harness.append(durable_event("a"), session=other)
        rows, records = await harness.read_rows(), await harness.log.sessions()
    async with open_harness(make_store) as harness:
        assert await harness.read_rows() == rows
        assert await harness.log.sessions() == records
        assert await harness.append(durable_event("x"), expected_last=49) == [50]
        assert await harness.append(durable_event("x"), session=other) == [1]
        await harness.expect_undamaged()


async def dedupe_survives_reopen(make_store: StoreFactory) -> None:
    """A reopened store returns the old seq of a retry, and a conflict for another body."""
    async with open_harness(make_store) as harness:
        await harness.append(*durable_events("a", "b"))
    async with open_harness(make_store) as harness:
        assert await harness.append(*durable_events("x", "a"), expected_last=1) == [2, 0]
        assert await expect_conflict(harness.append(durable_event("b", "another text"))) == 2


async def fence_and_close_survive_reopen(make_store: StoreFactory) -> None:
    """A reopened store has the same fence, closed sessions and pruned events."""
    async with open_harness(make_store) as harness:
        other = await harness.log.create("contract")
        await harness.append(block_start_event("x"), block_delta_event("x"), block_end_event("x"), fence=4)
        assert await harness.prune(harness.now_ms + 1) == 1
        await harness.log.close_session(other)
    async with open_harness(make_store) as harness:
        await expect_raises(Fenced, harness.append(durable_event("a"), fence=3))
        await expect_raises(SessionClosed, harness.append(durable_event("a"), session=other))
        assert await harness.read_seqs() == [0, 2]
        assert (await harness.info()).pruned_through == 1


async def pruned_end_survives_reopen(make_store: StoreFactory) -> None:
    """A reopened store accepts a session whose last events were pruned."""
    async with open_harness(make_store) as harness:
        await harness.append(block_start_event("x"), block_end_event("x"), block_delta_event("x"))
        assert await harness.prune(harness.now_ms + 1) == 1
        record = await harness.info()
    async with open_harness(make_store) as harness:
        await harness.expect_undamaged()
        assert await harness.info() == record
        assert await harness.append(durable_event("a")) == [3]
        assert await harness.read_seqs() == [0, 1, 3]


async def erased_session_survives_reopen(make_store: StoreFactory) -> None:
    """A reopened store accepts a session that was erased, and has none of its events."""
    async with open_harness(make_store) as harness:
        await harness.append(*durable_events("a", "b"))
        assert await harness.log.erase(harness.session) == 2
        record = await harness.info()
    async with open_harness(make_store) as harness:
        await harness.expect_undamaged()
        assert await harness.info() == record
        assert await harness.read_seqs() == []
        await expect_raises(SessionClosed, harness.append(durable_event("c")))


async def spans_survive_reopen(make_store: StoreFactory) -> None:
    """A reopened store has the same open agents and turns, and replays the same events."""
    async with open_harness(make_store) as harness:
        await harness.append(
            durable_event("a"),
            agent_start_event(agent_scope(1)),
            block_start_event("x"),
            block_delta_event("x"),
            block_end_event("x"),
            block_start_event("y"),
            block_delta_event("y"),
        )
    async with open_harness(make_store) as harness:
        assert await harness.log.sessions_with_open_agents() == [harness.session]
        assert await harness.oldest_open_turn_start(6) == 1
        assert await harness.read_seqs(replay_from=-1) == [0, 1, 2, 4, 5, 6]
        await harness.append(block_end_event("y"))
        assert await harness.read_seqs(replay_from=-1) == [0, 1, 2, 4, 5, 7]


async def session_details_survive_reopen(make_store: StoreFactory) -> None:
    """A reopened store has the same title, members, invites and last activity."""
    async with open_harness(make_store) as harness:
        await harness.append(
            make_event(SessionMember(principal="ada", roles=("owner",)), "m"), durable_event("a")
        )
        await harness.append(make_event(SessionTitle(title="A trip"), "t"))
        await harness.append(
            make_event(SessionInvite(invite_id="inv_1", roles=("guest",), expires_ms=1), "i")
        )
        before = await harness.info()
    async with open_harness(make_store) as harness:
        assert await harness.info() == before
        assert before.title == "A trip"
        assert before.members == {"ada": ("owner",)}


async def side_data_survives_reopen(make_store: StoreFactory) -> None:
    """A reopened store has the same blobs, documents and snapshots."""
    document = Document("sess_1", "doc-1", "lead", "open", b"\x00")
    async with open_harness(make_store) as harness:
        digest = await harness.put_blob(b"data", "text/plain")
        await harness.log.put_document(document)
        await harness.put_snapshot("tree", 3, b"state")
    async with open_harness(make_store) as harness:
        assert await harness.log.get_blob(digest) == Blob("text/plain", b"data")
        assert await harness.log.documents() == [document]
        assert await harness.snapshot("tree", 3) == (3, b"state")
