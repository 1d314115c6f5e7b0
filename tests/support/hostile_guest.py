"""A guest of one session that does its worst, over real sockets.

Every attack is one round: it opens at most `BATCH` connections, sends at most a few MiB, and closes what it
opened. It returns the statuses of its answers; `none` is a connection that got no answer. `attack` runs
rounds of all of them.
"""

import asyncio
import json
import random
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

BATCH = 16
CROWD = 100  # connections that one round of slow heads holds
HOLD_S = 5.0
PATIENCE_S = 10.0
MIB = 1024 * 1024
PAUSE_S = 0.005
DIALECTS = ("turnlog", "blocks", "office", "agentic")
FILTERS = ("", "&types=block", "&types=nothing", "&depth=0", "&types=ui,agent,tool,session,case")
LOOK_BACKS = (
    "/api/log?session={0}",
    "/api/state?session={0}&include=transcript,meters,open,roster",
    "/api/state?session={0}&at=1",
    "/api/state?session={0}&at=1&include=transcript",
    "/api/documents",
    "/api/documents?session={0}",
    "/api/sessions",
    "/api/apps",
    "/api/me",
)


class Guest(NamedTuple):
    """Where a guest goes, and what it is known by."""

    port: int
    cookie: str
    session: str

    def head(self, method: str, path: str, *fields: str) -> bytes:
        """The head of a request that is signed in."""
        own = (f"Host: 127.0.0.1:{self.port}", f"Cookie: {self.cookie}", "Content-Type: application/json")
        return "\r\n".join([f"{method} {path} HTTP/1.1", *own, *fields, "", ""]).encode()

    def post(self, path: str, body: bytes) -> bytes:
        return self.head("POST", path, f"Content-Length: {len(body)}") + body


