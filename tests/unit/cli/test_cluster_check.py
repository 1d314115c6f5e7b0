"""`turnlog cluster-check`: each finding on a real PostgreSQL, good and bad."""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import psycopg
import pytest
from click.testing import CliRunner, Result

from tests.support.connection_pooler import running_pooler
from tests.support.postgres_server import PostgresServer, running_cluster, running_server
from turnlog.cli import main
from turnlog.log.postgres import inspection


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


def check(url: str) -> Result:
    return CliRunner().invoke(main, ["cluster-check", url])


def test_a_server_without_fsync_and_standbys_is_an_error_that_says_what_to_do(server: PostgresServer) -> None:
    result = check(server.url())
    assert result.exit_code == 1
    lines = result.output.split("\n")
    assert "ERROR    fsync: off: a power cut may lose or damage the log" in lines
    assert "         set fsync = on" in lines
    assert "warning  quorum: no standby: a failover may lose acknowledged events" in lines
    assert "ok       notify: a NOTIFY of one connection reaches another" in lines
    assert "ok       pooler: none in the way" in lines
    assert "ok       checksums: on" in lines


def test_a_role_without_rights_and_synchronous_commit_is_told(server: PostgresServer) -> None:
    server.execute("create role guest login; alter role guest set synchronous_commit = 'remote_write'")
    server.execute("revoke create on database postgres from public")
    result = check(server.url().replace("turnlog@", "guest@"))
    assert "ERROR    rights: the role may not create the schema turnlog" in result.output
    assert "warning  quorum: synchronous_commit is remote_write for this role" in result.output


def test_a_quorum_that_nothing_fulfils_is_an_error(server: PostgresServer) -> None:
    server.set_option("synchronous_standby_names", "'ANY 1 (absent)'")
    try:
        assert "every commit waits" in check(server.url()).output
    finally:
        server.set_option("synchronous_standby_names", "''")


def test_few_connections_are_told(server: PostgresServer) -> None:
    with running_server(max_connections="15") as small:
        output = check(small.url()).output
    assert "warning  connections:" in output
    assert "raise max_connections: each process needs 4" in output


def test_a_server_without_a_free_connection_is_a_message() -> None:
    with running_server(max_connections="8") as small, ExitStack() as held:
        small.execute("create role plain login")
        url = small.url().replace("turnlog@", "plain@")
        for _ in range(5):  # three are reserved for superusers
            held.enter_context(psycopg.connect(url))
        result = check(url)
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert "raise max_connections, or stop a program that uses the database" in result.output


def test_a_clock_that_differs_is_told(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(time=lambda: time.time() + 10)
    monkeypatch.setattr(inspection, "time", clock)
    output = check(server.url()).output
    assert re.search(r"warning  clocks: this machine and the engine differ by \d+\.\d s", output)
    assert "synchronise the clocks of all machines, as with NTP" in output


def test_a_cluster_with_a_quorum_of_two_standbys_is_good() -> None:
    with running_cluster(2, fsync="on") as [primary, *_]:
        primary.set_option("synchronous_standby_names", "'ANY 1 (s1, s2)'")
        while not primary.execute("select 1 from pg_stat_replication where sync_state = 'quorum' offset 1"):
            pass
        result = check(primary.url())
        primary.execute("create role guest login")
        seen_by_guest = check(primary.url().replace("turnlog@", "guest@")).output
        primary.execute("grant pg_read_all_stats to guest")
        seen_by_monitor = check(primary.url().replace("turnlog@", "guest@")).output
    assert (result.exit_code, "ERROR" in result.output, "warning" in result.output) == (0, False, False)
    assert "ok       quorum: 2 synchronous standbys" in result.output
    assert "this role may not see which standbys are connected" in seen_by_guest
    assert "every commit waits" not in seen_by_guest
    assert "ok       quorum: 2 synchronous standbys" in seen_by_monitor


def test_another_address_and_an_engine_out_of_reach_are_messages(server: PostgresServer) -> None:
    assert "expected a URL like postgresql://" in check("sqlite:///turnlog.db").output
    result = check("postgresql://turnlog@127.0.0.1:1/postgres")
    assert (result.exit_code, result.output.startswith("Error: PostgreSQL cannot be used")) == (1, True)


def test_a_pooler_in_transaction_mode_is_an_error_and_one_in_session_mode_is_good(
    server: PostgresServer,
) -> None:
    with running_pooler(server.port, "transaction") as pooler:
        output = check(pooler.url()).output
        assert "ERROR    pooler: a pooler changes connections between statements" in output
        assert "ERROR    notify: no NOTIFY arrives: readers would wait for seconds" in output
    with running_pooler(server.port, "session") as pooler:
        output = check(pooler.url()).output
        assert "ok       pooler: one in session mode" in output
        assert "ok       notify: a NOTIFY of one connection reaches another" in output


def test_limits_of_the_role_and_of_the_database_count(server: PostgresServer) -> None:
    server.execute("create role limited login connection limit 7")
    server.execute("create database small owner limited connection limit 5")
    output = check(server.url("small").replace("turnlog@", "limited@")).output
    assert "warning  connections: 3 left, enough for 0 processes" in output
    assert "raise the connection limit of the database: each process needs 4" in output
    server.execute("alter database small connection limit 100")
    output = check(server.url("small").replace("turnlog@", "limited@")).output
    assert "warning  connections: 5 left, enough for 1 processes" in output
    assert "raise the connection limit of the role: each process needs 4" in output


def test_connections_of_other_roles_count_for_a_role_that_may_not_see_them(server: PostgresServer) -> None:
    server.execute("create role plain login")
    url = server.url().replace("turnlog@", "plain@")
    [before] = re.findall(r"connections: (\d+) left", check(url).output)
    with ExitStack() as held:
        for _ in range(7):
            held.enter_context(psycopg.connect(server.url()))
        [after] = re.findall(r"connections: (\d+) left", check(url).output)
    assert int(before) - int(after) == 7


def test_a_standby_alone_is_refused_with_what_to_do() -> None:
    with running_cluster(1) as [primary, standby]:
        result = check(standby.url())
        both = check(standby.url().replace("/postgres", f",127.0.0.1:{primary.port}/postgres"))
    assert result.exit_code == 1
    assert "session is read-only; name the primary in the URL, or all hosts" in result.output
    assert "ok       notify" in both.output
