"""`turnlog export` and `turnlog import`: the same bytes out and in, and nothing but data on stdout."""

import asyncio
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.harness import NO_SESSION, NOW_MS, Place, error, said, turn
from turnlog.cli.terminal import BAR_REFRESH_S, ProgressBar
from turnlog.cli.transfer import file_size_bytes
from turnlog.log import Log, SqliteStore

TERMINAL = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}


@pytest.fixture
def filled(place: Place) -> Place:
    """A log with three sessions: a turn, a closed one, an empty one."""
    place.session("sess_1", turn())
    place.session("sess_2", said("one", "two"), app="other")
    place.session("sess_3", [])
    return place


@pytest.fixture
def other(place: Place) -> Place:
    """A log that is not there yet."""
    return Place(place.path.with_name("other.db"))


def test_all_sessions_are_exported_the_oldest_first(filled: Place) -> None:
    result = filled.run("export")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.split("\n")
    assert (
        lines[0]
        == '{"type":"session","session_id":"sess_1","app":"tour","closed":false,"created_ms":1767875696789}'
    )
    assert (
        lines[14]
        == '{"type":"session","session_id":"sess_2","app":"other","closed":false,"created_ms":1767875696789}'
    )
    assert lines[17:] == [
        '{"type":"session","session_id":"sess_3","app":"tour","closed":false,"created_ms":1767875696789}',
        "",
    ]
    assert lines[1:14] == filled.run("tail", "sess_1", "--json").stdout.split("\n")[:-1]


def test_named_sessions_are_exported_once_each(filled: Place) -> None:
    one, two = (filled.run("export", name).stdout for name in ("sess_1", "sess_2"))
    assert filled.run("export", "sess_2", "sess_1", "sess_2").stdout == two + one


