"""Row 22: what stands in a parameter is a value, never a piece of a statement."""

import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.security.apps import plain
from tests.security.desk import Desk, desk, run
from tests.security.routes import asks, own
from turnlog.log.sqlite import queries, store

INJECTIONS = (
    "' or '1'='1",
    "' or 1=1 --",
    '" or ""="',
    "'; drop table events; --",
    "x' union select * from sessions --",
    "x') or ('1'='1",
    "sess_%",
    "sess_*",
    "_" * 41,
    "\\' or 1=1 --",
    "'||(select 1)||'",
    "1; attach database 'turnlog-owned.db' as x",
    "$1 ?1 :a @a",
    "\u02bc or 1=1",
    "%27%20or%201=1",
    'O:8:"stdClass":0:{}',
    "gASVCgAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAJpZJSFlFKULg==",
    "!!python/object/apply:os.system ['id']",
    "{{7*7}} ${7*7} $(id)",
)
PARAMETERS = ("session", "after", "dialect", "types", "depth", "turn", "code", "app", "order", "limit")


def replaced(body: Any, text: str) -> list[Any]:
    """A body with a text in the place of each of its strings."""
    if isinstance(body, str):
        return [text]
    if isinstance(body, list):
        return [[one] for item in body for one in replaced(item, text)]
    if isinstance(body, dict):
        return [{**body, key: one} for key, value in body.items() for one in replaced(value, text)]
    return []


def definitions(file: Path) -> list[Any]:
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
        return connection.execute("select name, sql from sqlite_master order by name").fetchall()


def query_paths(path: str, text: str) -> list[str]:
    """Return a path with a text in each parameter, beside those that the route needs and in their place."""
    base, _, query = path.partition("?")
    beside = [f"{path}{'&' if query else '?'}{name}={quote(text)}" for name in PARAMETERS]
    return beside + [f"{base}?{name}={quote(text)}" for name in PARAMETERS if f"{name}=" in query]


async def attack(at: Desk, text: str, secret: str) -> None:
    """Put a text into every parameter of every route, as bob, who has no session."""
    known = await own(at, "bob")
    paths = [f"/api/blobs/{known.session}/{quote(text, safe='')}", f"/api/blobs/{quote(text, safe='')}/x"]
    for route in asks(known).values():
        if route.method == "GET":
            paths += query_paths(route.path, text)
        for body in replaced(route.body, text):
            answer = await at.post("bob", route.path, body, **{"idempotency-key": quote(text)})
            assert answer.status < 500, (route.path, body, answer.body)
            assert secret.encode() not in answer.body, (route.path, body)
    for path in paths:
        answer = await at.get("bob", path, **{"last-event-id": quote(text)})
        assert answer.status < 500, (path, answer.body)
        assert secret.encode() not in answer.body, path


def test_quotes_in_every_parameter_reach_no_statement(tmp_path: Path) -> None:
    file = tmp_path / "log.db"

    async def scenario() -> None:
        async with desk(plain, f"sqlite:///{file}") as at:
            session = await at.session("ada")
            await at.send("ada", session, "say ada-secret-51")
            await at.told("ada", session, "agent.end")
            before, defined = await at.log("ada", session), definitions(file)
            for text in INJECTIONS:
                await attack(at, text, "ada-secret-51")
            assert await at.log("ada", session) == before
            assert definitions(file) == defined

    run(scenario())
    assert not Path("turnlog-owned.db").exists()


def titled(session: str) -> Any:
    return {"session": session, "events": [{"type": "session.title", "payload": {"title": "x"}}]}


def test_choices_of_types_and_turns_are_compared_not_matched() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            session = await at.session("ada")
            for text in (*INJECTIONS, "session.%", "session_member", ".*", "session.membe"):
                call = at.follow("ada", f"session={session}&types={quote(text)},session.title")
                await at.post("ada", "/api/events", titled(session))
                answer = await call.word("session.title")
                await call.leave()
                assert {event["type"] for event in answer.events} == {"session.title"}, text

    run(scenario())


async def log_by(at: Desk, text: str) -> int:
    """Ada asks for a log by a piece of a statement."""
    return (await at.get("ada", f"/api/log?session={quote(text)}")).status


def test_a_piece_of_a_statement_is_no_session(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with desk(plain, f"sqlite:///{tmp_path}/log.db") as at:
            await at.session("ada")
            assert {await log_by(at, text) for text in INJECTIONS} == {404}

    run(scenario())


def test_control_a_statement_that_is_joined_finds_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = queries.load_record

    def joined(connection: sqlite3.Connection, name: str) -> Any:
        try:
            found = connection.execute(f"select name from session where name = '{name}'").fetchone()
        except sqlite3.Error:
            return None
        return bound(connection, found[0]) if found else None

    async def scenario() -> None:
        async with desk(plain, f"sqlite:///{tmp_path}/log.db") as at:
            await at.session("ada")
            monkeypatch.setattr(store, "load_record", joined)
            assert [await log_by(at, text) for text in INJECTIONS[:2]] == [200, 200]

    run(scenario())
