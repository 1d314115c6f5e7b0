"""A log on disk, written by hand with given ids and times, and the command run on it."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from click.testing import CliRunner, Result

from tests.support.transact import transact
from turnlog.cli import main
from turnlog.events import CATALOG, Event, Origin, Scope
from turnlog.log import Damage, Log, SqliteStore

T = TypeVar("T")

NOW_MS = 1_767_875_696_789  # 2026-01-08T12:34:56.789Z
GUIDE = Scope(trace_id="tr_1", agent_id="agt_1", agent_name="Guide", depth=0)
SCOUT = Scope(trace_id="tr_1", agent_id="agt_2", agent_name="Scout", depth=1)
NOBODY = Scope()
TURN = [
    ("ui.message", {"text": "Rome"}, NOBODY, "ui"),
    ("agent.start", {"name": "Guide", "via": "prompt", "model": "scripted"}, GUIDE, "system"),
    ("block.start", {"block_id": "b1", "kind": "text"}, GUIDE, "model"),
    ("block.delta", {"block_id": "b1", "text": "Let me "}, GUIDE, "model"),
    ("block.delta", {"block_id": "b1", "text": "see."}, GUIDE, "model"),
    ("block.end", {"block_id": "b1", "status": "complete"}, GUIDE, "model"),
    ("assistant.message", {"text": "Let me see.", "block_id": "b1"}, GUIDE, "model"),
    ("tool.call", {"call_id": "c1", "tool": "scout", "args": {"city": "Rome"}}, GUIDE, "model"),
    ("agent.start", {"name": "Scout", "via": "call", "call_id": "c1"}, SCOUT, "system"),
    ("tool.progress", {"call_id": "c1", "text": "half way"}, SCOUT, "tool"),
    ("agent.end", {"stop_reason": "end_turn", "steps": 1, "result": "dusk"}, SCOUT, "system"),
    ("tool.result", {"call_id": "c1", "tool": "scout", "ok": True, "result": "dusk"}, GUIDE, "system"),
    ("agent.end", {"stop_reason": "end_turn", "steps": 2}, GUIDE, "system"),
]
LIVE = [3, 4, 9]


def event(number: int, type: str, data: object, scope: Scope = NOBODY, origin: Origin = "app") -> Event:
    """An event with a given id."""
    assert isinstance(data, dict)
    return CATALOG.build_event(type, data, id=f"evt_{number}", origin=origin, scope=scope)


def turn() -> list[Event]:
    """A turn with everything in it: a message, a block, a call, a sub-agent."""
    return [event(number, *entry) for number, entry in enumerate(TURN)]  # type: ignore[arg-type]


def said(*texts: str, first: int = 0) -> list[Event]:
    """Messages."""
    return [event(number, "ui.message", {"text": text}) for number, text in enumerate(texts, first)]


@dataclass(frozen=True)
class Place:
    """A log in a file."""

    path: Path

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def run(self, *arguments: str, input: bytes | None = None, env: dict[str, str] | None = None) -> Result:
        """Run the command on this log."""
        plain = {"TURNLOG_LOG": self.url, "NO_COLOR": None, "FORCE_COLOR": None, **(env or {})}
        return CliRunner().invoke(main, arguments, input=input, env=plain)

    def work(self, work: Callable[[Log], Awaitable[T]]) -> T:
        """Do something as the one who writes the log."""

        async def opened() -> T:
            log = Log(SqliteStore(self.path), clock=lambda: NOW_MS)
            try:
                return await work(log)
            finally:
                await log.close()

        return asyncio.run(opened())

    def session(self, name: str, events: list[Event], app: str = "tour") -> None:
        """Write a session."""

        async def write(log: Log) -> None:
            await log.create(app, name)
            if events:
                await log.append(name, events)

        self.work(write)

    def close_session(self, name: str) -> None:
        """Close a session."""
        self.work(lambda log: log.close_session(name))

    def lose(self, name: str, first: int, last: int, problem: str = "for a test") -> None:
        """Record that a part of a session is lost."""
        lost = Damage(name, first, last, problem)
        self.work(lambda log: transact(log, lambda store: store.quarantine(lost)))

    def spoil(self, statement: str) -> None:
        """Damage the file behind the log's back."""
        with closing(sqlite3.connect(self.path)) as connection, connection:
            assert connection.execute(statement).rowcount > 0

    def spoil_event(self, seq: int) -> None:
        """Change one event that is stored."""
        self.spoil(f"update event set frame = cast(replace(frame, 'text', 'tixt') as blob) where seq = {seq}")


NO_SESSION = "no session sess_none; `turnlog sessions` lists all sessions"


def no_log(place: Place) -> str:
    """What a command says that finds no log."""
    return f"there is no log at {place.path.resolve()}; choose another one with --log or TURNLOG_LOG"


def error(result: Result) -> str:
    """The one line that says why, without a stack trace."""
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit)
    start, _, line = result.stderr.partition("Error: ")
    assert (start, line.count("\n"), line[-1:]) == ("", 1, "\n")
    return line[:-1]
