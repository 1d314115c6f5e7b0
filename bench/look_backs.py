"""What questions about the past cost, in a short log and in a long one: `python -m bench.look_backs`. Linux.

One server in this process on SQLite, with budgets that refuse nothing. First one session of 1,000 events and
of 100,000 (turns of 20, 12 of them live), then 50 sessions of ada's and 5,000. Each question is asked once to
warm up and then `ROUNDS` times; the table shows medians of the CPU time of the process and of the bytes that
it read from files, and the size of the answer. "x" is the CPU time in the long log as a multiple of that in
the short one. Goals: what answers the same in both costs at most `GOAL` times as much in the long one.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.types import Message

from tests.faults.large_log import turns
from turnlog import Agent, App
from turnlog.agents import Scripted
from turnlog.app import Principal
from turnlog.app.session_creation import make_session
from turnlog.events import CATALOG, Envelope, SessionTitle, UiMessage
from turnlog.log import Log, open_log
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.server.limits import Limits

ROUNDS = 5
EVENTS = (1_000, 100_000)
SESSIONS = (50, 5_000)
GOAL = 3.0
NAME = "sess_look_backs"
LAST = "the last title"
UNKNOWN = "00000000-0000-0000-0000-000000000000"
OPERATOR = Principal("root", frozenset({"operator"}))
PEOPLE = {"ada": Principal("ada"), "bob": Principal("bob"), "root": OPERATOR}
FREE = Limits(burst=1 << 30, burst_bytes=1 << 40, burst_busy_s=1e9, burst_read_bytes=1 << 50)
LIMITS = FREE._replace(total_burst_read_bytes=1 << 50)


Fill = Callable[[Log, int], Awaitable[None]]


class Ask(NamedTuple):
    """A question: what it is called, who asks, where, until what is in the answer (b"": to its end)."""

    what: str
    who: str
    path: str
    until: bytes = b""
    body: bytes = b""
    is_constant: bool = False  # it answers the same in a long log


class Cost(NamedTuple):
    cpu_ms: float
    read_kb: float
    answer_bytes: int


def count_message(state: Any, _: UiMessage, envelope: Envelope) -> Any:
    return {"messages": state.get("messages", 0) + 1}


def make_app() -> App:
    agent = Agent("Guide", "", Scripted(lambda _: ["Good day."]))
    return App("bench", agent, reducers={UiMessage: count_message})


def read_bytes() -> int:
    """Return how many bytes this process has read from files so far."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().strip().split("\n"))
    return int(fields["rchar"])


async def answer_of(application: Starlette, ask: Ask) -> int:
    """Ask; return the size of the answer, of a stream up to what is waited for."""
    parts: list[bytes] = []
    reached, sent = asyncio.Event(), False

    async def receive() -> Message:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": ask.body, "more_body": False}
        await reached.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        parts.append(message.get("body", b""))
        if ask.until and ask.until in parts[-1]:
            reached.set()

    path, _, query = ask.path.partition("?")
    headers = {"host": "127.0.0.1", "authorization": f"Bearer {ask.who}", "content-type": "application/json"}
    scope = {
        "type": "http",
        "method": "POST" if ask.body else "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
    }
    await application(scope, receive, send)
    return sum(map(len, parts))


async def cost_of(application: Starlette, ask: Ask) -> Cost:
    size = await answer_of(application, ask)
    cpu_ms, read_kb = [], []
    for _ in range(ROUNDS):
        cpu_s, read = time.process_time(), read_bytes()
        await answer_of(application, ask)
        cpu_ms.append((time.process_time() - cpu_s) * 1000)
        read_kb.append((read_bytes() - read) / 1024)
    return Cost(median(cpu_ms), median(read_kb), size)


