"""The high-water mark beside the database."""

from pathlib import Path

import pytest

from turnlog.log.sqlite.watermark import FIRST_SLOT_OFFSET, GROW_SLOTS, SLOT, Watermark, WatermarkFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db.mark"


def test_it_remembers_the_last_seq_of_each_session_after_its_process(path: Path) -> None:
    mark = WatermarkFile(path, writable=True)
    mark.reserve(1)
    mark.reserve(2)
    assert (mark.get(1), mark.get(2), mark.commit_count) == (None, None, 0)
    mark.write_commit({1: Watermark(41, 1, "sess_1"), 2: Watermark(1 << 40, 7, "sess_1")})
    mark.write_commit({1: Watermark(42, 2, "sess_1")})
    assert [number for number, _ in mark.watermarks()] == [1, 2]
    mark.close()
    again = WatermarkFile(path, writable=True, sessions=2)
    assert (again.get(1), again.get(2), again.commit_count) == (
        Watermark(42, 2, "sess_1"),
        Watermark(1 << 40, 7, "sess_1"),
        2,
    )
    again.clear(1)
    assert (again.get(1), [number for number, _ in again.watermarks()]) == (None, [2])
    assert not again.is_damaged
    again.close()


def test_it_says_nothing_about_sessions_it_never_saw(path: Path) -> None:
    mark = WatermarkFile(path, writable=True)
    assert [mark.get(number) for number in (1, GROW_SLOTS, 10**9)] == [None, None, None]
    mark.close()


def test_it_grows_with_the_sessions_and_their_number(path: Path) -> None:
    mark = WatermarkFile(path, writable=True)
    for number in (1, GROW_SLOTS - 1, GROW_SLOTS, 5 * GROW_SLOTS):
        mark.reserve(number)
        mark.write_commit({number: Watermark(number, 1, "sess_1")})
    assert [number for number, _ in mark.watermarks()] == [1, GROW_SLOTS - 1, GROW_SLOTS, 5 * GROW_SLOTS]
    mark.close()


def test_a_mark_that_was_lost_makes_room_for_the_sessions_there_are(path: Path) -> None:
    mark = WatermarkFile(path, writable=True, sessions=3 * GROW_SLOTS)
    assert not mark.is_damaged
    mark.write_commit({3 * GROW_SLOTS: Watermark(7, 1, "sess_1")})
    assert mark.get(3 * GROW_SLOTS) == Watermark(7, 1, "sess_1")
    mark.close()


def test_a_reader_sees_what_is_set_and_follows_a_file_that_grows(path: Path) -> None:
    writer = WatermarkFile(path, writable=True, sessions=1)
    reader = WatermarkFile(path, writable=False)
    writer.reserve(1)
    writer.write_commit({1: Watermark(5, 1, "sess_1")})
    assert (reader.get(1), reader.commit_count) == (Watermark(5, 1, "sess_1"), 1)
    writer.reserve(2 * GROW_SLOTS)
    writer.write_commit({2 * GROW_SLOTS: Watermark(6, 1, "sess_1")})
    assert (reader.get(2 * GROW_SLOTS), reader.commit_count) == (Watermark(6, 1, "sess_1"), 2)
    reader.close()
    writer.close()


def test_a_slot_with_a_wrong_bit_says_nothing(path: Path) -> None:
    mark = WatermarkFile(path, writable=True, sessions=1)
    mark.reserve(1)
    mark.write_commit({1: Watermark(1000, 3, "sess_1")})
    mark.close()
    good = path.read_bytes()
    read = {}
    for place in range(SLOT.size):
        data = bytearray(good)
        data[FIRST_SLOT_OFFSET + SLOT.size + place] ^= 4
        path.write_bytes(data)
        mark = WatermarkFile(path, writable=True, sessions=1)
        read[place] = mark.get(1)
        mark.close()
    assert {place: slot for place, slot in read.items() if slot is not None} == {}
    path.write_bytes(good)
    mark = WatermarkFile(path, writable=True, sessions=1)
    assert mark.get(1) == Watermark(1000, 3, "sess_1"), "control: without a wrong bit the slot is read"
    mark.close()


@pytest.mark.parametrize("content", [b"", b"turn", b"something else, of some length" * 10, b"\0" * 100_000])
def test_a_damaged_file_is_told_and_made_anew(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    mark = WatermarkFile(path, writable=True, sessions=3)
    assert mark.is_damaged
    assert (mark.commit_count, mark.get(1)) == (0, None)
    mark.write_commit({1: Watermark(8, 1, "sess_1")})
    assert mark.get(1) == Watermark(8, 1, "sess_1")
    mark.close()
    again = WatermarkFile(path, writable=False)
    assert not again.is_damaged
    again.close()
