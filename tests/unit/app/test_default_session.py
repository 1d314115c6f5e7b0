"""The session that a principal has without naming one: found with few looks, made once."""

import asyncio
from pathlib import Path

import pytest

import turnlog
from tests.support.coverage_pause import without_coverage
from tests.unit.app.desk import ADA, BOB, EVE, ROOT, desk, make_app, play
from tests.unit.log.delegates import Counting, Gated, scenario
from turnlog.app import Principal, Roles
from turnlog.app.session_creation import (
    default_session_id,
    default_session_key,
    find_session,
    make_session,
)
from turnlog.errors import Conflict, Forbidden, NotFound
from turnlog.events import SessionMember
from turnlog.ids import now_ms
from turnlog.log import Log, MemoryStore, SessionRecord, SqliteStore


@pytest.mark.parametrize("closed", [0, 1, 2, 3, 7, 8, 9, 40])
def test_default_after_closed_sessions_is_the_one_after_them(closed: int) -> None:
    async def run() -> None:
        async with desk() as at:
            ids = []
            for _ in range(closed + 1):
                seat = await at.sessions.ensure_default_session(ADA)
                ids.append(seat.session_id)
                await at.log.close_session(seat.session_id)
            newest = await at.sessions.ensure_default_session(ADA)
            assert newest.session_id not in ids
            assert len(set(ids)) == closed + 1
            assert (await at.sessions.ensure_default_session(ADA)).session_id == newest.session_id

    play(run)


@without_coverage()
def test_default_after_many_closed_sessions_looks_at_few_of_them() -> None:
    async def run() -> None:
        store = Counting(MemoryStore())
        log = Log(store.store)
        async with desk(log=log) as at:
            for _ in range(64):
                await at.log.close_session((await at.sessions.ensure_default_session(ADA)).session_id)
            await at.sessions.ensure_default_session(ADA)
            store.calls.clear()
            await at.sessions.ensure_default_session(ADA)
            assert store.calls["info"] <= 16
        await log.close()

    play(run)


def test_default_of_one_principal_does_not_wait_for_another() -> None:
    async def run() -> None:
        store = Gated(MemoryStore())
        log = Log(store.store)
        async with desk(log=log) as at:
            await at.sessions.ensure_default_session(BOB)
            look = store.gate("info")
            slow = asyncio.create_task(at.sessions.ensure_default_session(ADA))
            await look.reached()
            assert (await at.sessions.ensure_default_session(BOB)).principal == BOB
            assert not slow.done()
            look.open()
            assert (await slow).principal == ADA
        await log.close()

    play(run)


def test_locks_of_sessions_that_no_request_uses_are_gone() -> None:
    async def run() -> None:
        async with desk() as at:
            for number in range(5):
                seat = await at.sessions.create(ADA, title=f"{number}")
                await at.sessions.state(seat)
            await at.sessions.ensure_default_session(ADA)
            assert (len(at.sessions._locks), len(at.sessions._create_locks)) == (0, 0)

    play(run)


def test_seat_beside_an_agent_opens_no_watch() -> None:
    async def run() -> None:
        log = Log(MemoryStore())
        async with desk(log=log) as at:
            seat, waiting = await at.sessions.create(ADA), await at.sessions.create(ADA)
            turn = await at.say(seat, "hello")
            await at.until(seat, "agent.end", trace_id=turn)
            await at.say(waiting, "confirm it")
            await at.until(waiting, "tool.await")
            [start] = await at.told(seat, "agent.start")
        async with desk(make_app(), log=log) as again:
            found = await again.sessions.get_membership_by_agent(ADA, start.agent_id or "")
            assert found.session_id == seat.session_id
            with pytest.raises(NotFound):
                await again.sessions.get_membership_by_agent(ADA, "agt_unknown")
            assert len(again.sessions.watches) == 0
        await log.close()

    play(run)


def test_shared_default_is_the_same_session_for_all_and_the_next_one_after_it_is_closed() -> None:
    async def run() -> None:
        async with desk(make_app(shared_session=True)) as at:
            default = at.sessions.ensure_default_session
            first = await default(ADA)
            assert (await default(BOB)).session_id == first.session_id
            assert (await default(BOB)).roles == {"owner"}
            await at.log.close_session(first.session_id)
            second = await default(BOB)
            assert second.session_id != first.session_id
            assert (await default(ADA)).session_id == second.session_id
            assert (second.record.creator, second.record.members) == ("bob", {"bob": ("owner",)})

    play(run)


