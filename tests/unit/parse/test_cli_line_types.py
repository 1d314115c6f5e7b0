"""What a line of a Claude CLI process is follows from its type and subtype; a good line is not hashed."""

import hashlib
from typing import Any

import pytest

from turnlog.events import AgentStart, ParseReject
from turnlog.parse import CliParser, rejects
from turnlog.parse.claude.lines import MAX_LINE_BYTES, Line, LineDecoder


def new_id(prefix: str) -> str:
    return f"{prefix}1"


def test_line_of_a_type_that_reads_like_a_subtype_is_kept_as_it_came() -> None:
    (said,) = CliParser(new_id).feed(b'{"type": "system.init"}\n')
    assert isinstance(said.payload, Line)
    assert said.payload.kind == "system.init"


def test_line_of_the_type_and_subtype_starts_an_agent() -> None:
    said = CliParser(new_id).feed(b'{"type": "system", "subtype": "init"}\n')
    assert [type(one.payload) for one in said] == [AgentStart]


def hashed_by(monkeypatch: pytest.MonkeyPatch, data: bytes) -> tuple[int, list[Any]]:
    """How often a hash is begun while lines are read, and the lines."""
    begun: list[None] = []

    def sha256() -> Any:
        begun.append(None)
        return hashlib.sha256()

    monkeypatch.setattr(rejects, "hashlib", type("counting", (), {"sha256": staticmethod(sha256)}))
    lines = LineDecoder()
    found = [*lines.feed(data), *lines.flush()]
    return len(begun), found


def test_lines_that_are_good_are_not_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hashed_by(monkeypatch, b'{"a": 1}\n\n{"b": 2}\n') == (0, [{"a": 1}, {"b": 2}])


def test_lines_that_are_bad_are_hashed_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    count, found = hashed_by(monkeypatch, '  "é"\n{"b": 2}\n[1'.encode())
    assert (count, [type(one) for one in found]) == (2, [ParseReject, dict, ParseReject])
    assert (found[0].length, found[0].sha256) == (5, hashlib.sha256('  "é"'.encode()).hexdigest())


def test_line_that_is_too_long_is_hashed_whole_however_it_is_cut() -> None:
    lines, piece = LineDecoder(), b"x" * (MAX_LINE_BYTES // 2 + 1)
    found = [*lines.feed(piece), *lines.feed(piece), *lines.feed(b"yz\n")]
    (reject,) = found
    assert isinstance(reject, ParseReject)
    assert reject.sha256 == hashlib.sha256(piece * 2 + b"yz").hexdigest()
    assert (reject.reason, reject.length) == ("too_long", 2 * len(piece) + 2)
