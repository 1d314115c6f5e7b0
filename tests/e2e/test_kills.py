"""kill -9 and a restart on the same port, again and again, under readers of every kind (protocol 4 and 7)."""

import asyncio
import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.e2e.harness import Reader, Server, running
from tests.e2e.streams import WISHES, Wish, finish, log_lines, told_by

KILLS = 4
WANTED = (*WISHES, Wish("blocks-xml"), Wish("blocks-raw"), Wish(types="agent"), Wish(types="duo", depth=0))


class Crowd:
    """Readers that come back whenever there is a server."""

    def __init__(self, session: str, size: int) -> None:
        wishes = [WANTED[number % len(WANTED)] for number in range(size)]
        self.session = session
        self.up = asyncio.Event()
        self.server: Server | None = None
        self.readers: list[tuple[Wish, Reader]] = []
        self.connections: Counter[int] = Counter()
        self._wishes = wishes

    def enter(self, server: Server) -> None:
        """There is a server, on the port that everybody knows."""
        if not self.readers:
            self.readers = [(wish, Reader(server, self.session, wish.query)) for wish in self._wishes]
        for _, reader in self.readers:
            reader.server = server
        self.up.set()

    def leave(self, server: Server) -> None:
        """The server dies, and everybody learns it from the connection."""
        self.up.clear()
        server.kill()

    async def stay(self, number: int) -> None:
        """Read, and read on."""
        while True:
            await self.up.wait()
            with contextlib.suppress(ConnectionError):
                self.connections[number] += 1
                await self.readers[number][1].read(lambda message: False)


async def words(server: Server, session: str, count: int, after: int) -> None:
    """Wait until the agents have said so many words, in however many pieces."""
    watcher, heard = Reader(server, session, f"&after={after}"), 0

    def enough(message: Any) -> bool:
        nonlocal heard
        event: Any = json.loads(message.data) if message.event == "message" else {}
        if event.get("type") == "block.delta":
            heard += event["payload"]["text"].count(" ") + 1
        return heard >= count

    assert await watcher.read(enough)


async def killed_again_and_again(folder: Path, size: int) -> tuple[list[bytes], Crowd]:
    port, tasks, crowd = 0, list[asyncio.Task[None]](), Crowd("", size)
    for kill in range(KILLS):
        with running("tests.e2e.stream_apps:slow_duo", folder, port) as server:
            port = server.port
            crowd.session = crowd.session or server.session()
            crowd.enter(server)
            tasks = tasks or [asyncio.create_task(crowd.stay(number)) for number in range(size)]
            seq = (await asyncio.to_thread(server.send, crowd.session, "Go and look"))["eventId"]
            await words(server, crowd.session, 3 + 4 * kill, seq)  # each time further into a turn
            crowd.leave(server)
    with running("tests.e2e.stream_apps:slow_duo", folder, port) as server:
        crowd.enter(server)
        sent = await asyncio.to_thread(server.send, crowd.session, "Go and look")
        last_end = Reader(server, crowd.session, f"&types=agent.end&depth=0&after={sent['eventId']}")
        assert await last_end.read(lambda message: sent["turn"] in message.data)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        lines = await asyncio.to_thread(log_lines, server, crowd.session)
        for wish, reader in crowd.readers:
            if expected := wish.expected(lines):
                await finish(reader, expected[-1][0])
        return lines, crowd


def test_readers_of_every_kind_get_every_event_once_when_the_server_is_killed_again_and_again(
    tmp_path: Path,
) -> None:
    lines, crowd = asyncio.run(killed_again_and_again(tmp_path, 20))
    events = [json.loads(line) for line in lines]
    assert [event["seq"] for event in events] == list(range(len(events)))
    ends = [event for event in events if event["type"] == "agent.end" and event["agent_name"] == "Lead"]
    assert len({end["trace_id"] for end in ends}) == len(ends) == KILLS + 1, "every turn ends once"
    reasons = [end["payload"]["stop_reason"] for end in ends]
    # two turns have lost their process twice; the turns that waited behind them lost none
    assert reasons == ["error", "error", "end_turn", "end_turn", "end_turn"]
    errors = [event for event in events if event["type"] == "session.error"]
    assert [(error["payload"]["code"], error["trace_id"]) for error in errors] == [
        ("worker_lost", end["trace_id"]) for end in ends[:2]
    ]
    assert min(crowd.connections.values()) > KILLS, "everybody was there every time"
    for wish, reader in crowd.readers:
        assert not [message for message in reader.messages if message.event == "reset"]
        wish.check(told_by(reader.messages), wish.expected(lines))