def test_shared_default_that_two_servers_make_at_once_is_one_session_with_both_principals() -> None:
    async def run() -> None:
        store = Gated(MemoryStore())
        first_log, second_log = Log(store.store), Log(store.store)
        app = make_app(shared_session=True, roles=Roles(joiner=("visitor",)))
        async with desk(app, log=first_log) as first, desk(app, log=second_log) as second:
            look = store.gate("info")
            slow = asyncio.create_task(first.sessions.ensure_default_session(ADA))
            await look.reached()
            seat = await second.sessions.ensure_default_session(BOB)
            look.open()
            joined = await slow
            assert joined.session_id == seat.session_id
            assert joined.roles == {"visitor"}
            assert joined.record.members == {"bob": ("owner",), "ada": ("visitor",)}
        for log in (first_log, second_log):
            await log.close()

    play(run)


def test_shared_default_that_was_made_without_members_gets_a_creator() -> None:
    async def run() -> None:
        app = make_app(shared_session=True, roles=Roles(joiner=("visitor",)))
        async with desk(app) as at:
            await at.log.create(app.name, default_session_id(default_session_key(ADA, app), 0))
            assert (await at.sessions.ensure_default_session(ADA)).roles == {"owner"}
            assert (await at.sessions.ensure_default_session(BOB)).roles == {"visitor"}

    play(run)


def test_principal_who_joins_the_shared_default_has_no_open_invitation_left() -> None:
    async def run() -> None:
        async with desk(make_app(shared_session=True)) as at:
            seat = await at.sessions.ensure_default_session(ADA)
            change = await at.sessions.member_changes.change_roles(seat, "bob", ["guest"], now_ms())
            assert change.invite_id in (await at.log.info(seat.session_id)).invites
            assert (await at.sessions.ensure_default_session(BOB)).record.invites == {}

    play(run)


def test_former_operator_whose_act_is_in_the_log_joins_the_shared_default() -> None:
    async def run() -> None:
        async with desk(make_app(shared_session=True)) as at:
            await at.sessions.ensure_default_session(ADA)
            seat = await at.sessions.ensure_default_session(ROOT)
            await at.until(seat, "agent.end", trace_id=await at.say(seat, "hello"))
            assert seat.roles == set()
            assert (await at.sessions.ensure_default_session(Principal("root"))).roles == {"owner"}

    play(run)


def test_removal_is_found_behind_many_changes_of_members() -> None:
    async def run() -> None:
        async with desk(make_app(shared_session=True)) as at:
            seat = await at.sessions.ensure_default_session(ADA)
            changes = [SessionMember(principal=f"p{number}", roles=("guest",)) for number in range(600)]
            for change in [*changes, SessionMember(principal="bob", roles=())]:
                await at.log.append(seat.session_id, [turnlog.event(change, origin="system")])
            with pytest.raises(Forbidden, match="no longer a member of the shared session"):
                await at.sessions.ensure_default_session(BOB)
            assert (await at.sessions.ensure_default_session(EVE)).roles == {"owner"}

    play(run)


@scenario
async def test_session_that_two_servers_make_at_once_is_one_and_never_without_members(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "log.db")
    logs = [Log(store), Log(store)]
    app = make_app()
    for number in range(10):
        session_id = f"sess_{number}"
        looking = asyncio.create_task(first_record(logs[0], session_id))
        made = await asyncio.gather(*[make_session(log, app, ADA, "Trip", session_id) for log in logs])
        assert made == [session_id, session_id]
        seen = await looking
        assert (list(seen.members), seen.title, seen.last) == ([ADA.name], "Trip", 1)
        assert (await logs[1].info(session_id)).last == 1
    with pytest.raises(Conflict):
        await make_session(logs[1], app, BOB, "Trip", "sess_0")
    for log in logs:
        await log.close()


async def first_record(log: Log, session_id: str) -> SessionRecord:
    """The record of a session as soon as there is one."""
    while True:
        record = await find_session(log, session_id)
        if record is not None:
            return record
