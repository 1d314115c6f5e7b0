"""Contracts of a store: closing a session with its last events, alone and from several logs at once."""

import asyncio

from turnlog.errors import CallerError, Conflict, Fenced, SessionClosed
from turnlog.events import Event, Scope, SessionClose, decode_envelope
from turnlog.log import Row, envelope_json
from turnlog.log.jobs import DraftLine, EventLine, ImportEvents
from turnlog.testing.factories import agent_end_event, agent_scope, durable_event, durable_events, make_event
from turnlog.testing.harness import LogHarness, StoreFactory, expect_conflict, expect_raises, open_harness
from turnlog.testing.leasing import claim
from turnlog.testing.shared import followed, open_logs, wait_until_followed


def close_event(by: str = "ada") -> Event:
    return make_event(SessionClose(by=by, reason="done"), f"close-{by}", Scope(actor=by))


async def read_types(harness: LogHarness) -> list[str]:
    return [row.type for row in await harness.read_rows()]


async def expect_open(harness: LogHarness, last: int) -> None:
    """Raise AssertionError unless the session is open and ends at a seq."""
    record = await harness.info()
    assert (record.closed, record.last) == (False, last)
    assert await harness.read_seqs() == list(range(last + 1))


async def close_with_last_events(make_store: StoreFactory) -> None:
    """A close stores its last events and closes the session in one write; followers get them and end."""
    async with open_harness(make_store) as harness:
        await harness.append(durable_event("a"))
        follower = asyncio.create_task(harness.follow_until(99))
        await wait_until_followed(harness)
        result = await harness.log.close_session(
            harness.session, [agent_end_event(agent_scope(1)), close_event()]
        )
        assert (result.seqs, result.new) == ([1, 2], [True, True])
        assert [row.type for row in await follower] == ["assistant.message", "agent.end", "session.close"]
        assert [row.seq for row in await harness.follow_until(99, after=1)] == [2]
        record = await harness.info()
        assert (record.closed, record.last, record.durable_count) == (True, 2, 3)
        stored = decode_envelope(envelope_json((await harness.read_rows())[-1]))
        assert (stored.actor, bytes(stored.payload)) == ("ada", b'{"by":"ada","reason":"done"}')
        await expect_raises(SessionClosed, harness.append(durable_event("b")))
        await harness.expect_undamaged()


async def closing_again_changes_nothing(make_store: StoreFactory) -> None:
    """A closed session gets no second `session.close`; the same close again returns its old seq."""
    async with open_harness(make_store) as harness:
        await harness.log.close_session(harness.session, [close_event()])
        record = await harness.info()
        again = await harness.log.close_session(harness.session, [close_event()])
        assert (again.seqs, again.new) == ([0], [False])
        other = await harness.log.close_session(
            harness.session, [close_event("bob")], expected_durable_count=7
        )
        assert (other.seqs, other.new) == ([-1], [False])
        assert (await harness.log.close_session(harness.session)).seqs == []
        assert await harness.info() == record
        assert await read_types(harness) == ["session.close"]


async def close_is_refused_as_an_append_is(make_store: StoreFactory) -> None:
    """A close under a lost fence, or from another position than expected, stores nothing."""
    async with open_harness(make_store) as harness:
        await harness.append(durable_event("a"), fence=2)
        session = harness.session
        await expect_raises(Fenced, harness.log.close_session(session, [close_event()], fence=1))
        await expect_raises(Fenced, harness.log.close_session(session, fence=1))
        conflict = await expect_conflict(
            harness.log.close_session(session, [close_event()], expected_durable_count=0)
        )
        assert conflict == 0
        await expect_open(harness, last=0)
        await harness.log.close_session(session, [close_event()], expected_durable_count=1, fence=3)
        record = await harness.info()
        assert (record.closed, record.fence) == (True, 3)


async def close_event_comes_last_and_only_by_closing(make_store: StoreFactory) -> None:
    """An append with a `session.close` is refused, and so is a close that does not end with one."""
    async with open_harness(make_store) as harness:
        await harness.append(durable_event("a"))
        await expect_raises(CallerError, harness.append(durable_event("b"), close_event()))
        for events in (
            durable_events("b"),
            [close_event(), durable_event("b")],
            [close_event(), close_event("bob")],
        ):
            await expect_raises(CallerError, harness.log.close_session(harness.session, events))
        await expect_open(harness, last=0)


