"""Every server of a turn with approvals is killed after every write, for each framework."""

from pathlib import Path

import pytest

from tests.faults.adapter_server import FRAMEWORKS, Framework
from tests.faults.test_adapters_outlive import CAN_NEST, MODULE, kill_everywhere
from tests.faults.test_turns_outlive import start_servers
from tests.soak.figures import Measure


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_turn_waits_or_is_closed_after_a_kill(
    memory_path: Path, framework: Framework, measure: Measure
) -> None:
    with start_servers(MODULE) as servers:
        outcomes = kill_everywhere(servers, memory_path, 1, framework)
    measure(f"every write, {framework}", **outcomes)


@pytest.mark.parametrize("framework", CAN_NEST)
def test_every_turn_whose_sub_agent_asks_waits_or_is_closed_after_a_kill(
    memory_path: Path, framework: Framework, measure: Measure
) -> None:
    with start_servers(MODULE) as servers:
        outcomes = kill_everywhere(servers, memory_path, 1, framework, is_nested=True)
    measure(f"every write, {framework}, sub-agent", **outcomes)
