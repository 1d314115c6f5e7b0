"""Who uses the example `weights` in the tests: a page, an executor in its process; what is in its table."""

import asyncio
import contextlib
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.examples import bodies, over, read
from tests.e2e.forks import Fork
from tests.e2e.harness import ROOT, Reader, Server, running
from tests.support.limits import HANG_S

APP = "tests.e2e.weights_apps:app"
ENTRY = {"measured_at": "2026-01-08", "weight_lbs": 187.6}


@contextlib.contextmanager
def executing(server: Server, folder: Path, *options: str, url: str = "") -> Iterator[Fork]:
    """The executor in its own process; killed at the end if it still runs."""
    arguments = ["--url", url or server.url, "--db", str(folder / "weights.db"), *options]
    env = os.environ | {"TURNLOG_TOKEN": server.token}
    process = Fork(arguments, ROOT, env, module="turnlog_examples.weights.executor")
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def keeping(folder: Path, app: str = APP) -> Iterator["Desk"]:
    """Server and executor, and a page with a session."""
    with running(app, folder) as server, executing(server, folder):
        yield Desk.at(server, folder)


@dataclass
class Desk:
    """A page with one session."""

    server: Server
    session: str
    reader: Reader
    folder: Path

    @classmethod
    def at(cls, server: Server, folder: Path) -> "Desk":
        session = server.session()
        return cls(server, session, Reader(server, session), folder)

    def moved(self, server: Server) -> None:
        """Go on with another process."""
        self.server = self.reader.server = server

    def turn(self) -> list[Any]:
        """Everything up to the end of the turn."""
        return read(self.reader, over)

    def until(self, type: str) -> Any:
        """The payload of the next event of a type."""

        def wanted(message: Any) -> bool:
            return bool(message.event == "message" and json.loads(message.data)["type"] == type)

        return read(self.reader, wanted)[-1]["payload"]

    def say(self, text: str) -> list[Any]:
        """Write something; what comes of it."""
        self.server.send(self.session, text)
        return self.turn()

    def post(self, view_id: str | None, action: Any, **about: Any) -> tuple[int, Any]:
        payload = {"action": action, **about} | ({"view_id": view_id} if view_id else {})
        events = [{"type": "ui.action", "payload": payload}]
        return self.server.post("/api/events", {"session": self.session, "events": events})

    def submit(self, values: Any, **about: Any) -> tuple[int, Any]:
        action = {"kind": "form.submit", "form_id": "weight_entry", "values": values}
        return self.post("view_weight_entry", action, **about)

    def save(self, rows: list[Any], deleted: tuple[str, ...] = ()) -> tuple[int, Any]:
        action = {"kind": "table.save", "table_id": "weight_entries", "rows": rows, "deleted": deleted}
        return self.post("view_weight_entries", action)

    def delete(self, row_id: str) -> tuple[int, Any]:
        action = {"kind": "table.delete_row", "table_id": "weight_entries", "row_id": row_id}
        return self.post("view_weight_entries", action)

    def decide(self, asked: Any, decision: str) -> tuple[int, Any]:
        payload = {"call_id": asked["call_id"], "args_hash": asked["args_hash"], "decision": decision}
        events = [{"type": "approval.decision", "payload": payload}]
        return self.server.post("/api/events", {"session": self.session, "events": events})

    def weigh_in(self, values: Any) -> list[Any]:
        """A weigh-in from the first word to the end."""
        said = self.say("Weigh-in 187.6 today")
        assert self.submit(values)[0] == 202
        return said + self.turn()

    def table(self) -> list[Any]:
        """The rows of the table as a page gets them, flat."""
        return rows_of(self.say("Show my weights"))

    @property
    def stored(self) -> list[tuple[Any, ...]]:
        """What is in the executor's table."""
        return self._select(
            "SELECT measured_at, weight_lbs, notes FROM weight_entry ORDER BY measured_at, rowid"
        )

    @property
    def audit(self) -> list[tuple[Any, ...]]:
        return self._select("SELECT tool, person, call_id, answered FROM audit ORDER BY n")

    def _select(self, statement: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self.folder / "weights.db", timeout=HANG_S)) as db:
            return db.execute(statement).fetchall()


def rows_of(events: list[Any]) -> list[Any]:
    """The rows of the table that was shown last, flat, as a page sends them back."""
    rows = tree_of(events)["rows"]
    return [{"row_id": row["row_id"], **row["values"]} for row in rows]


def tree_of(events: list[Any]) -> Any:
    return bodies(events, "assistant.view")[-1]["view"]["tree"]


def words(events: list[Any]) -> list[str]:
    return [payload["text"] for payload in bodies(events, "assistant.message")]


def result_of(events: list[Any], tool: str) -> Any:
    return next(payload for payload in bodies(events, "tool.result") if payload["tool"] == tool)


class Proxy:
    """Stands before a server, and keeps the first result that is posted to itself."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._tasks: set[asyncio.Task[None]] = set()
        self.held = asyncio.Event()
        self.url = ""

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Proxy"]:
        async with await asyncio.start_server(self._take, "127.0.0.1", 0) as server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.read(65536)
            if head.startswith(b"POST") and not self.held.is_set():
                self.held.set()
                await reader.read()  # until the client is gone
            else:
                await self._pass(head, reader, writer)
        finally:
            await closed(writer)

    async def _pass(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", self._port)
        ours.write(head)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(copy(reader, ours))
                both.create_task(copy(theirs, writer))
        finally:
            await closed(ours)


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes; the end of one side is the end of the other."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
