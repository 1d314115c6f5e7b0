"""Members who work beside an attack: they send, read and follow, and note how long each request took.

A program: it reads one line of JSON (`port`, `seconds`, and `members`: a token and a session each), works for
so long, and prints one line: the times in seconds by what was asked, and what went wrong.
"""

import asyncio
import json
import sys
import time
from asyncio import StreamReader, StreamWriter
from typing import NamedTuple

PACE_S = 0.025  # between the requests of one member
PATIENCE_S = 30.0


class Member(NamedTuple):
    """A member of a session, and what it is known by."""

    token: str
    session: str


class Work:
    """What the members did: times by what was asked, and faults."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.times: dict[str, list[float]] = {}
        self.faults: list[str] = []

    async def ask(
        self, what: str, member: Member | None, method: str, path: str, body: object = None
    ) -> None:
        """One request on a new connection; its time counts from connecting to the last byte."""
        data = b"" if body is None else json.dumps(body).encode()
        begun = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(request(self.port, member, method, path, data))
                answer = await reader.read()
                writer.close()
        except (OSError, TimeoutError) as error:
            self.faults.append(f"{what}: {error!r}")
            return
        self.times.setdefault(what, []).append(time.monotonic() - begun)
        if answer[9:11] != b"20":
            self.faults.append(f"{what}: {answer[:200]!r}")

    async def speak(self, member: Member, end_s: float, came: asyncio.Queue[float]) -> None:
        """Send, read and follow, one after the other."""
        number = 0
        while time.monotonic() < end_s:
            note = {"type": "case.note", "payload": {"text": f"note {number}"}}
            begun = time.monotonic()
            await self.ask(
                "send", member, "POST", "/api/events", {"session": member.session, "events": [note]}
            )
            try:
                async with asyncio.timeout(PATIENCE_S):
                    self.times.setdefault("follow", []).append(await came.get() - begun)
            except TimeoutError:
                self.faults.append("follow: nothing came")
            await self.ask("read", member, "GET", f"/api/state?session={member.session}")
            await self.ask("me", member, "GET", "/api/me")
            await self.ask("health", None, "GET", "/healthz")
            number += 1
            await asyncio.sleep(PACE_S)  # people pause

    async def follow(self, member: Member, came: asyncio.Queue[float], ready: asyncio.Event) -> None:
        """Note when each of the member's own notes comes."""
        reader, writer = await open_stream(self.port, member)
        line = b""
        try:
            while line := await reader.readline():
                if line.startswith((b"retry:", b"event: heartbeat")):
                    ready.set()
                if line.startswith(b"data:") and b'"type":"case.note"' in line and b'"text":"note ' in line:
                    came.put_nowait(time.monotonic())
            self.faults.append("follow: the stream ended")
        finally:
            writer.close()


def request(port: int, member: Member | None, method: str, path: str, data: bytes) -> bytes:
    fields = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: close"]
    fields += [f"Authorization: Bearer {member.token}"] if member else []
    fields += ["Content-Type: application/json", f"Content-Length: {len(data)}"] if data else []
    return "\r\n".join([*fields, "", ""]).encode() + data


async def open_stream(port: int, member: Member) -> tuple[StreamReader, StreamWriter]:
    """A stream of what comes from now on: a cursor beyond the end would begin at the start."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    writer.write(request(port, member, "GET", f"/api/state?session={member.session}", b""))
    seq = json.loads((await reader.read()).partition(b"\r\n\r\n")[2])["seq"]
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    path = f"/api/events?session={member.session}&types=case&after={seq}"
    writer.write(request(port, member, "GET", path, b""))
    return reader, writer


async def work(port: int, seconds: float, members: list[Member]) -> Work:
    """Have the members work for so long."""
    done, end_s = Work(port), time.monotonic() + seconds
    async with asyncio.TaskGroup() as tasks:
        following = []
        speaking = []
        for member in members:
            came, ready = asyncio.Queue[float](), asyncio.Event()
            following.append(tasks.create_task(done.follow(member, came, ready)))
            await ready.wait()
            speaking.append(tasks.create_task(done.speak(member, end_s, came)))
        await asyncio.wait(speaking)
        for task in following:
            task.cancel()
    return done


def main() -> None:
    order = json.loads(sys.stdin.readline())
    members = [Member(*member) for member in order["members"]]
    done = asyncio.run(work(order["port"], order["seconds"], members))
    sys.stdout.write(json.dumps({"times": done.times, "faults": done.faults}) + "\n")


if __name__ == "__main__":
    main()