def test_an_export_goes_to_a_file(filled: Place, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    result = filled.run("export", "--output", str(file))
    assert (result.exit_code, result.output) == (0, "")
    assert file.read_bytes() == filled.run("export").stdout_bytes


def test_a_session_that_is_not_there_leaves_the_file_alone(filled: Place, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text("precious")
    assert error(filled.run("export", "sess_1", "sess_none", "-o", str(file))) == NO_SESSION
    assert file.read_text() == "precious"
    assert filled.run("export", "sess_1", "sess_none").stdout == ""


def test_damage_ends_an_export_in_one_line(filled: Place) -> None:
    filled.spoil("update event set frame = cast(replace(frame, 'one', 'two') as blob) where id = 'evt_0'")
    result = filled.run("export", "sess_2")
    assert result.stdout.count("\n") == 1
    assert error(result) == "sess_2 is damaged at seq 0 to 0: the event is not what was written"


def test_a_known_loss_is_said_beside_the_data(filled: Place) -> None:
    filled.lose("sess_2", 2, 4, "gone")
    result = filled.run("export", "sess_2")
    assert (result.exit_code, result.stdout.count("\n")) == (0, 3)
    assert result.stderr == "warning: lost, and not in the export: sess_2 seq 2 to 4: gone\n"
    assert filled.run("export", "sess_1").stderr == ""


def test_a_session_that_cannot_be_read_is_said_beside_the_others(filled: Place) -> None:
    filled.spoil("update session set rank = 7 where name = 'sess_2'")
    result = filled.run("export")
    assert (result.exit_code, b'"sess_2"' in result.stdout_bytes) == (0, False)
    assert result.stderr.startswith("warning: not in the export: sess_2 cannot be read ")


def test_an_import_keeps_every_byte_and_twice_is_harmless(filled: Place, other: Place) -> None:
    exported = filled.run("export", "sess_1", "sess_2").stdout_bytes
    first = other.run("import", input=exported)
    assert (first.exit_code, first.output) == (0, "15 events added, 0 known already\n")
    assert other.run("export").stdout_bytes == exported
    second = other.run("import", input=exported)
    assert (second.exit_code, second.output) == (0, "0 events added, 15 known already\n")
    assert other.run("export").stdout_bytes == exported
    assert other.run("verify").exit_code == 0


def test_an_import_adds_what_is_new(filled: Place, other: Place) -> None:
    lines = filled.run("export", "sess_1").stdout_bytes.split(b"\n")
    other.run("import", input=b"\n".join(lines[:5]))
    result = other.run("import", input=b"\n".join(lines))
    assert result.output == "9 events added, 4 known already\n"


def test_one_event_is_one_event(other: Place) -> None:
    other.session("sess_1", said("one"))
    exported = other.run("export").stdout_bytes
    third = Place(other.path.with_name("third.db"))
    assert third.run("import", input=exported).output == "1 event added, 0 known already\n"


def test_a_file_is_imported(filled: Place, other: Place, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    file.write_bytes(filled.run("export", "sess_2").stdout_bytes)
    assert other.run("import", str(file)).output == "2 events added, 0 known already\n"


def test_nothing_is_a_harmless_import(other: Place) -> None:
    assert other.run("import", input=b"").output == "0 events added, 0 known already\n"


@pytest.mark.parametrize(
    ("place_of_it", "line", "words"),
    [
        (1, b"no json", "line 2: JSON is malformed"),
        (2, b'{"type":"ui.message"}', "line 3: not an envelope"),
        (0, b"[]", "line 1: not an envelope: Expected `object`, got `array`"),
        (3, b'{"type":"session","session_id":"no"}', "line 4: Expected `str` matching regex"),
        (1, b"\x1b[2J\xff", "line 2: JSON is malformed"),
    ],
)
def test_a_wrong_line_is_named_and_nothing_of_its_batch_is_written(
    filled: Place, other: Place, place_of_it: int, line: bytes, words: str
) -> None:
    lines = filled.run("export", "sess_2").stdout_bytes.split(b"\n")
    lines.insert(place_of_it, line)
    assert error(other.run("import", input=b"\n".join(lines))).startswith(words)
    assert other.run("sessions", "--json").stdout == ""


def test_an_event_without_its_session_is_refused(filled: Place, other: Place) -> None:
    line = filled.run("tail", "sess_2", "--json").stdout_bytes
    assert "line 1: expected the line of session sess_2" in error(other.run("import", input=line))


def test_batches_before_a_wrong_line_stay_and_are_counted(place: Place, other: Place) -> None:
    place.session("sess_1", said(*map(str, range(700))))
    exported = place.run("export").stdout_bytes + b"wrong\n"
    result = other.run("import", input=exported)
    assert re.fullmatch(r"line 702: .*; 500 events before it were added", error(result))
    again = other.run("import", input=exported.removesuffix(b"wrong\n"))
    assert again.output == "200 events added, 500 known already\n"


def test_another_history_is_refused(filled: Place, other: Place) -> None:
    other.session("sess_2", said("something else"))
    exported = filled.run("export", "sess_2").stdout_bytes
    assert "the log has another event in the place of evt_0" in error(other.run("import", input=exported))
    assert other.run("tail").stdout.endswith("something else\n")


def test_a_line_without_end_is_refused(other: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnlog.cli.transfer.MAX_LINE_BYTES", 1 << 20)
    result = other.run("import", input=b"\n" + b"x" * (3 << 20))
    assert error(result).startswith("line 2: expected a line of less than 1 MiB")


def test_a_log_that_somebody_writes_is_refused(filled: Place) -> None:
    exported = filled.run("export").stdout_bytes

    async def refused(log: Log) -> str:
        result = await asyncio.to_thread(filled.run, "import", input=exported)
        return error(result)

    assert filled.work(refused) == "log.db is being written by another process; stop that one first"


def test_a_place_where_no_log_can_be_is_one_line(place: Place) -> None:
    place.path.write_text("a file, not a folder")
    line = error(place.run("import", "--log", f"{place.url}/log.db", input=b""))
    assert line.startswith("the log cannot be used: ")
    assert "log.db" in line


def test_a_file_that_is_not_there_is_refused(place: Place) -> None:
    result = place.run("import", "nothing.jsonl")
    assert result.exit_code == 2
    assert "'nothing.jsonl': No such file or directory" in result.stderr
    assert not place.path.exists()


# the bar


class Clock:
    """A time that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if stderr were a terminal."""
    for name, value in TERMINAL.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("terminal")
def test_a_bar_is_shown_when_it_takes_long(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with ProgressBar("exporting", 10, clock=clock) as meter:
        meter.advance(1)
        assert capsys.readouterr() == ("", "")
        clock.now = 1.0
        meter.advance(1)
        clock.now += BAR_REFRESH_S / 2
        meter.advance(1)
        clock.now += BAR_REFRESH_S
        meter.advance(4)
    out, err = capsys.readouterr()
    assert out == ""
    assert "exporting" in err
    assert "70%" in err


@pytest.mark.usefixtures("terminal")
def test_what_is_done_soon_has_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("exporting", 10, clock=Clock()) as meter:
        meter.advance(10)
    assert capsys.readouterr() == ("", "")


class Screen(io.BytesIO):
    """An output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def long_work(make: Callable[[Clock], ProgressBar]) -> None:
    clock = Clock()
    with make(clock) as meter:
        clock.now = 100
        meter.advance(1)


@pytest.mark.usefixtures("terminal")
def test_a_bar_never_mixes_with_data_on_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    long_work(lambda clock: ProgressBar("exporting", 10, Screen(), clock=clock))
    assert capsys.readouterr() == ("", "")
    long_work(lambda clock: ProgressBar("exporting", 10, io.BytesIO(), clock=clock))
    assert "10%" in capsys.readouterr().err


def test_there_is_no_bar_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    long_work(lambda clock: ProgressBar("exporting", 10, clock=clock))
    assert capsys.readouterr() == ("", "")


def test_the_length_of_a_file_is_known_and_of_a_pipe_not(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    with (tmp_path / "file").open("rb") as file:
        assert file_size_bytes(file) == 5
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert file_size_bytes(pipe) is None
    assert file_size_bytes(io.BytesIO(b"12345")) is None


def test_lines_from_a_terminal_are_not_waited_for(place: Place) -> None:
    primary, secondary = os.openpty()
    try:
        result = place.run("import", os.ttyname(secondary))
    finally:
        os.close(primary)
        os.close(secondary)
    assert result.exit_code == 2
    assert "expected a FILE, or lines on stdin" in result.stderr


def test_an_export_reads_beside_the_one_who_writes(filled: Place) -> None:
    exported = filled.run("export").stdout

    async def beside() -> str:
        writer = Log(SqliteStore(filled.path), clock=lambda: NOW_MS)
        try:
            return (await asyncio.to_thread(filled.run, "export")).stdout
        finally:
            await writer.close()

    assert asyncio.run(beside()) == exported


DRAFTS = """
{"type": "ui.message", "id": "evt_a", "ts": "2026-01-08T12:34:56.789Z", "session_id": "sess_9", "payload": {"text": "Hello"}}
{"type": "tool.call", "id": "evt_b", "ts": "...", "trace_id": "tr_1", "session_id": "sess_9", "payload": {"tool": "save", "args": {}}}
{"type": "tool.result", "id": "evt_c", "session_id": "sess_9", "payload": {"tool": "save", "ok": true, "result": 1, "error": null}}
"""  # noqa: E501  one line each


def test_envelopes_without_seq_are_imported_once_and_keep_their_time(other: Place) -> None:
    first = other.run("import", input=DRAFTS.encode())
    assert (first.exit_code, first.output) == (0, "3 events added, 0 known already\n")
    assert other.run("import", input=DRAFTS.encode()).output == "0 events added, 3 known already\n"
    assert other.run("import", input=DRAFTS.encode() * 2).output == "0 events added, 6 known already\n"
    message, call, result = map(json.loads, other.run("tail", "sess_9", "--json").stdout.splitlines())
    assert (message["seq"], message["origin"], message["ts"]) == (0, "ui", "2026-01-08T12:34:56.789Z")
    assert (call["trace_id"], call["origin"], call["ts"] > message["ts"]) == ("tr_1", "model", True)
    assert result["payload"]["call_id"] == call["payload"]["call_id"] == "evt_b"
    assert other.run("verify").exit_code == 0


def test_envelopes_without_seq_continue_the_session_whose_line_came_before(filled: Place) -> None:
    draft = b'{"type":"ui.message","id":"evt_d","session_id":"%b","payload":{"text":"%b"}}\n'
    line = b'{"type":"session","session_id":"sess_2","app":"other"}\n'
    lines = line + draft % (b"sess_2", b"more") + draft % (b"sess_8", b"new") + draft % (b"sess_2", b"more")
    assert filled.run("import", input=lines).output == "2 events added, 1 known already\n"
    [*_, last] = map(json.loads, filled.run("tail", "sess_2", "--json").stdout.splitlines())
    assert (last["id"], last["seq"]) == ("evt_d", 2)
    lines = draft % (b"sess_8", b"another")
    said = error(filled.run("import", input=lines))
    assert said.startswith("line 1: evt_d is the id of another event")


def test_an_envelope_without_seq_that_does_not_fit_is_named_by_its_line(other: Place) -> None:
    bad = DRAFTS.replace('"text": "Hello"', '"words": "Hello"')
    assert error(other.run("import", input=bad.encode())).startswith(
        "line 2: object missing required field text"
    )
    assert other.run("sessions", "--json").stdout == ""