async def imported_close_event_closes(make_store: StoreFactory) -> None:
    """An imported `session.close` closes the session; what follows it is refused, and a repetition is not."""
    async with open_harness(make_store) as harness:
        await harness.append(durable_event("a"))
        await harness.log.close_session(harness.session, [close_event()])
        rows = await harness.read_rows()
        await harness.log.erase(harness.session)

        other = await harness.log.create("contract")
        record = await harness.log.info(other)
        lines = [as_line(number, row, other) for number, row in enumerate(rows, 1)]
        late = DraftLine(3, durable_event("late"), harness.now_ms)
        await expect_raises(SessionClosed, harness.log.import_events(ImportEvents(record, [*lines, late])))
        assert not await harness.read_rows(session=other)
        counts = await harness.log.import_events(ImportEvents(record, lines))
        assert counts.new_events == 2
        assert (await harness.log.info(other)).closed
        counts = await harness.log.import_events(ImportEvents(record, lines))
        assert (counts.new_events, counts.known_events) == (0, 2)
        await harness.log.close_session(other)
        assert await harness.read_seqs(session=other) == [0, 1]


async def close_event_survives_reopen(make_store: StoreFactory) -> None:
    """A reopened store has the `session.close` and the closed session."""
    async with open_harness(make_store) as harness:
        await harness.append(durable_event("a"))
        await harness.log.close_session(harness.session, [close_event()])
        before = await harness.info()
    async with open_harness(make_store) as harness:
        assert await harness.info() == before
        assert before.closed
        assert await read_types(harness) == ["assistant.message", "session.close"]
        await expect_raises(SessionClosed, harness.append(durable_event("b")))
        await harness.expect_undamaged()


async def one_close_of_several(make_store: StoreFactory) -> None:
    """Logs that close a session at once store one `session.close`; one of them is told that it is new."""
    async with open_logs(make_store, 3) as harnesses:
        followers = [asyncio.create_task(followed(harness, 99)) for harness in harnesses]
        for harness in harnesses:
            await wait_until_followed(harness)
        await harnesses[0].append(durable_event("a"))
        results = await asyncio.gather(
            *[
                harness.log.close_session(harness.session, [close_event(f"node-{place}")])
                for place, harness in enumerate(harnesses)
            ]
        )
        assert sorted(result.seqs for result in results) == [[-1], [-1], [1]]
        assert sorted(result.new for result in results) == [[False], [False], [True]]
        winner = next(place for place, result in enumerate(results) if result.new == [True])
        assert await asyncio.gather(*followers) == [[0, 1]] * 3
        for harness in harnesses:
            assert (await harness.info()).closed
            stored = decode_envelope(envelope_json((await harness.read_rows())[-1]))
            assert stored.actor == f"node-{winner}"


async def close_or_append_at_once(make_store: StoreFactory) -> None:
    """Of a close that expects a position and an append at once, the later one is refused."""
    async with open_logs(make_store) as (one, two):
        for number in range(10):
            session = await one.log.create("contract")
            closing, appended = await asyncio.gather(
                one.log.close_session(session, [close_event()], expected_durable_count=0),
                two.log.append(session, [durable_event(f"m{number}")]),
                return_exceptions=True,
            )
            types = [row.type for row in await one.read_rows(session=session)]
            if isinstance(closing, Conflict):
                assert types == ["assistant.message"]
                assert not (await two.log.info(session)).closed
            else:
                assert isinstance(appended, SessionClosed)
                assert types == ["session.close"]


async def close_under_lost_fence(make_store: StoreFactory) -> None:
    """After a claim in another log the earlier owner closes nothing, and the new owner does."""
    async with open_logs(make_store) as (one, two):
        lost = await claim(one, "one")
        await one.log.leases.release(lost, seen=-1)
        lease = await claim(two, "two")
        await expect_raises(
            Fenced, one.log.close_session(one.session, [close_event("one")], fence=lost.fence)
        )
        await expect_open(one, last=-1)
        await two.log.close_session(two.session, [close_event("two")], fence=lease.fence)
        assert (await one.info()).closed
        assert await read_types(one) == ["session.close"]


def as_line(number: int, row: Row, session_id: str) -> EventLine:
    """Return a stored event as a line of an export of another session."""
    line = envelope_json(row).replace(b'"sess_1"', b'"%b"' % session_id.encode())
    return EventLine(number, decode_envelope(line), line)
