"""Every contract, on the SQLite store."""

from pathlib import Path

import pytest

from turnlog.log import SqliteStore
from turnlog.testing import CONTRACTS, DURABLE_CONTRACTS, SHARED_CONTRACTS, Contract


@pytest.mark.parametrize("contract", [*CONTRACTS, *DURABLE_CONTRACTS], ids=str)
def test_contract(contract: Contract, tmp_path: Path) -> None:
    contract.check(lambda: SqliteStore(tmp_path / "log.db"))


@pytest.mark.parametrize("contract", SHARED_CONTRACTS, ids=str)
def test_shared_contract(contract: Contract, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "log.db")
    contract.check(lambda: store)
