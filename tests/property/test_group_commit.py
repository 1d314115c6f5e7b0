"""A group of jobs leaves in a store what its jobs leave one by one: the same outcomes, rows and records."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from turnlog.events import Event
from turnlog.log import MemoryStore, SessionRecord, SqliteStore
from turnlog.log.jobs import (
    ANY_POSITION,
    AppendRequest,
    CloseSession,
    CreateSession,
    ExpectedPosition,
    FindEvents,
    Job,
    JobOutcome,
    JobResult,
)
from turnlog.testing.closing import close_event
from turnlog.testing.factories import (
    block_delta_event,
    block_end_event,
    block_start_event,
    durable_event,
    user_message_event,
)

SESSIONS = ("sess_1", "sess_2")
MAX_PAGE_BYTES = 1 << 20

Store = MemoryStore | SqliteStore
chances = st.integers(0, 1 << 32)  # of a generator of its own: hypothesis likes short lists too much


def make_event(random: Random) -> Event:
    number = random.randrange(30)
    block = random.choice("xy")
    makers: Sequence[Callable[[], Event]] = (
        lambda: durable_event(f"e{number}"),
        lambda: block_delta_event(block, number),
        lambda: block_start_event(block),
        lambda: block_end_event(block),
        lambda: user_message_event(f"m{number}"),
    )
    return random.choices(makers, [4, 4, 1, 1, 1])[0]()


def make_append(random: Random) -> AppendRequest:
    """Make an append: half of them expect nothing of the session."""
    session = random.choice(SESSIONS)
    ts_ms = random.randint(1_000, 1_003)
    events = tuple(make_event(random) for _ in range(random.choice([1, 1, 1, 2, 3])))
    if random.random() < 0.5:
        return AppendRequest(session, events, ts_ms)
    positions = [ANY_POSITION, ExpectedPosition(random.randint(-1, 5)), ExpectedPosition(durable_count=3)]
    return AppendRequest(
        session,
        events[: random.randrange(4)],
        ts_ms,
        random.choices(positions, [4, 1, 1])[0],
        random.choice([None, None, 0, 1, 2]),
        random.random() < 0.3,
        random.choice([None, None, events[0].id]),
    )


def make_group(chance: int) -> list[Job]:
    """Make a group of some appends; now and then with a job of another kind."""
    random = Random(chance)
    group: list[Job] = [make_append(random) for _ in range(random.randint(2, 12))]
    session = random.choice(SESSIONS)
    others: Sequence[Job] = (
        FindEvents(session, (make_event(random).id,)),
        CloseSession(session, (close_event(),), 1_003, ANY_POSITION, None),
    )
    for other in others:
        if random.random() < 0.2:
            group.insert(random.randint(0, len(group)), other)
    return group


groups = st.builds(make_group, chances)


def describe(outcome: JobOutcome) -> object:
    """Return what a caller gets: the value of a result, or the refusal."""
    return outcome.value if isinstance(outcome, JobResult) else (type(outcome), str(outcome))


def commit_groups(store: Store, jobs: Sequence[Sequence[Job]]) -> list[object]:
    created = [
        CreateSession(SessionRecord(name, epoch="g0000000", app="t", created_ms=5)) for name in SESSIONS
    ]
    store.commit(created)
    return [describe(outcome) for group in jobs for outcome in store.commit(group)]


def published_rows(store: Store, group: Sequence[Job]) -> dict[str, list[int]]:
    """Return the seqs of the rows in the outcomes of a group, as the log publishes them, by session."""
    seqs: dict[str, list[int]] = {name: [] for name in SESSIONS}
    for job, outcome in zip(group, store.commit(group), strict=True):
        if isinstance(outcome, JobResult):
            seqs[job.session_id] += [row.seq for row in outcome.rows]
    return seqs


def contents(store: Store) -> object:
    pages = {name: list(store.read(name, -1, None, MAX_PAGE_BYTES)) for name in SESSIONS}
    replays = {name: list(store.read(name, -1, -1, MAX_PAGE_BYTES)) for name in SESSIONS}
    return pages, replays, {name: store.info(name) for name in SESSIONS}, store.due_leases(1 << 40, None, 10)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_group_leaves_what_its_jobs_leave_one_by_one(kind: str) -> None:
    @examples(200)
    @given(groups)
    def check(group: list[Job]) -> None:
        with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
            open_store = MemoryStore if kind == "memory" else partial(SqliteStore, Path(folder) / "group.db")
            together = open_store()
            outcomes = commit_groups(together, [group])
            group_contents = contents(together)
            together.close()

            open_store = MemoryStore if kind == "memory" else partial(SqliteStore, Path(folder) / "single.db")
            single = open_store()
            assert outcomes == commit_groups(single, [[job] for job in group])
            assert group_contents == contents(single)
            single.close()

    check()


@examples(200)
@given(groups)
def test_outcomes_of_a_group_have_each_new_row_once_and_in_order(group: list[Job]) -> None:
    store = MemoryStore()
    commit_groups(store, [])
    published = published_rows(store, group)
    for name in SESSIONS:
        assert published[name] == [row.seq for row in store.read(name, -1, None, MAX_PAGE_BYTES)]
