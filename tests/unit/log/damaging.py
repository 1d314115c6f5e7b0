"""A log that is damaged on purpose, and all that can be read of it."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from turnlog.errors import SessionDamaged
from turnlog.log import Log, Row, SqliteStore
from turnlog.testing.factories import durable_events

SESSION, OTHER = "sess_1", "sess_2"
ROW = "where session = 1 and seq = 2"


def edit(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Log]:
    log = Log(SqliteStore(path), lambda: 1_767_875_696_000)
    try:
        yield log
    finally:
        await log.close()


async def fill(log: Log) -> dict[int, Row]:
    """Two sessions of six durable events; what was written."""
    for session in (SESSION, OTHER):
        await log.create("t", session)
        await log.append(session, durable_events(*range(6)))
    return {row.seq: row for row in await log.read(SESSION)}


async def readable(log: Log, after: int = -1) -> tuple[list[Row], list[SessionDamaged]]:
    """Everything that is handed out, and what is told on the way."""
    rows: list[Row] = []
    told: list[SessionDamaged] = []
    while len(told) < 10:
        try:
            page = await log.read(SESSION, after)
        except SessionDamaged as damage:
            told.append(damage)
            continue
        if not page:
            break
        rows += page
        after = page[-1].seq
    return rows, told


async def seqs(log: Log, after: int = -1) -> list[int]:
    return [row.seq for row in (await readable(log, after))[0]]
