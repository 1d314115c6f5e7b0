"""Every contract, on the memory store."""

import pytest

from turnlog.log import MemoryStore
from turnlog.testing import CONTRACTS, SHARED_CONTRACTS, Contract


@pytest.mark.parametrize("contract", CONTRACTS, ids=str)
def test_contract(contract: Contract) -> None:
    contract.check(MemoryStore)


@pytest.mark.parametrize("contract", SHARED_CONTRACTS, ids=str)
def test_shared_contract(contract: Contract) -> None:
    store = MemoryStore()
    contract.check(lambda: store)
