"""A number names one contract, of a store or of a runtime: "contract 303" means one statement."""

from collections import Counter
from typing import Any

from turnlog.testing import CONTRACTS, DURABLE_CONTRACTS, SHARED_CONTRACTS
from turnlog.testing.runtimes import RUNTIME_CONTRACTS

ALL_CONTRACTS: list[Any] = [*CONTRACTS, *DURABLE_CONTRACTS, *SHARED_CONTRACTS, *RUNTIME_CONTRACTS]


def test_contract_number_is_used_once() -> None:
    numbers = Counter(contract.number for contract in ALL_CONTRACTS)
    assert [number for number, count in numbers.items() if count > 1] == []


def test_contract_name_is_used_once() -> None:
    names = Counter(contract.name for contract in ALL_CONTRACTS)
    assert [name for name, count in names.items() if count > 1] == []


def test_contract_says_what_it_promises() -> None:
    assert [str(contract) for contract in ALL_CONTRACTS if not contract.statement.strip()] == []
