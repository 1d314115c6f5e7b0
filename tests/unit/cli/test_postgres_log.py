"""The commands that read and maintain a log, on a PostgreSQL: the same output as on a SQLite log."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.support.postgres_server import PostgresServer, empty_log, running_server
from turnlog.cli import main
from turnlog.log import Log, find_store_opener, open_log
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


def fail(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, isinstance(result.exception, SystemExit)) == (1, True), result.output
    return result.output


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://ada:hush7@127.0.0.1:1/shop", "Connection refused; start PostgreSQL, or correct host"),
        (
            "postgresql://ada:hush7@127.0.0.1:1,127.0.0.2:2/shop",
            "port 1 failed: Connection refused; connection",
        ),
        ("postgresql://ada:hush7@nowhere.invalid/shop", "correct the host in the URL"),
        ("postgresql://ada:hush7@127.0.0.1:abc/shop", 'invalid integer value "abc"'),
        ("postgresql://ada:hush7@127.0.0.1/shop?colour=red", "got the parameter colour"),
        ("postgresql://ada:hush7%zz@127.0.0.1/shop", "write @ as %40, / as %2F and % as %25"),
        ("postgresql://ada:pass@hush7@127.0.0.1/shop", "write @ as %40"),
        ("postgresql://ada:pass/hush7@127.0.0.1/shop", "write @ as %40"),
        ("postgresql://ada:hush7@[::1/shop", "expected a URL like postgresql://user@host:5432/database"),
        ("postgresql://ada:hush7@[::1]x/shop", "expected a URL like postgresql://user@host:5432/database"),
        ("postgresql:ada:hush7", "expected a URL like postgresql://user@host:5432/database"),
        ("postgresq://ada:hush7@127.0.0.1/shop", "expected a log like sqlite:///turnlog.db"),
    ],
)
def test_a_url_that_opens_no_log_is_a_message_without_the_password(url: str, expected: str) -> None:
    output = fail("sessions", "--log", url)
    assert expected in output
    assert "hush7" not in output
    assert len(output.splitlines()) == 1


def test_what_the_engine_refuses_is_told_with_what_to_do(running: PostgresServer) -> None:
    running.execute("create role visitor login")
    running.execute("create database empty")
    url = running.url("empty").replace("turnlog@", "visitor@")
    assert "start a server" in fail("sessions", "--log", url)
    assert "grant create on the database" in fail("import", os.devnull, "--log", url)
    missing = fail("sessions", "--log", running.url("missing"))
    assert 'database "missing" does not exist; create the database, or correct its name' in missing
    running.execute("create schema turnlog authorization visitor", "empty")
    run("import", os.devnull, "--log", url)
    stranger = url.replace("visitor@", "stranger@")
    running.execute("create role stranger login")
    assert "use the role that made the tables" in fail("sessions", "--log", stranger)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_of_another_encoding_is_refused(running: PostgresServer, encoding: str) -> None:
    name = f"in_{encoding.lower()}"
    running.execute(f"create database {name} encoding '{encoding}' locale 'C' template template0")
    url = running.url(name)
    for command in (["import", os.devnull, "--log", url], ["cluster-check", url]):
        assert f"the database has the encoding {encoding}, and a log needs UTF8" in fail(*command)


def test_the_encoding_of_the_client_is_not_that_of_its_environment(
    running: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty_log(running)
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")

    async def fill() -> None:
        log = await open_log(running.url())
        await log.create("app 😀", SESSION)
        await log.close()

    asyncio.run(fill())
    assert "app 😀" in run("sessions", "--log", running.url()).output


def test_a_message_that_no_server_has_taken_makes_its_session_running(running: PostgresServer) -> None:
    empty_log(running)

    async def fill() -> None:
        log = await open_log(running.url())
        await log.create("app", SESSION)
        await log.append(SESSION, [user_message_event("hello")], wants_work=True)
        await log.close()

    asyncio.run(fill())
    assert " running " in run("sessions", "--log", running.url()).output


@pytest.mark.parametrize("command", ["link", "open"])
def test_a_sign_in_link_of_a_shared_log_is_refused_with_the_reason(command: str) -> None:
    assert "a server on PostgreSQL prints a link when it starts" in fail(
        command, "--log", "postgresql://db1/turnlog"
    )
