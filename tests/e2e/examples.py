"""What the tests of the examples share: a turn over sockets, what `blocks` says of it, and its replay."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

from tests.e2e.harness import TURNLOG, Reader, Server
from tests.support.limits import HANG_S
from turnlog.client.assembler import Assembler
from turnlog.vocabularies import FULL_CATALOG
from turnlog.wire.sse import ServerSentEvent

APPS = "tests.e2e.example_apps:"
LIVE = {kind.name for kind in FULL_CATALOG if kind.payload_class.LIVE}
BOTH = "&dialect=blocks&stream_meta_history_and_tool_results=true&stream_tool_results=true"


def over(message: ServerSentEvent) -> bool:
    """Whether this event ends a turn: the agent at the top ends, and nobody takes over."""
    event: Any = json.loads(message.data) if message.event == "message" else {"type": message.event}
    ended = event["type"] == "agent.end" and event["depth"] == 0
    return bool(ended and event["payload"]["stop_reason"] != "handoff")


def read(reader: Reader, until: Any) -> list[Any]:
    """The events up to the wanted one that came with this read."""
    known = len(reader.events)
    assert asyncio.run(reader.read(until))
    return reader.events[known:]


def watch(server: Server, session: str, message: str, until: Any) -> list[Any]:
    """Send a message while somebody watches; what that one saw, up to the wanted event."""
    reader = Reader(server, session)

    async def watching() -> bool:
        here = asyncio.Event()

        def seen(message: ServerSentEvent) -> bool:
            here.set()
            return bool(until(message))

        task = asyncio.create_task(reader.read(seen))
        await here.wait()
        await asyncio.to_thread(server.send, session, message)
        return await task

    assert asyncio.run(watching())
    return reader.events


def durable(events: list[Any]) -> list[Any]:
    """The events that stay."""
    return [event for event in events if event["type"] not in LIVE]


def replayed(server: Server, session: str, last: int) -> list[Any]:
    """What a reader gets who comes afterwards, up to a seq."""
    reader = Reader(server, session)
    return read(
        reader, lambda message: message.event == "message" and json.loads(message.data)["seq"] == last
    )


def standing(server: Server, session: str, at: int | None = None) -> Any:
    """Everything that the events of a session make, now or as of a seq."""
    moment = "" if at is None else f"&at={at}"
    path = f"/api/state?session={session}&include=transcript,meters,open,roster{moment}"
    status, answer = server.get(path)
    assert status == 200, answer
    return answer


def emptied(folder: Path) -> None:
    """Throw away whatever a server has kept beside the events: the next one has to read them."""
    command = [TURNLOG, "rebuild", "--log", f"sqlite:///{folder}/log.db"]
    subprocess.run(command, check=True, capture_output=True, timeout=HANG_S)


def bodies(events: list[Any], type: str) -> list[Any]:
    """The payloads of a type."""
    return [event["payload"] for event in events if event["type"] == type]


def told(server: Server, session: str, agent_id: str, ends: int = 1) -> list[ServerSentEvent]:
    """Everything that `blocks` says with both options, up to the end of an agent, or to one of its ends.

    An agent that takes over from the first one has its id, and so another end.
    """
    reader = Reader(server, session, BOTH)
    last = agent_id.removeprefix("agt_")
    left = ends

    def ended(message: ServerSentEvent) -> bool:
        nonlocal left
        said = json.loads(message.data) if message.event == "message" else {"type": message.event}
        if said["type"] == "meta_final" and said["agent"] == last and said["final"]:
            left -= 1
        return left == 0

    assert asyncio.run(reader.read(ended))
    return [message for message in reader.messages if message.event == "message"]


def assembled(messages: list[ServerSentEvent]) -> Assembler:
    """What a reader of `blocks` puts together."""
    assembler = Assembler()
    for message in messages:
        assembler.feed(message.data, message.id)
    assert assembler.flush() == []
    assert assembler.dropped == 0
    return assembler
