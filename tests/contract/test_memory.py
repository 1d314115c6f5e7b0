"""Every contract, on the memory store."""

import pytest

from turnlog.log import MemoryStore
from turnlog.testing import CONTRACTS, Contract


@pytest.mark.parametrize("contract", CONTRACTS, ids=str)
def test_contract(contract: Contract) -> None:
    contract.check(MemoryStore)
