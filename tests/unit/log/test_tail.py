"""The window of recent rows that followers share, and what several logs do to it."""

from collections.abc import Sequence

import pytest

from tests.unit.log.delegates import scenario
from turnlog.log import MemoryStore
from turnlog.log.checksums import make_row
from turnlog.log.records import Row, SessionRecord
from turnlog.log.tail import Tail
from turnlog.testing import SHARED_CONTRACTS, harness


def record(last: int, revision: int = 1, **changes: object) -> SessionRecord:
    return SessionRecord("sess_1", epoch="e", app="t", last=last, revision=revision).replace(**changes)


def rows(*seqs: int) -> list[Row]:
    return [make_row("sess_1", seq, b"1|0|0|||ui.message", b"data: {}\n\n") for seq in seqs]


def window(tail: Tail, after: int) -> list[int]:
    page = tail.page_after(after)
    return [row.seq for row in page] if page else []


@scenario
async def test_rows_that_follow_the_last_one_extend_the_window() -> None:
    tail = Tail(record(-1))
    tail.publish(record(1, 2), rows(0, 1))
    tail.publish(record(2, 3), rows(2))
    assert (window(tail, -1), window(tail, 1), tail.last) == ([0, 1, 2], [2], 2)


@scenario
async def test_a_commit_without_rows_says_how_far_another_log_has_come() -> None:
    tail = Tail(record(-1))
    tail.publish(record(3, 5, closed=True), [])
    assert (tail.last, tail.closed, tail.wakeup.count) == (3, True, 1)
    tail.publish(record(3, 6, closed=True), [])
    assert tail.wakeup.count == 1


@scenario
async def test_rows_that_were_read_with_a_record_extend_the_window() -> None:
    tail = Tail(record(-1))
    tail.publish(record(1, 2), rows(0, 1))
    tail.catch_up(record(5, 6), 0, rows(2, 3))
    assert (window(tail, -1), tail.last) == ([0, 1, 2, 3], 5)


@scenario
async def test_rows_after_those_of_another_log_replace_the_window() -> None:
    tail = Tail(record(-1))
    tail.publish(record(1, 2), rows(0, 1))
    tail.publish(record(4, 4), rows(4))
    assert (window(tail, 3), window(tail, 1), tail.last) == ([4], [], 4)


@scenario
async def test_rows_after_a_ring_of_another_log_replace_the_window() -> None:
    tail = Tail(record(-1))
    tail.publish(record(0, 2), rows(0))
    tail.note_foreign_commit(2)
    assert (window(tail, -1), window(tail, 0), tail.last) == ([0], [], 2)
    tail.publish(record(3, 4), rows(3))
    assert (window(tail, 0), window(tail, 2), tail.last) == ([], [3], 3)


@scenario
async def test_rows_of_an_import_that_leave_out_seqs_are_found_after_every_seq() -> None:
    tail = Tail(record(-1))
    imported = (0, 1, 4, 5, 9)
    tail.publish(record(9, 2), rows(*imported))
    for after in range(-1, 11):
        assert window(tail, after) == [seq for seq in imported if seq > after]


@scenario
async def test_known_rows_are_dropped() -> None:
    tail = Tail(record(-1))
    tail.publish(record(2, 2), rows(0, 1, 2))
    wakeups = tail.wakeup.count
    tail.publish(record(1, 1), rows(0, 1))
    assert (window(tail, -1), tail.last, tail.record.last) == ([0, 1, 2], 2, 2)
    assert tail.wakeup.count == wakeups


@scenario
async def test_late_rows_leave_the_last_seq_that_a_ring_has_named() -> None:
    tail = Tail(record(-1))
    tail.note_foreign_commit(5)
    tail.publish(record(3, 2), rows(3))
    assert (tail.last, window(tail, 2), window(tail, 3)) == (5, [3], [])


@scenario
async def test_record_is_stale_from_a_ring_until_a_read_that_began_after_it() -> None:
    tail = Tail(record(0))
    states = []
    tail.catch_up(record(0), 0)
    states.append(tail.is_current)
    tail.note_foreign_commit(1)
    tail.publish(record(0, 2), [])  # its own commit, before that of the other
    states.append(tail.is_current)
    tail.catch_up(record(0, 2), 0)  # a read that began before the ring
    states.append(tail.is_current)
    tail.catch_up(record(1, 3), 1)
    states.append(tail.is_current)
    assert (states, tail.record.revision) == ([True, False, False, True], 3)
    tail.publish(record(0, 2), [])
    assert tail.record.revision == 3, "an older record replaces no newer one"


@scenario
async def test_closing_and_a_new_epoch_wake_followers() -> None:
    closed, renewed = Tail(record(0)), Tail(record(0))
    closed.catch_up(record(0, 2, closed=True), 0)
    renewed.catch_up(record(0, 2, epoch="new"), 0)
    assert (closed.closed, closed.wakeup.count) == (True, 1)
    assert (renewed.epoch, renewed.wakeup.count) == ("", 1)


def test_control_followers_miss_rows_if_the_window_takes_any_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def take_any(tail: Tail, new_rows: Sequence[Row]) -> None:
        tail._rows.extend(new_rows)
        tail._cached_page = None
        tail.last = new_rows[-1].seq
        tail.wakeup.wake()

    store = MemoryStore()
    [contract] = [contract for contract in SHARED_CONTRACTS if contract.name == "followers_miss_nothing"]
    monkeypatch.setattr(harness, "CONTRACT_TIMEOUT_S", 2.0)
    monkeypatch.setattr(Tail, "_extend", take_any)
    with pytest.raises((AssertionError, TimeoutError)):
        contract.check(lambda: store)