async def fill_session(log: Log, events: int) -> None:
    """Make ada's session of so many events, the last of which is the only one of its type."""
    await make_session(log, make_app(), PEOPLE["ada"], None, NAME)
    batch = []
    for turn in turns(events // 20):
        batch += turn
        if len(batch) >= 1_000:
            await log.append(NAME, batch)
            batch = []
    title = CATALOG.build_event(SessionTitle(title=LAST), id="evt_title", origin="system")
    await log.append(NAME, [*batch, title])


async def fill_sessions(log: Log, sessions: int) -> None:
    """Make so many sessions of ada's, with a turn each."""
    app = make_app()
    for first in range(0, sessions, 50):
        made = [make_session(log, app, PEOPLE["ada"], f"trip {first + number}") for number in range(50)]
        names = await asyncio.gather(*made)
        for name, turn in zip(names, turns(50), strict=True):
            await log.append(name, turn)


def session_asks(events: int) -> list[Ask]:
    of, at, last = f"session={NAME}", events * 2 // 3, LAST.encode()
    turn, newest = f"/api/events?{of}&turn=tr_000000", f"{events // 20 - 1:06}".encode()
    types = f"/api/events?{of}&types=session.title"
    return [
        Ask("events?turn=, the first", "ada", turn, b"[DONE]", is_constant=True),
        Ask("... dialect=blocks", "ada", f"{turn}&dialect=blocks", b"[DONE]", is_constant=True),
        Ask("events?types=, one match", "ada", types, last, is_constant=True),
        Ask("events?depth=0", "ada", f"/api/events?{of}&depth=0", last),
        Ask("events?dialect=agentic", "ada", f"/api/events?{of}&dialect=agentic", newest),
        Ask("state?at=", "ada", f"/api/state?{of}&at={at}", is_constant=True),
        Ask("state?include=open", "ada", f"/api/state?{of}&include=open", is_constant=True),
        Ask("state?include=transcript", "ada", f"/api/state?{of}&include=transcript"),
        Ask("state?at=, include=transcript", "ada", f"/api/state?{of}&at={at}&include=transcript"),
        Ask("documents?session=", "ada", f"/api/documents?{of}"),
        Ask("log", "ada", f"/api/log?{of}"),
    ]


def sessions_asks(sessions: int) -> list[Ask]:
    unknown = b'{"user_prompt": "hi", "agent_uuid": "%b"}' % UNKNOWN.encode()
    return [
        Ask("sessions of ada, limit=50", "ada", "/api/sessions?limit=50", is_constant=True),
        Ask("sessions of bob, who has none", "bob", "/api/sessions", is_constant=True),
        Ask("sessions of an operator, limit=50", "root", "/api/sessions?limit=50", is_constant=True),
        Ask("documents of ada", "ada", "/api/documents", is_constant=True),
        Ask("documents of bob", "bob", "/api/documents", is_constant=True),
        Ask("agent/run of ada, unknown agent", "ada", "/agent/run", body=unknown, is_constant=True),
        Ask("agent/run of bob, unknown agent", "bob", "/agent/run", body=unknown, is_constant=True),
    ]


async def costs_in(size: int, fill: Fill, asks: Callable[[int], list[Ask]]) -> list[tuple[Ask, Cost]]:
    """Fill a log, serve it, and ask."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/log.db"
        log = await open_log(url)
        await fill(log, size)
        await log.close()
        auth = BuiltinAuth(b"k" * 32, {hash_token(name): one for name, one in PEOPLE.items()})
        application = create_app(make_app(), url, auth=auth, limits=LIMITS)
        async with application.router.lifespan_context(application):
            return [(ask, await cost_of(application, ask)) for ask in asks(size)]


def table(what: str, sizes: Sequence[int], fill: Fill, asks: Callable[[int], list[Ask]]) -> int:
    """Print the costs in a short log and in a long one; return how many goals were missed."""
    short, long = [asyncio.run(costs_in(size, fill, asks)) for size in sizes]
    print(f"| {what} | CPU ms, {sizes[0]:,} | CPU ms, {sizes[1]:,} | x | read KiB | answer bytes |")
    print("|---|---|---|---|---|---|")
    missed = 0
    for (ask, few), (_, many) in zip(short, long, strict=True):
        times = many.cpu_ms / max(few.cpu_ms, 0.5)
        goal = f", goal at most {GOAL:.0f}" if ask.is_constant else ""
        missed += ask.is_constant and times > GOAL
        cells = f"{few.cpu_ms:.1f} | {many.cpu_ms:.1f} | {times:.1f}{goal}"
        print(f"| {ask.what} | {cells} | {many.read_kb:,.0f} | {many.answer_bytes:,} |")
    print(flush=True)
    return missed


def main() -> int:
    """Print both tables."""
    missed = table("events in the session", EVENTS, fill_session, session_asks)
    return missed + table("sessions", SESSIONS, fill_sessions, sessions_asks)


if __name__ == "__main__":
    sys.exit(main())
