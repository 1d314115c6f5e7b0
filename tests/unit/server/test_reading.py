"""Reading a session through any route writes nothing and starts no runner, with and without an owner."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from tests.support.limits import HANG_S
from tests.unit.log.delegates import until
from turnlog import Agent, App, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.app import Principal, Sessions
from turnlog.events import UiMessage
from turnlog.log import MemoryStore, Row, SessionRecord
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.server.limits.policy import Limits
from turnlog.server.protocols import PROTOCOLS
from turnlog.state.history import Message
from turnlog.vocabularies import DIALECTS

ADA = Principal("ada")
THREAD = "thread-1"
FOLLOWED = ("", "&depth=0", "&types=ui.message", "&turn={turn}")
STREAMS = [f"?session={{session}}&dialect={name}{part}" for name in DIALECTS.names for part in FOLLOWED]
QUERIES = {
    "/api/events": STREAMS,
    "/api/state": ["?session={session}", "?session={session}&at=3"],
    "/api/sessions": ["", "?q=pay"],
}
PARAMETERS = {
    "{app}": "desk",
    "{thread}": THREAD,
    "{chat}": THREAD,
    "{digest}": "0" * 64,
}


@tool(kind="write", approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


def script(messages: list[Message]) -> Iterator[str | ToolUse]:
    yield "Wait. "
    yield ToolUse("pay", {})


class Reader:
    """Requests of a member to a server in this process; each leaves when it has got something."""

    def __init__(self, application: Starlette) -> None:
        self._application = application

    async def get(self, path: str) -> int:
        """Return the status of a GET that ends, or is left after its first bytes."""
        status = 0
        has_answer = asyncio.Event()
        path, _, query = path.partition("?")

        async def receive() -> dict[str, Any]:
            await has_answer.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message.get("body") or not message.get("more_body"):
                has_answer.set()

        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(b"host", b"localhost"), (b"authorization", b"Bearer ada")],
            "scheme": "http",
            "http_version": "1.1",
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
        }
        await self._application(scope, receive, send)
        return status


class Stored:
    """What the store has of a session, and in which order it lists."""

    def __init__(self, store: MemoryStore, session_id: str) -> None:
        record = store.info(session_id)
        assert record is not None
        self.record: SessionRecord = record
        self.rows: list[Row] = list(store.read(session_id, -1, None, 1 << 20))
        self.lease = store.get_lease(session_id)
        self.listing = [entry.session_id for _, entry in store.listing(None, None, 100)]
        self.documents = store.documents(None, None, None, "")
        self.blobs = store.blob_names(session_id, False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stored) and vars(self) == vars(other)


def paths_of(application: Starlette, session_id: str, turn: str) -> list[str]:
    """Return each path that can be read, with each way to ask it."""
    paths: list[str] = []
    for route in application.routes:
        if not isinstance(route, Route) or "GET" not in (route.methods or ()):
            continue
        path = route.path.replace("{path:path}", THREAD)
        for name, value in {**PARAMETERS, "{session}": session_id}.items():
            path = path.replace(name, value)
        queries = QUERIES.get(route.path, ["?session={session}"])
        paths += [path + query.format(session=session_id, turn=turn) for query in queries]
    return paths


@asynccontextmanager
async def started() -> AsyncIterator[tuple[Starlette, Sessions, MemoryStore]]:
    store = MemoryStore()
    application = create_app(
        App("desk", Agent("Clerk", "", Scripted(script), tools=(pay,))),
        store,
        auth=BuiltinAuth(b"k" * 32, {hash_token("ada"): ADA}),
        protocols=[make() for make in PROTOCOLS.values()],
        limits=Limits(heartbeat_interval_s=0.01),  # of streams that have nothing to send
    )
    async with application.router.lifespan_context(application):
        yield application, application.state.session_access.sessions, store


def play(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), HANG_S))


@pytest.mark.parametrize("is_owned", [False, True])
def test_reading_through_any_route_writes_nothing_and_starts_nothing(is_owned: bool) -> None:
    async def run() -> None:
        async with started() as (application, sessions, store):
            seat = await sessions.create_with_alias(ADA, THREAD, "desk")
            await sessions.create(ADA)  # so that the list has an order
            turn = (await sessions.send(seat, UiMessage(text="Pay"))).turn
            await sessions.watches.wait_until_settled(seat.record, turn, 1.0, lambda: None)
            runner = sessions.runners.find(seat.session_id)
            assert runner is not None
            await until(lambda: runner.is_quiet)
            if not is_owned:
                assert await sessions.runners.give_up(seat.session_id)

            before = Stored(store, seat.session_id)
            owned, tasks = len(sessions.runners), len(asyncio.all_tasks())
            reader = Reader(application)
            paths = paths_of(application, seat.session_id, turn)
            statuses = {path: await reader.get(path) for path in paths}

            assert [path for path, status in statuses.items() if status >= 500] == []
            read = [path for path, status in statuses.items() if status == 200 and seat.session_id in path]
            assert len(read) > len(DIALECTS.names) * 3, statuses
            assert Stored(store, seat.session_id) == before
            assert len(sessions.runners) == owned
            assert sessions.runners.find(seat.session_id) is (runner if is_owned else None)
            await until(lambda: len(asyncio.all_tasks()) == tasks)

            await sessions.stop(seat)  # a control: a write is seen
            assert Stored(store, seat.session_id) != before

    play(run)
