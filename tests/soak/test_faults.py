"""Faults in full: 200 kills of writers, 4,000 flipped bits, a kill at every line of a turn."""

from pathlib import Path

import pytest

from tests.faults.test_cli_process import each, kill_process, kill_server
from tests.faults.test_flips import flips_in_a_closed_log, flips_in_a_log_whose_writer_died, quiet
from tests.faults.test_kill import killed
from tests.soak.figures import Measure

LOGS, LIVES = 4, 50  # every kill is followed by a look at the whole log: it should not grow for ever
TIMES = 200

__all__ = ["quiet"]  # a fixture


def test_200_writers_killed_in_mid_append_lose_double_and_tear_nothing(
    tmp_path: Path, measure: Measure
) -> None:
    books = killed(tmp_path, LOGS, LIVES)
    found, absent = (sum(getattr(book, name) for book in books) for name in ("found", "absent"))
    measure(
        f"{LOGS * LIVES} kills",
        acknowledged=sum(book.kept for book in books),
        unheard_and_there=found,
        unheard_and_absent=absent,
    )
    assert found, "no kill fell between a commit and its acknowledgement"
    assert absent, "no kill fell before a commit"


def test_flips_in_a_closed_log(memory_path: Path, measure: Measure) -> None:
    reported = flips_in_a_closed_log(memory_path, TIMES, 3)
    measure(f"{10 * TIMES:,} flips", reported=reported.total())
    assert reported[""] > 5 * TIMES, "the flips do not hit what is read"


def test_flips_in_a_log_whose_writer_died(memory_path: Path, measure: Measure) -> None:
    reported = flips_in_a_log_whose_writer_died(memory_path, TIMES, 4)
    measure(f"{10 * TIMES:,} flips", reported=reported.total())
    assert reported["-wal"] > 6 * TIMES, "the flips do not hit what is read"


@each
def test_a_process_that_is_killed_at_every_line_leaves_nothing_open(
    texts: list[str], tmp_path: Path, measure: Measure
) -> None:
    measure(f"{kill_process(texts, 1, tmp_path)} kills")


@pytest.mark.parametrize("both", [False, True], ids=["the server", "both"])
@each
def test_who_is_killed_at_every_line_leaves_what_the_next_server_can_close(
    texts: list[str], both: bool, memory_path: Path, measure: Measure
) -> None:
    measure(f"{kill_server(texts, both, 1, memory_path)} kills")
