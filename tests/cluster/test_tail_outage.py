"""`turnlog tail --follow` while the database of its log is away, for longer than its reads are repeated."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.cluster.test_partition import opened, run_bounded
from tests.cluster.test_paused_writer import SESSION
from tests.support.faulty_proxy import FaultyProxy
from tests.support.postgres_server import PostgresServer
from turnlog.cli import tail
from turnlog.cli.tail import AWAY_MESSAGE, BACK_MESSAGE, follow_pages, print_tail
from turnlog.log import Row, reach
from turnlog.log.filter import EventFilter
from turnlog.log.postgres.store import PostgresStore
from turnlog.testing.closing import close_event
from turnlog.testing.factories import durable_events

PATIENCE_S = 0.1


def test_tail_says_that_its_database_is_away_and_back_and_goes_on(
    server: PostgresServer,
    proxy: FaultyProxy,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    defaults = PostgresStore.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "patience_s", PATIENCE_S)
    monkeypatch.setattr(PostgresStore, "reconcile_s", 0.05)
    monkeypatch.setattr(reach, "PING_INTERVAL_S", 0.02)
    monkeypatch.setattr(reach, "MAX_SILENCE_S", 1.0)
    monkeypatch.setattr(tail, "REACH_CHECK_S", 0.02)
    seqs: list[int] = []
    first_row = asyncio.Event()
    errors = ""

    def print_rows(rows: Sequence[Row]) -> None:
        seqs.extend(row.seq for row in rows)
        first_row.set()

    async def until(text: str, printing: asyncio.Task[bool]) -> None:
        nonlocal errors
        while text not in errors:
            assert not printing.done()
            await asyncio.sleep(0.02)  # between two looks at what was printed
            errors += capsys.readouterr().err

    async def run() -> None:
        async with opened(server.url()) as [log]:
            await log.create("cluster", SESSION)
            await log.append(SESSION, durable_events("a"))
            everything = EventFilter((), None)
            printing = asyncio.create_task(
                print_tail(proxy.url(), SESSION, "-1", follow_pages, everything, print_rows)
            )
            await first_row.wait()
            proxy.refuse()
            await until(AWAY_MESSAGE, printing)
            await log.append(SESSION, durable_events("b"))
            proxy.open()
            await until(BACK_MESSAGE, printing)
            await log.append(SESSION, durable_events("c"))
            await log.close_session(SESSION, [close_event()])
            assert await printing

    run_bounded(run())
    assert seqs == [0, 1, 2, 3]
    lines = errors.splitlines()  # on a busy machine an answer may be late: then it is away once more
    assert lines == [AWAY_MESSAGE, BACK_MESSAGE] * (len(lines) // 2)
