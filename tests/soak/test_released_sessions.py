"""10,000 sessions that were looked at, and 1,000 that were worked in: all that they took is given back."""

from pathlib import Path

from tests.scale.test_released_sessions import check_visit, look_and_leave, work_and_leave
from tests.soak.figures import Measure

SESSIONS = 10_000
WORKED_IN = 1_000


def test_10_000_sessions_that_were_looked_at_and_left_cost_nothing(
    memory_path: Path, measure: Measure
) -> None:
    visit = look_and_leave(memory_path / "log.db", SESSIONS)
    measure(
        f"{SESSIONS:,} sessions",
        before_mb=visit.before.memory_bytes / 1e6,
        held_mb=visit.held.memory_bytes / 1e6,
        after_mb=visit.after.memory_bytes / 1e6,
    )
    check_visit(visit, SESSIONS)
    assert visit.after.memory_bytes <= 1.1 * visit.before.memory_bytes


def test_1_000_sessions_that_were_worked_in_are_released(memory_path: Path, measure: Measure) -> None:
    before, after = work_and_leave(memory_path / "log.db", WORKED_IN)
    measure(f"{WORKED_IN:,} sessions", before_mb=before.memory_bytes / 1e6, after_mb=after.memory_bytes / 1e6)
    assert (after.runners, after.watches, after.tails, after.tasks) == (0, 0, 0, before.tasks)
