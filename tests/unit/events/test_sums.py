"""Sums of tokens and costs saturate, so that an agent can be ended whatever it reported."""

from sys import float_info

import pytest

from tests.support.written_logs import entry, scope
from turnlog.events import CATALOG, AgentEnd, AgentStart, AgentUsage, Cost, Usage
from turnlog.events.payload import MAX_COUNT
from turnlog.state.closing import build_closing_events
from turnlog.state.meters import Meters
from turnlog.state.tree import Tree
from turnlog.team.office import merge_agent_ends

MOST = Usage(input_tokens=MAX_COUNT, output_tokens=MAX_COUNT)
DEAR = Cost(total_cost=1e308, input_cost=1e308)
AT = scope("agt_1")


def test_usage_that_is_added_up_stays_a_count() -> None:
    small = Usage(input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_creation_tokens=4)
    more = Usage(input_tokens=MAX_COUNT, output_tokens=5, cache_read_tokens=6, cache_creation_tokens=7)
    assert small + more == Usage(
        input_tokens=MAX_COUNT, output_tokens=7, cache_read_tokens=9, cache_creation_tokens=11
    )


def test_cost_that_is_added_up_stays_finite() -> None:
    assert Cost(total_cost=float_info.max, input_cost=float_info.max) == DEAR + DEAR


def test_cost_that_is_added_up_is_rounded_to_millionths() -> None:
    assert (Cost(total_cost=0.1) + Cost(total_cost=0.2)).total_cost == 0.3


@pytest.mark.parametrize("usage", [
    AgentUsage(model="m", usage=MOST),
    AgentUsage(model="m", usage=Usage(input_tokens=1, output_tokens=1), cost=DEAR),
], ids=["tokens", "costs"])  # fmt: skip
def test_closing_of_an_agent_with_the_largest_sums_gives_events_that_can_be_built(usage: AgentUsage) -> None:
    tree = Tree()
    for seq, payload in enumerate([AgentStart(name="A", via="prompt"), usage, usage, usage]):
        tree.apply(*entry(payload, AT, seq))
    for item in build_closing_events(tree, "error", "It stopped.", keep_waiting=False):
        assert item.build(CATALOG, "evt_unused").id == item.id


def test_meters_with_the_largest_sums_saturate() -> None:
    meters = Meters()
    usage = AgentUsage(model="m", usage=MOST, cost=DEAR)
    for seq, payload in enumerate([AgentStart(name="A", via="prompt"), usage, usage, usage]):
        meters.apply(*entry(payload, AT, seq))
    seen = meters.visible_in([]).session
    assert seen is not None
    assert meters.session is not None
    for meter in (meters.session, seen):
        assert (meter.input_tokens, meter.cost_usd) == (MAX_COUNT, float_info.max)


def test_joined_ends_of_a_turn_saturate() -> None:
    end = AgentEnd(stop_reason="end_turn", steps=MAX_COUNT, usage=MOST, cost=DEAR)
    both = merge_agent_ends(end, end)
    assert (both.steps, both.usage, both.cost) == (MAX_COUNT, MOST, DEAR + DEAR)