class Peer:
    """One connection of a guest; what the server does to it is no error here."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setblocking(False)

    async def open(self, port: int, window_bytes: int | None = None) -> "Peer":
        if window_bytes:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window_bytes)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.get_running_loop().sock_connect(self._socket, ("127.0.0.1", port))
        return self

    async def send(self, data: bytes) -> bool:
        """Send as much as the server takes; False when it has ended the connection, or takes no more."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.get_running_loop().sock_sendall(self._socket, data)
        except (OSError, TimeoutError):
            return False
        return True

    async def read(self, size: int = 4096) -> bytes:
        """What comes next; nothing at the end, or after a while."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await asyncio.get_running_loop().sock_recv(self._socket, size)
        except (OSError, TimeoutError):
            return b""

    async def status(self) -> str:
        """The status of the next answer."""
        return status_of(await self.read())

    def close(self) -> None:
        self._socket.close()


def status_of(answer: bytes) -> str:
    return answer[9:12].decode("latin-1") if answer.startswith(b"HTTP/1.1 ") else "none"


async def exchange(guest: Guest, *pieces: bytes) -> str:
    """Send pieces until the server has had enough; the status of the answer, which is read to its end."""
    peer = await Peer().open(guest.port)
    try:
        for piece in pieces:
            if not await peer.send(piece):
                break
        return await peer.status()
    finally:
        peer.close()


async def held(
    guest: Guest, requests: list[bytes], hold_s: float, window_bytes: int | None = 4096
) -> Counter[str]:
    """Send each request on a connection of its own, read the status and nothing else, and stay a while."""
    peers = await asyncio.gather(*(Peer().open(guest.port, window_bytes) for _ in requests))
    try:
        for peer, request in zip(peers, requests, strict=True):
            await peer.send(request)
        found = Counter(await asyncio.gather(*(status_once(peer) for peer in peers)))
        await asyncio.sleep(hold_s)  # a reader that stops reading: how long is the attack
        return found
    finally:
        for peer in peers:
            peer.close()


async def status_once(peer: Peer) -> str:
    return status_of(await peer.read(16))


# heads


async def endless_fields(guest: Guest, _: float) -> Counter[str]:
    return Counter([await exchange(guest, b"GET / HTTP/1.1\r\n", *[b"a:b\r\n" * 4096] * 64)])


async def endless_field(guest: Guest, _: float) -> Counter[str]:
    return Counter([await exchange(guest, b"GET / HTTP/1.1\r\nx: ", *[b"v" * 65536] * 16)])


async def endless_url(guest: Guest, _: float) -> Counter[str]:
    return Counter([await exchange(guest, b"GET /", *[b"q" * 65536] * 16)])


async def slow_heads(guest: Guest, hold_s: float) -> Counter[str]:
    """Connections that say a little and then nothing."""
    peers = await asyncio.gather(*(Peer().open(guest.port) for _ in range(CROWD)))
    try:
        for number, peer in enumerate(peers):
            await peer.send(b"" if number % 2 else b"GET /api/me HTTP/1.1\r\nHost: 127.0")
        await asyncio.sleep(hold_s)  # a peer that does not go on: how long is the attack
        return Counter({"open": len(peers)})
    finally:
        for peer in peers:
            peer.close()


# bodies


def bad_json(kind: str) -> bytes:
    """A body of about 1 MiB that is refused at its very end."""
    if kind == "twice":
        return b'{"session":"' + b"x" * (MIB - 60) + b'","message":"a","message":"b"}'
    if kind == "keys":
        pairs = ",".join(f'"k{number}":1' for number in range(75_000))
        return b'{%b,"k1":2}' % pairs.encode()
    if kind == "number":
        return b"[" + b"1," * (MIB // 2 - 10) + b"1e999]"
    return b'{"session":"x","message":' + b"[" * 1000 + b"1" * (MIB - 3000) + b"]" * 1000 + b"}"


BAD_BODIES = {kind: bad_json(kind) for kind in ("twice", "keys", "number", "deep")}


async def bad_bodies(guest: Guest, _: float) -> Counter[str]:
    path = random.choice(("/api/send", "/api/stop", "/api/events", "/api/links"))
    bodies = [guest.post(path, body) for body in BAD_BODIES.values()]
    return Counter(await asyncio.gather(*(exchange(guest, body) for body in bodies)))


async def endless_body(guest: Guest, _: float) -> Counter[str]:
    head = guest.head("POST", "/api/send", "Transfer-Encoding: chunked")
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    return Counter([await exchange(guest, head, *[chunk] * 32)])


async def slow_bodies(guest: Guest, hold_s: float) -> Counter[str]:
    """Bodies that are announced and hardly come."""
    head = guest.head("POST", "/api/send", "Content-Length: 5000")
    peers = await asyncio.gather(*(Peer().open(guest.port) for _ in range(BATCH)))
    try:
        for _ in range(5):
            for peer in peers:
                await peer.send(head or b"{")
            head = b""
            await asyncio.sleep(hold_s / 5)  # a byte now and then: that is the attack
        return Counter({"open": len(peers)})
    finally:
        for peer in peers:
            peer.close()


# reading


async def streams(guest: Guest, hold_s: float) -> Counter[str]:
    """More streams than a guest may have, in every dialect, with filters; none is read."""
    asked = [f"&dialect={random.choice(DIALECTS)}{random.choice(FILTERS)}" for _ in range(BATCH)]
    paths = [f"/api/events?session={guest.session}{query}" for query in asked]
    return await held(guest, [guest.head("GET", path) for path in paths], hold_s)


async def unread_exports(guest: Guest, hold_s: float) -> Counter[str]:
    """Answers that are asked for and not read."""
    path = f"/api/log?session={guest.session}"
    return await held(guest, [guest.head("GET", path)] * BATCH, hold_s)


async def look_backs(guest: Guest, _: float) -> Counter[str]:
    """What may cost the whole log."""
    path = random.choice(LOOK_BACKS).format(guest.session)
    return Counter([await exchange(guest, guest.head("GET", path, "Connection: close"))])


async def replays(guest: Guest, _: float) -> Counter[str]:
    """A stream from the start, of which the beginning is read, again and again."""
    query = f"&dialect={random.choice(DIALECTS)}{random.choice(FILTERS)}"
    return Counter([await exchange(guest, guest.head("GET", f"/api/events?session={guest.session}{query}"))])


# writing


async def large_messages(guest: Guest, _: float) -> Counter[str]:
    body = json.dumps({"session": guest.session, "message": "say " + "word " * 18_000}).encode()
    return Counter([await exchange(guest, guest.post("/api/send", body))])


async def messages(guest: Guest, _: float) -> Counter[str]:
    order = random.choice(("hello", "picture", "confirm it", "recall " + "x" * 900, "form"))
    body = json.dumps({"session": guest.session, "message": order}).encode()
    return Counter([await exchange(guest, guest.post("/api/send", body))])


async def many_events(guest: Guest, _: float) -> Counter[str]:
    note = {"type": "case.note", "payload": {"text": "x" * 40}}
    body = json.dumps({"session": guest.session, "events": [note] * 100}).encode()
    return Counter([await exchange(guest, guest.post("/api/events", body))])


async def stops(guest: Guest, _: float) -> Counter[str]:
    body = json.dumps({"session": guest.session}).encode()
    return Counter([await exchange(guest, guest.post("/api/stop", body))])


async def responses(guest: Guest, hold_s: float) -> Counter[str]:
    """Turns as responses, which are not read."""
    body = json.dumps({"session": guest.session, "user_prompt": "say " + "word " * 2000}).encode()
    return await held(guest, [guest.post("/agent/run", body)] * 4, hold_s)


async def flood(guest: Guest, _: float) -> Counter[str]:
    """Small requests on one connection, without waiting for the answers."""
    peer, found = await Peer().open(guest.port), Counter[str]()
    try:
        if await peer.send(guest.head("GET", "/api/me") * BATCH):
            rest = b""
            while found.total() < BATCH and (data := await peer.read(65536)):
                *whole, rest = (rest + data).split(b"HTTP/1.1 ")
                found.update(answer[:3].decode("latin-1") for answer in whole if answer)
                if rest[:3].isdigit() and found.total() == BATCH - 1:
                    found[rest[:3].decode()] += 1
    finally:
        peer.close()
    return found or Counter({"none": 1})


Attack = Callable[[Guest, float], Awaitable[Counter[str]]]
Counts = dict[str, Counter[str]]
GoesOn = Callable[[int], bool]

# Connections and small requests, all at once and as fast as they are answered.
FLOODS: tuple[Attack, ...] = (
    endless_fields, endless_field, endless_url, slow_heads, bad_bodies, endless_body, messages, stops, flood,
)  # fmt: skip
# What is asked for and then held for as long as it lasts.
HOLDS: tuple[Attack, ...] = (slow_heads, slow_bodies, streams, unread_exports, responses)
# What costs most, one after the other: a guest that waits when it is told to gets most of it.
COSTS: tuple[Attack, ...] = (look_backs, many_events, replays, large_messages, messages, bad_bodies, stops)


PHASES: tuple[Sequence[Sequence[Attack]], ...] = (
    [[one] for one in FLOODS],
    [[one] for one in HOLDS],
    [COSTS],
)


def once() -> GoesOn:
    """Return what says whether a phase goes on after so many rounds: one round of each."""
    return lambda rounds: rounds < 1


async def attack(guest: Guest, begin_phase: Callable[[], GoesOn] = once, hold_s: float = HOLD_S) -> Counts:
    """Flood, hold and cost, one phase after the other; the attacks of a phase run at once."""
    counts: Counts = {one.__name__: Counter() for one in (*FLOODS, *HOLDS, *COSTS)}

    async def repeat(attacks: Sequence[Attack], goes_on: GoesOn) -> None:
        rounds = 0
        while goes_on(rounds):
            for one in attacks:
                counts[one.__name__] += await one(guest, hold_s)
            rounds += 1
            await asyncio.sleep(PAUSE_S)  # a guest elsewhere does not take this machine's processors

    for phase in PHASES:
        goes_on = begin_phase()
        await asyncio.gather(*(repeat(attacks, goes_on) for attacks in phase))
    return counts
