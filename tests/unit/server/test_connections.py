"""How many connections a server holds for a limit of files, and what the journal has when there are more."""

import resource
import sys
from typing import Any

import pytest

from turnlog.server.limits.connections import (
    MAX_OPEN_FILES,
    ConnectionBounds,
    ConnectionLimit,
    compute_bounds,
    raise_file_limit,
)


@pytest.mark.parametrize("files", [64, 256, 1024, 65_536])
def test_bounds_for_files_leave_room_for_a_reserve_and_for_other_files(files: int) -> None:
    most, with_reserve = compute_bounds(files)
    assert 0 < most <= files * 0.8
    assert most + 4 <= with_reserve <= files - 32


def test_bounds_for_1024_files_are_80_percent_and_a_reserve() -> None:
    assert compute_bounds(1024) == (819, 922)


def test_refusals_within_a_minute_are_one_line_in_the_journal(caplog: pytest.LogCaptureFixture) -> None:
    limit = ConnectionLimit(ConnectionBounds(5, 9))
    for now_s in (100.0, 101.0, 159.0, 160.0, 161.0):
        limit.record_refusal(now_s)
    assert [record.args for record in caplog.records] == [(1, 5), (3, 5)]


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [
        (1024, 4096, 4096),
        (4096, 4096, 4096),
        (1024, resource.RLIM_INFINITY, MAX_OPEN_FILES),
        (1024, MAX_OPEN_FILES * 2, MAX_OPEN_FILES),
        (MAX_OPEN_FILES * 2, MAX_OPEN_FILES * 4, MAX_OPEN_FILES * 2),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, MAX_OPEN_FILES),
    ],
)
def test_raise_file_limit_goes_to_the_hard_one(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, expected: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    assert raise_file_limit() == expected


def test_raise_file_limit_refused_by_the_system_keeps_the_soft_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_file_limit() == 256


def test_raise_file_limit_without_limits_of_the_system_is_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    assert raise_file_limit() == 1024


def test_silent_connections_beyond_half_of_all_close_the_longest_silent_one() -> None:
    limit, closed = ConnectionLimit(ConnectionBounds(6, 9)), list[int]()
    for number in (0, 1, 2, 0, 3, 4):
        limit.add_idle(number, lambda number=number: closed.append(number))  # type: ignore[misc]
    assert closed == [1, 2]
    limit.discard_idle(0)
    limit.add_idle(5, lambda: closed.append(5))
    assert closed == [1, 2]
