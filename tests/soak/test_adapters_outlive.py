"""Every server of a turn with approvals is killed after every write, for each framework."""

from pathlib import Path

import pytest

from tests.faults.adapter_server import FRAMEWORKS, Framework
from tests.faults.test_adapters_outlive import CAN_NEST, kill_everywhere
from tests.soak.figures import Measure


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_turn_waits_or_is_closed_after_a_kill(
    memory_path: Path, framework: Framework, measure: Measure
) -> None:
    measure(f"every write, {framework}", **kill_everywhere(memory_path, 1, framework))


@pytest.mark.parametrize("framework", CAN_NEST)
def test_every_turn_whose_sub_agent_asks_waits_or_is_closed_after_a_kill(
    memory_path: Path, framework: Framework, measure: Measure
) -> None:
    outcomes = kill_everywhere(memory_path, 1, framework, is_nested=True)
    measure(f"every write, {framework}, sub-agent", **outcomes)
