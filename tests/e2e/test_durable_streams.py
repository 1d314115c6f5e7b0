"""Live readers of streams on real sockets: SSE, long polls, forks, deletes, stops."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.e2e.harness import Dechunker, Server, running
from tests.support.limits import HANG_S
from turnlog.wire.sse import Decoder, ServerSentEvent

JSON = {"content-type": "application/json"}
TEXT = {"content-type": "text/plain"}


class LiveReader:
    """An SSE connection to a stream, read event by event. None is its end."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._dechunker = Dechunker()
        self._decoder = Decoder()
        self._events: list[ServerSentEvent] = []
        self.status = 0

    async def open(self) -> None:
        head = await self._reader.readuntil(b"\r\n\r\n")
        self.status = int(head.split()[1])

    async def next_event(self) -> ServerSentEvent | None:
        while not self._events:
            data = await self._reader.read(65536)
            if not data:
                return None
            self._events = self._decoder.feed(self._dechunker.feed(data))
        return self._events.pop(0)

    async def wait_for_comments(self, count: int) -> None:
        """Wait for so many heartbeats."""
        received = b""
        while received.count(b": ping") < count:
            data = await self._reader.read(65536)
            assert data
            received += data

    async def next_batch(self) -> tuple[Any, dict[str, Any]]:
        """Return the data of the next `data` event and its `control` event. Both have the same id."""
        data = await self.next_event()
        while data is not None and data.event == "control":
            data = await self.next_event()
        assert data is not None
        control = await self.next_event()
        assert control is not None
        assert (data.event, control.event, data.id) == ("data", "control", control.id)
        fields: dict[str, Any] = json.loads(control.data)
        assert fields["streamNextOffset"] == data.id
        return data.data, fields


@asynccontextmanager
async def following(server: Server, path: str, last_id: str = "") -> AsyncIterator[LiveReader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    headers = dict(server.headers) | ({"last-event-id": last_id} if last_id else {})
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"GET /v1/stream/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n".encode())
    live = LiveReader(reader)
    try:
        async with asyncio.timeout(HANG_S):
            await live.open()
            yield live
    finally:
        writer.transport.abort()


async def ask(server: Server, method: str, path: str, body: bytes = b"", **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    status, _ = await asyncio.to_thread(server.ask, method, f"/v1/stream/{path}", body, named)
    return status


def test_readers_get_what_is_appended_and_the_end(tmp_path: Path) -> None:
    async def follow(server: Server) -> None:
        assert await ask(server, "PUT", "live", b"[0]", **JSON) == 201
        query = "live?offset=-1&live=sse"
        async with following(server, query) as one, following(server, query) as other:
            for number in range(1, 4):
                batches = [await reader.next_batch() for reader in (one, other)]
                assert batches[0] == batches[1]
                assert json.loads(batches[0][0]) == [number - 1]
                assert batches[0][1]["upToDate"] is True
                closing = {"stream-closed": "true"} if number == 3 else {}
                assert await ask(server, "POST", "live", str(number).encode(), **JSON | closing) == 204
            for reader in (one, other):
                data, control = await reader.next_batch()
                assert (json.loads(data), control["streamClosed"]) == ([3], True)
                assert await reader.next_event() is None

    with running("fast", tmp_path) as server:
        asyncio.run(follow(server))


def test_a_browser_that_reconnects_gets_the_rest(tmp_path: Path) -> None:
    async def reconnect(server: Server) -> None:
        await ask(server, "PUT", "text", b" first\nlines", **TEXT)
        async with following(server, "text?offset=-1&live=sse") as reader:
            data, control = await reader.next_batch()
            assert data == " first\nlines"
        await ask(server, "POST", "text", b"second", **TEXT)
        # The URL of a browser stays the same. Its header says where it was.
        async with following(server, "text?offset=-1&live=sse", control["streamNextOffset"]) as reader:
            data, _ = await reader.next_batch()
            assert data == "second"

    with running("fast", tmp_path) as server:
        asyncio.run(reconnect(server))


def test_a_delete_ends_readers_and_they_find_nothing(tmp_path: Path) -> None:
    async def delete(server: Server) -> None:
        await ask(server, "PUT", "gone", b"[1]", **JSON)
        async with following(server, "gone?offset=-1&live=sse") as reader:
            await reader.next_batch()
            poll = asyncio.create_task(ask(server, "GET", "gone?offset=now&live=long-poll"))
            assert await ask(server, "DELETE", "gone") == 204
            assert await reader.next_event() is None
            assert await poll == 404
        async with following(server, "gone?offset=-1&live=sse") as reader:
            assert reader.status == 404

    with running("fast", tmp_path) as server:
        asyncio.run(delete(server))


def test_a_live_fork_begins_with_what_it_inherits(tmp_path: Path) -> None:
    async def fork(server: Server) -> None:
        await ask(server, "PUT", "source", b"[1]", **JSON)
        await ask(server, "POST", "source", b"2", **JSON)
        forked = JSON | {"stream-forked-from": "/v1/stream/source"}
        assert await ask(server, "PUT", "fork", b"", **forked) == 201
        await ask(server, "POST", "source", b'"not in the fork"', **JSON)
        async with following(server, "fork?offset=-1&live=sse") as reader:
            data, _ = await reader.next_batch()
            assert json.loads(data) == [1, 2]
            await ask(server, "POST", "fork", b"3", **JSON)
            data, _ = await reader.next_batch()
            assert json.loads(data) == [3]

    with running("fast", tmp_path) as server:
        asyncio.run(fork(server))


def test_a_turn_is_followed_as_a_stream_of_its_session(tmp_path: Path) -> None:
    async def follow(server: Server) -> None:
        session = await asyncio.to_thread(server.session)
        async with following(server, f"{session}?offset=-1&live=sse") as reader:
            await asyncio.to_thread(server.send, session, "Oslo")
            types: list[str] = []
            seqs: list[int] = []
            while "block.delta" not in types:
                data, _ = await reader.next_batch()
                events = json.loads(data)
                types += [event["type"] for event in events]
                seqs += [event["seq"] for event in events]
            assert "ui.message" in types
            assert seqs == list(range(len(seqs)))

    with running("fast", tmp_path) as server:
        asyncio.run(follow(server))


def test_a_reader_keeps_a_stream_with_a_ttl_alive(tmp_path: Path) -> None:
    async def read_idly(server: Server) -> None:
        for path in ("read", "idle"):
            assert await ask(server, "PUT", path, b"[1]", **JSON | {"stream-ttl": "2"}) == 201
        async with following(server, "read?offset=now&live=sse") as reader:
            # A heartbeat comes every half TTL. The control: nobody reads the other stream.
            await reader.wait_for_comments(6)
            assert await ask(server, "HEAD", "read") == 200
            assert await ask(server, "HEAD", "idle") == 404

    with running("fast", tmp_path) as server:
        asyncio.run(read_idly(server))


def test_a_stop_ends_readers_and_long_polls(tmp_path: Path) -> None:
    async def stop(server: Server) -> None:
        await ask(server, "PUT", "stopped", b"[1]", **JSON)
        async with following(server, "stopped?offset=-1&live=sse") as reader:
            await reader.next_batch()
            assert await asyncio.to_thread(server.stop) == 0
            assert await reader.next_event() is None

    with running("fast", tmp_path) as server:
        asyncio.run(stop(server))
