"""`turnlog cluster-check`: each finding on a real PostgreSQL, good and bad."""

from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from tests.support.postgres_server import PostgresServer, running_cluster, running_server
from turnlog.cli import main


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
