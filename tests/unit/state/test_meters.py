"""What a session took, and nothing twice."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.support.folds import apply_events
from tests.support.written_logs import entry, log, scope, vector_log
from turnlog.events import (
    AgentEnd,
    AgentStart,
    AgentUsage,
    Cost,
    Payload,
    Scope,
    ToolCall,
    ToolResult,
    Usage,
)
from turnlog.state.meters import Meters, elapsed_ms
from turnlog.state.tree import Tree

VECTORS = Path(__file__).parents[2] / "vectors" / "state" / "meters.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["cases"]
AGENT = scope("agt_1")
START = AgentStart(name="Guide", via="prompt")
COST = Cost(total_cost=0.3)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_vector(case: dict[str, Any]) -> None:
    report = apply_events(Meters(), vector_log(case["events"])).report()
    assert report == {name: case[name] for name in ("session", "turns", "agents")}


def test_an_agents_numbers_are_the_sums_that_its_end_carries() -> None:
    spent = [
        AgentUsage(model="m", usage=Usage(input_tokens=number, output_tokens=1), cost=Cost(total_cost=0.1))
        for number in range(3)
    ]
    items = log((START, AGENT), *((usage, AGENT) for usage in spent))
    end = apply_events(Tree(), items).open["agt_1"].build_end("end_turn")
    meters = apply_events(Meters(), [*items, entry(end, AGENT, len(items))])
    agent = meters.agents["agt_1"]
    assert end.usage is not None
    assert end.cost is not None
    assert (agent.completions, agent.input_tokens, agent.cost_usd) == (3, 3, 0.3)
    assert (end.steps, end.usage.input_tokens, end.cost.total_cost) == (3, 3, 0.3)
    assert meters.turns["tr_1"].output_tokens == 3


def test_a_call_is_forgotten_with_its_agent() -> None:
    call, result = ToolCall(call_id="c1", tool="t", args={}), ToolResult(call_id="c1", tool="t", ok=True)
    meters = apply_events(
        Meters(), log((START, AGENT), (call, AGENT), (AgentEnd(stop_reason="error"), AGENT))
    )
    assert meters.unanswered_calls == {}
    meters.apply(*entry(result, AGENT, 3))
    assert meters.agents["agt_1"].calls == 0


@pytest.mark.parametrize(
    ("later", "lasted"),
    [
        ("2026-01-08T12:34:57.001Z", 1001),
        ("2026-01-09T12:34:56.000Z", 86_400_000),
        ("2026-01-08T12:34:55.999Z", 0),
        ("2026-99-99T99:99:99.999Z", 0),
    ],
)
def test_time_between_events_is_never_negative_and_never_fails(later: str, lasted: int) -> None:
    assert elapsed_ms("2026-01-08T12:34:56.000Z", later) == lasted


def test_a_date_that_no_calendar_has_ends_an_agent_all_the_same() -> None:
    ended, payload = entry(AgentEnd(stop_reason="end_turn"), AGENT, 1)
    late = structs.replace(ended, ts="2026-02-30T00:00:00.000Z")
    meters = apply_events(Meters(), [entry(START, AGENT), (late, payload)])
    assert meters.agents["agt_1"].duration_ms == 0


def test_who_is_in_some_channels_gets_their_turns_and_the_sums_of_these() -> None:
    def turn(number: int, channel: str | None) -> list[tuple[Payload, Scope]]:
        at = structs.replace(scope(f"agt_{number}", trace_id=f"tr_{number}"), channel=channel)
        spent = AgentUsage(model="m", usage=Usage(input_tokens=10**number, output_tokens=1), cost=COST)
        return [(START, at), (spent, at), (AgentEnd(stop_reason="end_turn"), at)]

    meters = apply_events(Meters(), log(*turn(0, None), *turn(1, "seller"), *turn(2, "buyer")))
    report = meters.visible_in({"buyer", "guest"}).report()
    assert (list(report["turns"]), list(report["agents"])) == (["tr_0", "tr_2"], ["agt_0", "agt_2"])
    whole = report["session"]
    assert (whole["input_tokens"], whole["cost_usd"], whole["agents"], whole["turns"]) == (101, 0.6, 2, 2)
    assert "seller" not in str(report)
    assert meters.visible_in({"buyer", "seller"}).report() == meters.report()
    assert Meters().visible_in(()).report() == Meters().report()
    private = apply_events(Meters(), log(*turn(1, "seller")))
    nothing = {"began": private.report()["session"]["began"], "turns": 0, "turn_ms": 0}
    assert private.visible_in({"buyer"}).report() == {"session": nothing, "turns": {}, "agents": {}}


def test_fold_without_events_has_no_meters_for_an_event() -> None:
    envelope, _ = entry(AgentEnd(stop_reason="end_turn"), AGENT, 0)
    assert list(Meters().meters_for(envelope)) == []
