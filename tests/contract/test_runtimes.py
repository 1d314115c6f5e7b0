"""The contract of runtimes: a fake framework, our own loop, and real frameworks with offline models."""

import pytest

from tests.support.runtimes.fake import FakeFramework
from tests.support.runtimes.langgraph import LangGraph
from tests.support.runtimes.own_loop import OwnLoop
from tests.support.runtimes.pydantic_ai import PydanticAi
from turnlog.testing.runtimes import RuntimeContract, RuntimeUnderTest, contracts_for

RUNTIMES: list[RuntimeUnderTest] = [FakeFramework(), OwnLoop(), PydanticAi(), LangGraph()]
ROWS = [(runtime, contract) for runtime in RUNTIMES for contract in contracts_for(runtime)]


@pytest.mark.parametrize(
    ("runtime", "contract"), ROWS, ids=[f"{type(runtime).__name__}-{contract}" for runtime, contract in ROWS]
)
def test_contract(runtime: RuntimeUnderTest, contract: RuntimeContract) -> None:
    contract.check(runtime)
