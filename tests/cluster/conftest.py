"""One server for the tests of this folder that do not kill it, emptied before each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.nodes import Cluster, opened_cluster
from tests.support.faulty_proxy import FaultyProxy
from tests.support.postgres_server import PostgresServer, empty_log, running_server


@pytest.fixture(scope="module")
def running() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def server(running: PostgresServer) -> PostgresServer:
    empty_log(running)
    return running


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def cluster(server: PostgresServer, tmp_path: Path) -> Iterator[Cluster]:
    with opened_cluster(server, tmp_path) as cluster:
        yield cluster
