"""Every contract, on the SQLite store."""

from pathlib import Path

import pytest

from turnlog.log import SqliteStore
from turnlog.testing import CONTRACTS, DURABLE_CONTRACTS, Contract


@pytest.mark.parametrize("contract", [*CONTRACTS, *DURABLE_CONTRACTS], ids=str)
def test_contract(contract: Contract, tmp_path: Path) -> None:
    contract.check(lambda: SqliteStore(tmp_path / "log.db"))
