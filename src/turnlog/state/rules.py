"""Rules: what follows from a state, said as events (000 calls it reconciliation).

A rule looks at the state alone: when it holds, it emits. `settle` lets rules speak until none has anything to
say. A round is the first rule that holds, in the order of the list; what it emits is folded into the state
before the next round. Rules of the phase `apply` speak after every batch, those of `submit` only after the
model's own events, when the others may speak too.

Nothing is appended here. Whoever does it (origin `app`, with the rule's name) gets the events in order, and
hands in `enter`, which gives each the envelope that it will have, so that reducers find its time and place.
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
MAX_ROUNDS = 100  # rounds; many times what a set needs that comes to rest, and still done in milliseconds


@dataclass(frozen=True, slots=True)
class Rule:
    """`when` and `emit` are pure functions of the state; what is emitted must make `when` false."""

    name: str
    phase: Phase
    when: Callable[[Any], bool]
    emit: Callable[[Any], Sequence[Payload]]


class EmittedEvent(NamedTuple):
    """An event of a rule, to be appended with the rule's name."""

    rule: str
    payload: Payload


class SettledState(NamedTuple):
    """The state after the rules have spoken, and what they said."""

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
    """Let the rules of a phase speak until none holds; `Unsettled` names those that do not stop.

    One that raises, or emits what `enter` refuses, is a `RuleFault` with its name.
    """
    heard = [rule for rule in rules if rule.phase in PHASES_TO_RUN[phase]]
    fired: list[str] = []
    emitted: list[EmittedEvent] = []
    while rule := next((rule for rule in heard if can_fire(rule, state)), None):
        if len(fired) == max_rounds:
            raise RulesDidNotConverge(
                fired[max_rounds // 2 :], max_rounds
            )  # by then, those that come to rest have done so
        fired.append(rule.name)
        with attribute_errors_to(rule):
            said = [EmittedEvent(rule.name, payload) for payload in rule.emit(state)]
            state = fold(reducers, ((make_envelope(event), event.payload) for event in said), state)
        emitted += said
    return SettledState(state, emitted)


def can_fire(rule: Rule, state: Any) -> bool:
    """Whether a rule has something to say."""
    with attribute_errors_to(rule):
        return rule.when(state)


@contextmanager
def attribute_errors_to(rule: Rule) -> Iterator[None]:
    """What goes wrong meanwhile is the fault of a rule."""
    try:
        yield
    except Exception as error:
        raise RuleError(f"the rule {rule.name} failed with {type(error).__name__}", rule.name) from error
