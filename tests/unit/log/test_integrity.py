"""Checksums, the chain, and the walk that passes on rows only while they are whole and follow each other."""

from collections.abc import Sequence

import pytest

from turnlog.events import Scope
from turnlog.log import Damage
from turnlog.log.checksums import RowVerifier, broken_chain_seqs, chain_hash, make_row, values_checksum
from turnlog.log.records import RawRow, SessionRecord, encode_meta

SESSION, OTHER = "sess_1", "sess_2"
HEAD = SessionRecord(SESSION, epoch="e", app="t", last=5, durable_count=6)


def stored(seq: int, rank: int | None = None, live: bool = False) -> RawRow:
    meta = encode_meta(seq + 1 if rank is None else rank, live, Scope(), "t")
    return make_row(SESSION, seq, meta, b"frame %d" % seq)


def walked(
    rows: Sequence[RawRow], head: SessionRecord = HEAD, lost: Sequence[Damage] = (), leaves_out: bool = False
) -> tuple[list[int], str]:
    """The seqs that are passed on, and the fault."""
    walk = RowVerifier(head, -1, 0, lost, allow_skipped=leaves_out)
    good, fault = walk.verify(rows)
    fault = fault or walk.verify_end()
    return [row[0] for row in good], str(fault).partition("at seq ")[2] if fault else ""


WHOLE = [stored(seq) for seq in range(6)]


def test_whole_rows_that_follow_each_other_pass() -> None:
    assert walked(WHOLE) == ([0, 1, 2, 3, 4, 5], "")


@pytest.mark.parametrize(
    "wrong",
    [
        (2, b"3|0|0||u", b"frame 2", WHOLE[2][3]),
        (2, WHOLE[2][1], b"frame 3", WHOLE[2][3]),
        (2, WHOLE[2][1], b"frame 2", WHOLE[2][3] ^ 1),
        (2, *WHOLE[3][1:]),
        make_row(OTHER, 2, WHOLE[2][1], b"frame 2"),
        (2, "3|0|0||t", b"frame 2", WHOLE[2][3]),
        (2, WHOLE[2][1], 7, WHOLE[2][3]),
        (2, WHOLE[2][1], "", WHOLE[2][3]),
        (2, WHOLE[2][1], b"frame 2", "x"),
        ("x", WHOLE[2][1], b"frame 2", WHOLE[2][3]),
    ],
)
def test_a_row_that_is_not_what_was_written_stops_the_walk(wrong: RawRow) -> None:
    assert walked([*WHOLE[:2], wrong, *WHOLE[3:]]) == ([0, 1], "2 to 2: the event is not what was written")


@pytest.mark.parametrize(
    ("gone", "passed", "told"),
    [
        ({0}, [], "0 to 0: events are missing"),
        ({2}, [0, 1], "2 to 2: events are missing"),
        ({2, 3}, [0, 1], "2 to 3: events are missing"),
        ({5}, [0, 1, 2, 3, 4], "5 to 5: the end of the session is missing"),
        ({3, 4, 5}, [0, 1, 2], "3 to 5: the end of the session is missing"),
    ],
)
def test_a_gap_stops_the_walk(gone: set[int], passed: list[int], told: str) -> None:
    assert walked([row for row in WHOLE if row[0] not in gone]) == (passed, told)


def test_what_replay_leaves_out_is_walked_over() -> None:
    rows = [stored(0, 1), stored(1, 1, live=True), stored(2, 1, live=True), stored(3, 2)]
    left_out = [(seq, meta, None if seq in (1, 2) else frame, crc) for seq, meta, frame, crc in rows]
    head = HEAD.replace(last=3, durable_count=2)
    assert walked(left_out, head, leaves_out=True) == ([0, 3], "")
    gap = [left_out[0], *left_out[2:]]
    assert walked(gap, head, leaves_out=True) == ([0], "1 to 1: events are missing")
    assert walked(left_out, head) == ([0], "1 to 1: the event is not what was written")


def test_replay_never_leaves_out_a_durable_row() -> None:
    rows = [(seq, meta, None if seq == 1 else frame, crc) for seq, meta, frame, crc in WHOLE]
    assert walked(rows, leaves_out=True) == ([0], "1 to 1: the event is not what was written")
    odd = [(seq, str(meta), None if seq == 1 else frame, crc) for seq, meta, frame, crc in WHOLE]
    assert walked([WHOLE[0], *odd[1:]], leaves_out=True)[0] == [0]


def test_pruned_rows_may_be_missing_if_only_live_ones_went() -> None:
    head = HEAD.replace(last=3, durable_count=2, pruned_through=2)
    assert walked([stored(0, 1), stored(3, 2)], head) == ([0, 3], "")
    assert walked([stored(0, 1), stored(3, 3)], head) == ([0], "1 to 2: events are missing")
    assert walked([stored(0, 1), stored(3, 1, live=True)], head) == ([0, 3], "")
    assert walked([stored(0, 1), stored(4, 2)], head.replace(last=4)) == ([0], "1 to 3: events are missing")


def test_a_known_loss_is_walked_over_though_the_row_is_still_there() -> None:
    lost = [Damage(SESSION, 2, 3, "")]
    assert walked(WHOLE, lost=lost) == ([0, 1, 4, 5], "")
    broken = (2, WHOLE[2][1], b"another frame", WHOLE[2][3])
    assert walked([*WHOLE[:2], broken, *WHOLE[3:]], lost=lost) == ([0, 1, 4, 5], "")
    assert walked([*WHOLE[:2], *WHOLE[4:]], lost=lost) == ([0, 1, 4, 5], "")
    assert walked(WHOLE[:4], lost=[Damage(SESSION, 4, 5, "")]) == ([0, 1, 2, 3], "")
    assert walked([*WHOLE[:1], *WHOLE[4:]], lost=lost) == ([0], "1 to 3: events are missing")


def test_a_store_that_cannot_go_on_says_from_where() -> None:
    assert RowVerifier(HEAD, 2, 3, []).unreadable_damage("a page is bad").args == (
        "sess_1 is damaged at seq 3 to 5: a page is bad",
    )
    assert RowVerifier(HEAD, 5, 6, []).unreadable_damage("a page is bad").last == 6


def test_the_chain_shows_what_a_checksum_of_its_own_would_hide() -> None:
    rows, chain = [], b""
    for seq in range(5):
        live = seq == 2
        row = make_row(SESSION, seq, encode_meta(seq, live, Scope(), "t"), b"frame %d" % seq)
        chain = chain if live else chain_hash(chain, row.frame)
        rows.append((row, None if live else chain))
    assert list(broken_chain_seqs(rows)) == []
    forged = rows[1][0]._replace(frame=b"another frame")
    assert list(broken_chain_seqs([rows[0], (forged, rows[1][1]), *rows[2:]])) == [1]
    assert list(broken_chain_seqs([rows[0], *rows[2:]])) == [3]
    assert list(broken_chain_seqs([*rows[:3], (rows[3][0], None), rows[4]])) == [3, 4]


def test_a_checksum_of_values_tells_their_kinds_apart() -> None:
    values = [(1, "a"), ("1", "a"), (1, b"a"), (None, "a"), (1, "a", None), ("a", 1)]
    assert len({values_checksum(*some) for some in values}) == len(values)
