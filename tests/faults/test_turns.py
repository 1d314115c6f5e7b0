"""The sequences of the source documents' diagrams, with a death, a stop or a failure at every step.

An append is one step: what is in one batch is there or not. So a process dies before each of its appends, a
stop arrives behind each of them, the turn's time is over with each of them, and the model fails at each of
its calls, at once and in mid-text. Whatever happens, the log is one that `Ledger` takes, and the next turn
works.
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import pytest

from tests.support.agent_logs import body, lawful, told
from tests.support.agent_vectors import TRIES, VECTORS, Trouble, played
from turnlog.events import Envelope

Case = Mapping[str, Any]
each = pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["name"])


def at_every_step(case: Case, troubled: Callable[[int], Trouble]) -> list[tuple[Trouble, list[Envelope]]]:
    """Play a case with a trouble after 0, 1, 2, ... steps, until there is nothing left to trouble."""
    logs: list[tuple[Trouble, list[Envelope]]] = []
    for step in count():
        trouble = troubled(step)
        events = played(case, trouble, again=True)
        if not trouble.struck.is_set():
            break
        logs.append((trouble, events))
    assert logs
    return logs


def next_turn_works(events: list[Envelope]) -> bool:
    """Whether the last agent at the top came to its end by itself."""
    last = [event for event in events if event.type == "agent.end" and not event.depth][-1]
    return bool(body(last)["stop_reason"] == "end_turn")


@each
def test_who_dies_at_any_step_leaves_what_the_next_process_can_close(case: Case) -> None:
    for _, events in at_every_step(case, lambda step: Trouble(dies_after=step)):
        lawful(events)
        assert next_turn_works(events)


@each
def test_a_stop_after_any_step_closes_everything(case: Case) -> None:
    for _, events in at_every_step(case, lambda step: Trouble(stops_after=step + 1)):
        ledger = lawful(events)
        assert next_turn_works(events)
        assert set(ledger.ends) <= {"end_turn", "handoff", "max_steps", "cancelled", "error"}


@each
def test_time_that_is_over_at_any_step_ends_the_turn_or_comes_too_late(case: Case) -> None:
    ended = 0
    for _, events in at_every_step(case, lambda step: Trouble(late_after=step + 1)):
        ledger = lawful(events)
        assert next_turn_works(events)
        codes = [body(event)["code"] for event in events if event.type == "session.error"]
        assert codes.count("turn_timeout") == ("timeout" in ledger.ends)
        ended += "timeout" in ledger.ends
    assert ended


@pytest.mark.parametrize("after_batches", [0, 1], ids=["at once", "in mid-text"])
@each
def test_a_model_that_fails_once_is_asked_again_and_the_rest_is_as_it_was(
    case: Case, after_batches: int
) -> None:
    ends = [(line[1], line[3].get("result")) for line in case["events"] if line[0] == "agent.end"]
    for _, events in at_every_step(
        case, lambda step: Trouble(fails_at=step, after_batches=after_batches, retriable=True)
    ):
        lawful(events)
        assert next_turn_works(events)
        after = [(line[1], line[3].get("result")) for line in told(events) if line[0] == "agent.end"]
        assert set(ends) <= set(after)


@pytest.mark.parametrize("retriable", [False, True], ids=["for good", "again and again"])
@pytest.mark.parametrize("after_batches", [0, 1], ids=["at once", "in mid-text"])
@each
def test_a_model_that_fails_ends_its_agent_and_the_next_turn_works(
    case: Case, after_batches: int, retriable: bool
) -> None:
    for _, events in at_every_step(
        case,
        lambda step: Trouble(
            fails_at=step,
            fails_times=TRIES if retriable else 1,
            after_batches=after_batches,
            retriable=retriable,
        ),
    ):
        assert "error" in lawful(events).ends
        assert next_turn_works(events) or body(events[-1])["stop_reason"] == "error"
