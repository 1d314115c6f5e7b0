"""The commands that read and maintain a log, on a PostgreSQL: the same output as on a SQLite log."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.support.postgres_server import PostgresServer, empty_log, running_server
from turnlog.cli import main
from turnlog.log import Log, find_store_opener
from turnlog.testing.factories import (
    block_delta_event,
    block_end_event,
    block_start_event,
    durable_events,
    user_message_event,
)

SESSION = "sess_1"


@pytest.fixture(scope="module")
def running() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def logs(running: PostgresServer, tmp_path: Path) -> list[str]:
    """The same sessions in a SQLite log and in a PostgreSQL log."""
    empty_log(running)
    urls = [f"sqlite:///{tmp_path}/log.db", running.url()]

    async def fill(url: str) -> None:
        log = Log(find_store_opener(url)(url, writable=True), lambda: 1_767_875_696_000)
        await log.create("app", SESSION)
        await log.append(SESSION, [user_message_event("hello"), block_start_event("x")])
        await log.append(SESSION, [block_delta_event("x"), block_end_event("x"), *durable_events("a")])
        await log.put_blob(SESSION, b"data", "text/plain")
        await log.close()

    for url in urls:
        asyncio.run(fill(url))
    return urls


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result


def test_commands_print_what_they_print_for_a_sqlite_log(logs: list[str]) -> None:
    for command in (
        ["sessions"],
        ["tail", SESSION, "--json"],
        ["verify"],
        ["state", SESSION],
        ["rebuild"],
        ["prune", "--older-than", "0s"],
        ["tail", SESSION, "--json"],
        ["verify"],
    ):
        sqlite, postgres = [run(*command, "--log", url).output for url in logs]
        assert sqlite == postgres, command


def test_an_export_moves_sessions_between_the_two_logs(
    logs: list[str], running: PostgresServer, tmp_path: Path
) -> None:
    postgres = logs[1]
    original = run("export", "--log", postgres).output
    copy = f"sqlite:///{tmp_path}/copy.db"
    archive = tmp_path / "archive.jsonl"
    archive.write_text(original)
    run("import", str(archive), "--log", copy)
    assert run("export", "--log", copy).output == original

    empty_log(running)
    imported = run("import", str(archive), "--log", postgres).output
    assert run("export", "--log", postgres).output == original
    assert run("import", str(archive), "--log", postgres).output != imported  # it knows all events now
    assert "no damage found" in run("verify", "--log", postgres).output


def test_commands_that_need_a_file_say_so(logs: list[str]) -> None:
    result = CliRunner().invoke(main, ["backup", "copy.db", "--log", logs[1]])
    assert (result.exit_code, "use `turnlog export`" in result.output) == (2, True)
