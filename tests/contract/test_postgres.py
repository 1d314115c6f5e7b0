"""Every contract, on the PostgreSQL store: each log has connections of its own, or a process of its own."""

from collections.abc import Iterator
from itertools import cycle
from typing import cast

import pytest

from tests.support.postgres_server import PostgresServer, empty_log, running_server
from tests.support.store_process import StoreProcess
from turnlog.log import Store
from turnlog.log.postgres.store import PostgresStore
from turnlog.testing import CONTRACTS, DURABLE_CONTRACTS, SHARED_CONTRACTS, Contract


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="module")
def processes() -> Iterator[list[StoreProcess]]:
    processes = [StoreProcess() for _ in range(3)]
    yield processes
    for process in processes:
        process.close()


@pytest.mark.parametrize("contract", [*CONTRACTS, *DURABLE_CONTRACTS, *SHARED_CONTRACTS], ids=str)
def test_contract(contract: Contract, server: PostgresServer) -> None:
    empty_log(server)
    contract.check(lambda: PostgresStore(server.url()))


@pytest.mark.parametrize("contract", SHARED_CONTRACTS, ids=str)
def test_shared_contract_with_three_processes(
    contract: Contract, server: PostgresServer, processes: list[StoreProcess]
) -> None:
    empty_log(server)
    takers = cycle(processes)
    contract.check(lambda: cast(Store, next(takers).open_store(server.url())))
