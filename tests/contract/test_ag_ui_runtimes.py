"""The contract of runtimes with agents that are reached by AG-UI, behind real servers on loopback."""

import asyncio
from collections.abc import Callable

import pytest

from tests.support.loopback import LoopbackServers
from tests.support.runtimes.ag_ui import AG_UI_RUNTIMES, STOPS, PydanticAiOverAgUi
from tests.support.runtimes.served import Served
from turnlog.testing.runtimes import RuntimeContract, RuntimeUnderTest, contracts_for
from turnlog.testing.runtimes.harness import CONTRACT_TIMEOUT_S

MakeRuntime = Callable[[LoopbackServers], RuntimeUnderTest]


def serve_ag_ui(servers: LoopbackServers) -> RuntimeUnderTest:
    """A worker of the server asks the agent."""
    return Served(PydanticAiOverAgUi(servers))


ROWS = [
    (make_runtime, contract)
    for make_runtime in (*AG_UI_RUNTIMES, serve_ag_ui)
    for contract in contracts_for(make_runtime(LoopbackServers()))
    # a tool at the end of two connections begins before its call is in the log
    if make_runtime is PydanticAiOverAgUi or contract.name not in STOPS
]
IDS = [f"{getattr(make_runtime, '__name__', '')}-{contract}" for make_runtime, contract in ROWS]


@pytest.mark.parametrize(("make_runtime", "contract"), ROWS, ids=IDS)
def test_contract(make_runtime: MakeRuntime, contract: RuntimeContract) -> None:
    async def check() -> None:
        async with asyncio.timeout(CONTRACT_TIMEOUT_S), LoopbackServers() as servers:
            await contract.run(make_runtime(servers))

    asyncio.run(check())
