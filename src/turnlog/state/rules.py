"""Rules: events that follow from a state (000 calls it reconciliation).

A rule is a pure predicate and an emitter over the state. `settle` runs the first rule whose predicate holds,
in the order of the list, folds the events that it emitted, and repeats until no rule holds. Rules of the
phase `apply` run after every batch; rules of the phase `submit` run only after the model's own events.

Nothing is appended here. The caller appends the events in order (origin `app`, with the rule's name). Its
`make_envelope` gives each event the envelope that it will have, so that reducers find its time and seq.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from turnlog.errors import RuleError, RulesDidNotConverge
from turnlog.events import Envelope, Payload
from turnlog.state.fold import Reducers, fold

Phase = Literal["apply", "submit"]
PHASES_TO_RUN: dict[Phase, tuple[Phase, ...]] = {"apply": ("apply",), "submit": ("apply", "submit")}
MAX_ROUNDS = 100  # many times what a set needs that converges, and still done in milliseconds


@dataclass(frozen=True, slots=True)
class Rule:
    """`when` and `emit` are pure functions of the state. The emitted events must make `when` false."""

    name: str
    phase: Phase
    when: Callable[[Any], bool]
    emit: Callable[[Any], Sequence[Payload]]


class EmittedEvent(NamedTuple):
    """An event of a rule, to be appended with the rule's name."""

    rule: str
    payload: Payload


class SettledState(NamedTuple):
    """The state in which no rule holds, and the events that the rules emitted."""

    state: Any
    emitted: list[EmittedEvent]


def settle(
    rules: Sequence[Rule],
    reducers: Reducers,
    state: Any,
    phase: Phase,
    make_envelope: Callable[[EmittedEvent], Envelope],
    max_rounds: int = MAX_ROUNDS,
) -> SettledState:
    """Run the rules of a phase until none holds.

    Raise `RulesDidNotConverge` with the names of the rules that did not stop, and `RuleError` if a rule
    raises or emits an event that `make_envelope` refuses.
    """
    active_rules = [rule for rule in rules if rule.phase in PHASES_TO_RUN[phase]]
    rounds: list[str] = []  # the name of the rule in each round
    emitted: list[EmittedEvent] = []

    while rule := next((rule for rule in active_rules if can_fire(rule, state)), None):
        if len(rounds) == max_rounds:
            # Rules that converge have stopped in the first half.
            raise RulesDidNotConverge(rounds[max_rounds // 2 :], max_rounds)
        rounds.append(rule.name)
        with attribute_errors_to(rule):
            events = [EmittedEvent(rule.name, payload) for payload in rule.emit(state)]
            state = fold(reducers, ((make_envelope(event), event.payload) for event in events), state)
        emitted += events
    return SettledState(state, emitted)


def can_fire(rule: Rule, state: Any) -> bool:
    with attribute_errors_to(rule):
        return rule.when(state)


@contextmanager
def attribute_errors_to(rule: Rule) -> Iterator[None]:
    """Raise a `RuleError` with the rule's name for any exception inside."""
    try:
        yield
    except Exception as error:
        raise RuleError(f"the rule {rule.name} failed with {type(error).__name__}", rule.name) from error
