"""Every server of every turn is killed after every write, and the next one continues or closes the turn."""

from pathlib import Path

import pytest

from tests.faults.test_turns_outlive import (
    answer_between,
    close_everywhere,
    continue_everywhere,
    kill_twice,
    stop_everywhere,
)
from tests.faults.turn_server import QUESTIONS, Question
from tests.soak.figures import Measure

each = pytest.mark.parametrize("question", QUESTIONS)


@each
def test_every_turn_goes_on_and_ends_once_after_a_kill(
    memory_path: Path, question: Question, measure: Measure
) -> None:
    cancelled = continue_everywhere(memory_path, 1, question=question)
    measure(f"{len(list(memory_path.iterdir())) - 1} servers", **cancelled)


@each
def test_every_turn_goes_on_and_ends_once_after_a_stop(
    memory_path: Path, question: Question, measure: Measure
) -> None:
    stop_everywhere(memory_path, 1, question=question)
    measure(f"{len(list(memory_path.iterdir())) - 1} servers")


@each
def test_every_answer_that_arrives_while_no_server_runs_is_acted_on(
    memory_path: Path, question: Question, measure: Measure
) -> None:
    measure("every write", answers=answer_between(memory_path, 1, question))


@each
def test_every_turn_of_an_application_that_closes_is_closed(
    memory_path: Path, question: Question, measure: Measure
) -> None:
    measure("every write", closed=close_everywhere(memory_path, 1, question))


@each
def test_every_turn_whose_server_is_killed_twice_ends_once(
    memory_path: Path, question: Question, measure: Measure
) -> None:
    measure("every write", **kill_twice(memory_path, 1, question))
