"""Many sessions with many readers over two web nodes: every reader gets every event of its session once.

`test_fan_out.py` has a tenth of the readers of `tests/soak/test_nodes.py`.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.cluster.nodes import Cluster, Node
from tests.e2e.harness import Dechunker
from tests.support.limits import HANG_S
from turnlog.server.auth.credentials import hash_token
from turnlog.wire.sse import Decoder

SCRIPT = "say " + "word " * 20 + "; call look | say Done"
THREADS = 8
STREAMS_PER_PROGRAM = 1000  # a little less than `Limits.program_streams`
CONNECTS = 200  # at the same time


class FrameReader(asyncio.Protocol):
    """A reader that keeps what it gets. `is_open` and `has_end` tell of its first event and its last."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.data = bytearray()
        loop = asyncio.get_running_loop()
        self.is_open = loop.create_future()
        self.has_end = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        start = max(0, len(self.data) - 40)
        self.data += data
        if not self.is_open.done() and b'"session.member"' in self.data:
            self.is_open.set_result(None)
        if not self.has_end.done() and self.data.find(b'"agent.end"', start) >= 0:
            self.has_end.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        for future in (self.is_open, self.has_end):
            if not future.done():
                future.set_exception(exc or ConnectionError(f"the stream ended: {bytes(self.data[:200])!r}"))

    def seqs(self) -> list[int]:
        body = Dechunker().feed(bytes(self.data).partition(b"\r\n\r\n")[2])
        messages = Decoder().feed(body)
        return [json.loads(message.data)["seq"] for message in messages if message.event == "message"]


def read_all(cluster: Cluster, session_count: int, readers_per_session: int) -> dict[str, float]:
    """Let readers on both nodes follow a turn in every session. Return figures."""
    tokens = write_tokens(cluster, session_count * readers_per_session // 2 // STREAMS_PER_PROGRAM + 1)
    options = ["--tokens", str(cluster.folder / "tokens.json")]
    webs = [cluster.start("web", name, options=options) for name in ("a", "b")]
    cluster.start_all(v="worker", w="worker")
    with ThreadPoolExecutor(THREADS) as threads:
        sessions = list(threads.map(lambda number: webs[number % 2].session(), range(session_count)))
        return asyncio.run(follow_all(webs, sessions, readers_per_session, tokens, threads))


def write_tokens(cluster: Cluster, count: int) -> list[str]:
    """Write the tokens of some programs, each of which may have as many streams as a program may."""
    tokens = [f"the token of the program {number}" for number in range(count)]
    entries = {
        f"program-{number}": {"sha256": hash_token(token), "roles": ["operator"]}
        for number, token in enumerate(tokens)
    }
    (cluster.folder / "tokens.json").write_text(json.dumps(entries))
    return tokens


async def follow_all(
    webs: Sequence[Node],
    sessions: Sequence[str],
    readers_per_session: int,
    tokens: Sequence[str],
    threads: ThreadPoolExecutor,
) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    slots = asyncio.Semaphore(CONNECTS)

    async def connect(number: int) -> FrameReader:
        session = sessions[number // readers_per_session]
        node = webs[number % 2]
        token = tokens[number // 2 // STREAMS_PER_PROGRAM]
        path = f"/api/events?session={session}&dialect=turnlog"
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
        async with slots:
            _, reader = await loop.create_connection(
                lambda: FrameReader(request.encode()), "127.0.0.1", node.port
            )
            await reader.is_open
        return reader

    async with asyncio.timeout(10 * HANG_S):
        began_s = time.monotonic()
        readers = await asyncio.gather(*map(connect, range(len(sessions) * readers_per_session)))
        connected_s = time.monotonic()
        sends = [
            loop.run_in_executor(threads, webs[number % 2].send, session, SCRIPT)
            for number, session in enumerate(sessions)
        ]
        await asyncio.gather(*sends)
        await asyncio.gather(*[reader.has_end for reader in readers])
        ended_s = time.monotonic()

    events = 0
    for number, reader in enumerate(readers):
        reader.transport.abort()
        seqs = reader.seqs()
        events += len(seqs)
        assert seqs == list(range(len(seqs))), f"a reader of session {number // readers_per_session}: {seqs}"
    return {
        "readers": len(readers),
        "events": events,
        "connect_s": connected_s - began_s,
        "turns_s": ended_s - connected_s,
        "deliveries_per_s": events / (ended_s - connected_s),
    }
