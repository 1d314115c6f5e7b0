"""A web node and a worker in one process, on a store whose owners have to renew."""

import asyncio

import pytest
from starlette.applications import Starlette

from tests.support.limited_session import on_clock
from tests.support.limits import HANG_S
from tests.unit.log.delegates import until
from turnlog import Agent, App
from turnlog.agents import Scripted
from turnlog.app import LOCAL, Sessions
from turnlog.app.sessions import Role
from turnlog.errors import CallerError, Conflict, Unavailable
from turnlog.events import UiMessage
from turnlog.log import MemoryStore
from turnlog.server import create_app

DRAIN_S = 60.0


class SharedStore(MemoryStore):
    """A store in memory that says its leases end, as one that processes share does."""

    lease_s = 10.0


def make_node(store: MemoryStore, role: Role) -> Starlette:
    return create_app(App("plain", Agent("Clerk", "", Scripted(lambda _: ["Hello."]))), store, role=role)


def sessions_of(node: Starlette) -> Sessions:
    sessions = node.state.session_access.sessions
    assert isinstance(sessions, Sessions)
    return sessions


@on_clock
async def test_a_worker_runs_what_a_web_node_appends_and_both_drain() -> None:
    store = SharedStore()
    web, worker = make_node(store, "web"), make_node(store, "worker")
    async with web.router.lifespan_context(web), worker.router.lifespan_context(worker):
        sessions = sessions_of(web)
        seat = await sessions.create(LOCAL)
        result = await sessions.send(seat, UiMessage(text="Hello"))
        async with asyncio.timeout(HANG_S):
            await sessions.watches.wait_until_settled(seat.record, result.turn, 1.0, lambda: None)
        assert len(sessions.runners) == 0
        assert sessions.runners.find(seat.session_id) is None
        assert not sessions.runners.has_failed(seat.session_id)
        with pytest.raises(Conflict, match="a worker owns"):
            await sessions.runners.open(seat.session_id)
        assert (await sessions.summarize(seat)).state in ("idle", "running")

        auth = web.state.auth
        assert await auth.use_code("7", 2_000_000_000)
        assert not await auth.use_code("7", 2_000_000_000)

        await asyncio.wait_for(worker.state.drain(DRAIN_S), HANG_S)
        await asyncio.wait_for(web.state.drain(DRAIN_S), HANG_S)
        await until(lambda: len(sessions_of(worker).runners) == 0)
        assert await sessions.log.leases.owner_of(seat.session_id) is None


@on_clock
async def test_a_node_that_cannot_reach_the_store_has_no_sessions_for_its_routes() -> None:
    web = make_node(SharedStore(), "web")
    async with web.router.lifespan_context(web):
        reach = sessions_of(web).log.reach
        reach._last_answer_s -= 3600
        with pytest.raises(Unavailable):
            sessions_of(web)


@on_clock
async def test_a_role_needs_a_store_that_processes_share() -> None:
    web = make_node(MemoryStore(), "web")
    with pytest.raises(CallerError, match="a web needs a log that several processes share"):
        async with web.router.lifespan_context(web):
            pass
