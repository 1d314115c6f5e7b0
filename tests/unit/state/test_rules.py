"""Rules to a fixed point: order, phases, what they emit, and sets that do not settle."""

from typing import Any, ClassVar

import pytest

from tests.support.written_logs import entry
from turnlog.errors import RulesDidNotConverge
from turnlog.events import Catalog, Envelope, Payload, Scope, Vocabulary
from turnlog.state.fold import Reducers
from turnlog.state.rules import EmittedEvent, Rule, SettledState, settle


class Consent(Payload, frozen=True, kw_only=True):
    pass


class Acknowledge(Payload, frozen=True, kw_only=True):
    id: str


class Present(Payload, frozen=True, kw_only=True):
    id: str


class Submit(Payload, frozen=True, kw_only=True):
    ORIGINS: ClassVar = frozenset({"app"})


class Note(Payload, frozen=True, kw_only=True):
    number: int


CATALOG = Catalog(Vocabulary("case", [Consent, Acknowledge, Present, Submit, Note]))
State = dict[str, Any]

REDUCERS: Reducers = {
    Acknowledge: lambda state, payload, at: {**state, "acknowledged": {payload.id: at.ts}},
    Present: lambda state, payload, at: {**state, "presented": {payload.id: at.ts}},
    Submit: lambda state, _, at: {**state, "submitted": at.seq},
    Note: lambda state, payload, _: {**state, "notes": [*state.get("notes", []), payload.number]},
}


def lacks(key: str) -> Any:
    return lambda state: state.get("consent") and key not in state


R1 = Rule("R1", "apply", lacks("acknowledged"), lambda _: [Acknowledge(id="credit_search_consent")])
R2 = Rule("R2", "apply", lacks("presented"), lambda _: [Present(id="pre_contract_summary")])
R3 = Rule("R3", "submit", lacks("submitted"), lambda _: [Submit()])


def enter(emitted: EmittedEvent) -> Envelope:
    return entry(emitted.payload, Scope(), 7, CATALOG)[0]


def settled(rules: list[Rule], state: State, phase: Any = "apply", cap: int = 100) -> SettledState:
    return settle(rules, REDUCERS, state, phase, enter, cap)


def said(found: SettledState) -> list[str]:
    return [emitted.rule for emitted in found.emitted]


def test_no_rule_that_holds_leaves_the_very_same_state() -> None:
    state: State = {}
    assert settled([R1, R2, R3], state) == ({}, [])
    assert settled([R1, R2, R3], state).state is state


def test_each_round_is_the_first_rule_that_holds_and_its_events_change_the_state() -> None:
    state = {"consent": True}
    found = settled([R2, R1], state)
    assert found.emitted == [
        EmittedEvent("R2", Present(id="pre_contract_summary")),
        EmittedEvent("R1", Acknowledge(id="credit_search_consent")),
    ]
    at = "2026-01-08T12:34:56.007Z"
    assert found.state["acknowledged"] == {"credit_search_consent": at}
    assert found.state["presented"] == {"pre_contract_summary": at}
    assert state == {"consent": True}


def test_what_is_settled_stays_so() -> None:
    once = settled([R1, R2, R3], {"consent": True}, "submit")
    assert settled([R1, R2, R3], once.state, "submit") == (once.state, [])


def test_submit_rules_speak_only_after_the_model_and_the_others_then_too() -> None:
    assert said(settled([R3, R1, R2], {"consent": True}, "apply")) == ["R1", "R2"]
    assert said(settled([R3, R1, R2], {"consent": True}, "submit")) == ["R3", "R1", "R2"]


def test_a_rule_may_speak_again_and_emit_several_events_at_once() -> None:
    twice = Rule(
        "twice", "apply", lambda state: len(state["notes"]) < 5, lambda _: [Note(number=1), Note(number=2)]
    )
    found = settled([twice], {"notes": [0]})
    assert found.state == {"notes": [0, 1, 2, 1, 2]}
    assert said(found) == ["twice"] * 4


@pytest.mark.parametrize("emit", [lambda _: [], lambda _: [Consent()]], ids=["nothing", "without a reducer"])
def test_a_rule_that_changes_nothing_is_named(emit: Any) -> None:
    stuck = Rule("stuck", "apply", lambda _: True, emit)
    with pytest.raises(RulesDidNotConverge, match=r"settle in 100 rounds; still matching: stuck$") as caught:
        settled([R1, stuck], {"consent": True})
    assert caught.value.rules == ("stuck",)  # R1 spoke once and was at rest


def test_rules_that_undo_each_other_are_named() -> None:
    ping = Rule("ping", "apply", lambda state: state["notes"][-1] == 0, lambda _: [Note(number=1)])
    pong = Rule("pong", "apply", lambda state: state["notes"][-1] == 1, lambda _: [Note(number=0)])
    with pytest.raises(RulesDidNotConverge) as caught:
        settled([pong, R2, ping], {"notes": [0], "consent": True}, cap=9)
    assert sorted(caught.value.rules) == ["ping", "pong"]


def test_the_cap_is_the_number_of_rounds() -> None:
    count = Rule("count", "apply", lambda state: len(state["notes"]) < 3, lambda _: [Note(number=1)])
    assert len(settled([count], {"notes": []}, cap=3).emitted) == 3
    with pytest.raises(RulesDidNotConverge):
        settled([count], {"notes": []}, cap=2)
