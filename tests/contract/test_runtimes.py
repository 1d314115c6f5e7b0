"""The contract of runtimes: a fake framework, our own loop, and real frameworks with offline models.

Those of frameworks run again served by a worker, and by one that loses the first answer to every request.
"""

import pytest

from tests.support.runtimes.claude_sdk import ClaudeSdk, DeferringClaudeSdk
from tests.support.runtimes.fake import FakeFramework
from tests.support.runtimes.langgraph import LangGraph
from tests.support.runtimes.openai_agents import OpenAiAgents
from tests.support.runtimes.own_loop import OwnLoop
from tests.support.runtimes.pydantic_ai import PydanticAi
from tests.support.runtimes.served import Served
from turnlog.testing.runtimes import RuntimeContract, RuntimeUnderTest, contracts_for

FRAMEWORKS: list[RuntimeUnderTest] = [
    FakeFramework(),
    PydanticAi(),
    LangGraph(),
    OpenAiAgents(),
    ClaudeSdk(),
    DeferringClaudeSdk(),
]
RUNTIMES: list[RuntimeUnderTest] = [
    OwnLoop(),
    *FRAMEWORKS,
    *(Served(framework) for framework in FRAMEWORKS),
    Served(FakeFramework(), loses_answers=True),
    Served(PydanticAi(), loses_answers=True),
    Served(ClaudeSdk(), loses_answers=True),
]
ROWS = [(runtime, contract) for runtime in RUNTIMES for contract in contracts_for(runtime)]


def name_of(runtime: RuntimeUnderTest) -> str:
    return str(runtime) if isinstance(runtime, Served) else type(runtime).__name__


@pytest.mark.parametrize(
    ("runtime", "contract"), ROWS, ids=[f"{name_of(runtime)}-{contract}" for runtime, contract in ROWS]
)
def test_contract(runtime: RuntimeUnderTest, contract: RuntimeContract) -> None:
    contract.check(runtime)
