"""`turnlog tail`: what it prints, what it leaves out, and that a log cannot control the terminal."""

import asyncio
import io
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from tests.support.limits import HANG_S
from tests.support.tables import for_each_row
from tests.support.transact import transact
from tests.unit.cli.harness import NO_SESSION, NOW_MS, TURN, Place, error, no_log, said, turn
from turnlog.cli.describe import DESCRIBERS, describe_payload, short_json
from turnlog.cli.log_access import INTERRUPT_EXIT_CODE, run_command
from turnlog.cli.tail import follow_pages, format_row, print_tail, read_pages
from turnlog.cli.terminal import CONTROL_CHARACTERS, escape_controls, escape_json, make_console, write_json
from turnlog.events import CORE, EventType, Scope, UnknownPayload
from turnlog.log import Damage, Log, Row, SqliteStore, envelope_json
from turnlog.log.filter import EventFilter, type_matches
from turnlog.log.records import encode_meta
from turnlog.vocabularies import FULL_CATALOG

SHOWN = """\
    0 12:34:56.789 ui.message                      Rome
    1 12:34:56.789 agent.start        Guide        by prompt, scripted
    2 12:34:56.789 block.start        Guide        text
    3 12:34:56.789 block.delta        Guide        Let me
    4 12:34:56.789 block.delta        Guide        see.
    5 12:34:56.789 block.end          Guide        complete
    6 12:34:56.789 assistant.message  Guide        Let me see.
    7 12:34:56.789 tool.call          Guide        scout {"city":"Rome"}
    8 12:34:56.789 agent.start          Scout      by call
    9 12:34:56.789 tool.progress        Scout      half way
   10 12:34:56.789 agent.end            Scout      end_turn, 1 step: dusk
   11 12:34:56.789 tool.result        Guide        scout -> "dusk"
   12 12:34:56.789 agent.end          Guide        end_turn, 2 steps
"""
COLOUR = re.compile(r"\x1b\[[\d;]*3\dm")


@pytest.fixture
def toured(place: Place) -> Place:
    """A log with one session: the whole turn."""
    place.session("sess_1", turn())
    return place


def seqs(output: str) -> list[int]:
    return [int(line.split()[0]) for line in output.split("\n")[:-1]]


def test_every_event_is_one_readable_line(toured: Place) -> None:
    result = toured.run("tail", "sess_1")
    assert (result.exit_code, result.stderr) == (0, "")
    assert re.sub(" +\n", "\n", result.stdout) == SHOWN


def test_without_a_session_the_newest_is_shown(toured: Place) -> None:
    toured.session("sess_0", said("the newest"))
    assert toured.run("tail").stdout.endswith("the newest\n")


def test_the_log_can_be_named_instead_of_the_environment(toured: Place) -> None:
    other = Place(toured.path.with_name("other.db"))
    other.session("sess_other", said("elsewhere"))
    assert toured.run("tail", "--log", other.url).stdout.endswith("elsewhere\n")


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--after", "9"], [10, 11, 12]),
        (["--after", "12"], []),
        (["--after", "9.0"], [9, 10, 11, 12]),
        (["--after", "end"], []),
        (["--type", "tool"], [7, 9, 11]),
        (["--type", "tool.call"], [7]),
        (["--type", "to"], []),
        (["--type", "ui", "--type", "agent.end"], [0, 10, 12]),
        (["--depth", "0"], [0, 1, 2, 3, 4, 5, 6, 7, 11, 12]),
        (["--depth", "1"], list(range(13))),
        (["--depth", "0", "--type", "agent", "--after", "1"], [12]),
    ],
)
def test_only_what_is_wanted_is_shown(toured: Place, arguments: list[str], wanted: list[int]) -> None:
    result = toured.run("tail", *arguments)
    assert (result.exit_code, seqs(result.stdout)) == (0, wanted)
    as_json = toured.run("tail", "--json", *arguments).stdout
    assert [json.loads(line)["seq"] for line in as_json.split("\n")[:-1]] == wanted


@for_each_row(
    ("type", "wanted", "same"),
    [("tool.call", "tool", True), ("tool", "tool", True), ("toolbox.open", "tool", False), ("ui", "", False)],
)
def test_a_first_word_means_its_whole_family(type: str, wanted: str, same: bool) -> None:
    assert type_matches(type, wanted) is same


def test_json_is_what_is_stored_byte_for_byte(toured: Place) -> None:
    async def lines(log: Log) -> bytes:
        return b"".join(envelope_json(row) + b"\n" for row in await log.read("sess_1"))

    assert toured.run("tail", "--json").stdout_bytes == toured.work(lines)


def test_a_depth_below_zero_is_refused(toured: Place) -> None:
    assert toured.run("tail", "--depth", "-1").exit_code == 2


@pytest.mark.parametrize("text", ["-2", "9" * 30, "NaN", "41:", "k3x9:41"])
def test_tail_after_a_text_that_is_no_cursor_is_refused(toured: Place, text: str) -> None:
    result = toured.run("tail", "--after", text)
    assert result.exit_code == 2
    assert "expected a seq, a cursor like 41:k3x9, or end" in result.stderr


def test_tail_after_a_cursor_of_the_wire_prints_the_events_after_it(toured: Place) -> None:
    epoch = toured.work(lambda log: log.info("sess_1")).epoch
    assert seqs(toured.run("tail", "--after", f"9:{epoch}").stdout) == [10, 11, 12]
    assert seqs(toured.run("tail", "--after", f"9.3:{epoch}").stdout) == [9, 10, 11, 12]
    wrong = toured.run("tail", "--after", "9:older")
    assert error(wrong) == f"9:older is no cursor of this log, its epoch is {epoch}; use --after -1"


def test_a_session_that_is_not_there_is_one_line(toured: Place) -> None:
    assert error(toured.run("tail", "sess_none")) == NO_SESSION
    assert error(toured.run("tail", "-f", "sess_none")) == NO_SESSION


def test_a_log_without_a_session_is_one_line(place: Place) -> None:
    place.work(lambda log: log.sessions())
    assert error(place.run("tail")) == "this log has no sessions yet"


@pytest.mark.parametrize("command", ["tail", "sessions", "export", "verify"])
def test_a_log_that_is_not_there_is_one_line_and_is_not_made(place: Place, command: str) -> None:
    assert error(place.run(command)) == no_log(place)
    assert list(place.path.parent.iterdir()) == []


@pytest.mark.parametrize("command", ["tail", "sessions", "export", "verify", "import"])
def test_a_file_that_is_no_log_is_one_line(place: Place, command: str) -> None:
    place.path.write_bytes(b"no database at all, but long enough to look like one " * 100)
    assert error(place.run(command)) == "the log cannot be used: file is not a database"


@pytest.mark.parametrize("command", ["tail", "sessions", "export", "verify", "import"])
def test_a_log_in_memory_is_refused(place: Place, command: str) -> None:
    result = place.run(command, "--log", "memory:")
    assert result.exit_code == 2
    assert "a log in memory is visible to its own process only" in result.stderr


def test_a_url_that_names_no_log_is_one_line(place: Place) -> None:
    assert "expected a log like sqlite:///turnlog.db" in error(place.run("tail", "--log", "log.db"))


# what a person sees


@for_each_row("kind", list(FULL_CATALOG), ids=lambda kind: kind.name)
def test_every_type_is_said_in_few_words(kind: EventType) -> None:
    payload = kind.decoder.decode(json.dumps(kind.payload_class.EXAMPLE))
    text = describe_payload(payload)
    assert text
    assert "None" not in text
    assert text == DESCRIBERS.get(kind.payload_class, short_json)(payload)


def test_every_type_of_the_core_has_its_own_words() -> None:
    assert {kind.payload_class for kind in CORE} <= set(DESCRIBERS)


@for_each_row(
    ("type", "data", "text"),
    [
        ("ui.message", {"text": "Rome", "speaker": "Ada"}, "Ada: Rome"),
        (
            "ui.action",
            {"action": {"kind": "input.submit", "values": {}}},
            '{"kind":"input.submit","values":{}}',
        ),
        ("agent.start", {"name": "A", "via": "prompt", "tools": ["x", "y"]}, "by prompt, tools x y"),
        ("agent.end", {"stop_reason": "error"}, "error"),
        (
            "agent.usage",
            {"model": "m", "usage": {"input_tokens": 1, "output_tokens": 2}},
            "m, tokens 1 in, 2 out",
        ),
        (
            "agent.usage",
            {
                "model": "m",
                "usage": {"input_tokens": 1, "output_tokens": 2},
                "cost": {"total_cost": 0.5},
                "duration_ms": 0,
            },
            "m, tokens 1 in, 2 out, 0.5000 USD, 0 ms",
        ),
        ("block.end", {"block_id": "b", "status": "complete"}, "complete"),
        ("block.end", {"block_id": "b", "status": "aborted", "text": "Based"}, "aborted: Based"),
        ("tool.call", {"call_id": "c", "tool": "t", "args": {}, "incomplete": '{"a'}, 't {"a'),
        ("tool.call", {"call_id": "c", "tool": "t", "args": {}, "executor": "frontend"}, "t (frontend) {}"),
        ("tool.result", {"call_id": "c", "tool": "t", "ok": False, "result": 1}, "t failed: 1"),
        (
            "tool.result",
            {"call_id": "c", "tool": "t", "ok": False, "error": {"code": "BAD", "message": "no"}},
            "t failed: BAD, no",
        ),
        ("process.end", {"process": "server", "reason": "server_shutdown"}, "server, server_shutdown"),
        ("context.compact", {}, "? to ? tokens"),
        ("agent.checkpoint", {"source": "f", "version": "2", "blob": "b"}, "f 2"),
        (
            "artifact.write",
            {"filename": "a", "path": "b/a", "is_new": False, "size_bytes": 1},
            "b/a, 1 byte",
        ),
    ],
)
def test_the_words_follow_what_is_there(type: str, data: dict[str, object], text: str) -> None:
    payload = FULL_CATALOG.get_event_type(type).decoder.decode(json.dumps(data))
    assert describe_payload(payload) == text


def test_an_event_nobody_here_knows_is_shown_as_it_is(place: Place) -> None:
    place.session("sess_1", [])
    line = b'{"type":"session","session_id":"sess_1"}\n' + envelope("tour.note_trip", b'{"city":"Rome"}')
    assert place.run("import", input=line).exit_code == 0
    assert place.run("tail").stdout.endswith('tour.note_trip                  {"city":"Rome"}\n')


def envelope(type: str, payload: bytes, **fields: object) -> bytes:
    """A line of a log."""
    rest = {"ts": "2026-01-08T12:34:56.789Z", "session_id": "sess_1", "origin": "model", **fields}
    head = json.dumps({"type": type, "id": "evt_1", "seq": 0, **rest}, ensure_ascii=False)
    return head[:-1].encode() + b',"payload":' + payload + b"}\n"


def row(type: str, payload: bytes, **fields: object) -> Row:
    """An event as a store hands it out."""
    return Row(
        0, encode_meta(1, False, Scope(), type), b"data: " + envelope(type, payload, **fields) + b"\n", 0
    )


CONTROLLING = [
    "\x1b]0;title\x07\x1b[2J",
    "\r\nError: fake",
    "\x9b31m",
    "\x7f\x08\x08",
    "\u202egnp.exe\u2066",
    "\u2028\u2029",
    "\U000e0041",
]


@pytest.mark.parametrize("text", CONTROLLING, ids=ascii)
def test_a_log_cannot_control_the_terminal(place: Place, text: str) -> None:
    place.session("sess_1", said(text))
    shown = place.run("tail").stdout
    assert (shown.count("\n"), CONTROL_CHARACTERS.findall(shown[:-1])) == (1, [])
    assert shown.endswith(escape_controls(text) + "\n")
    assert CONTROL_CHARACTERS.findall(text), "the rule would see it"


def test_names_cannot_control_the_terminal_either() -> None:
    line = format_row(row("my\x9btype", b"{}", agent_id="agt_1", agent_name="a\u202eb")).plain
    assert "my\\x9btype" in line
    assert "a\\u202eb" in line
    assert CONTROL_CHARACTERS.findall(line) == []


def test_ordinary_text_is_left_alone() -> None:
    text = "Grüße, 12 €, 東京, 👩‍🚀, שלום, C:\\new"
    assert escape_controls(text) == text


@for_each_row("text", CONTROLLING, ids=ascii)
def test_json_on_a_terminal_says_the_same_without_control(text: str) -> None:
    stored_line = json.dumps({"text": text}, ensure_ascii=False).encode()
    escaped = escape_json(stored_line)
    assert json.loads(escaped) == {"text": text}
    assert CONTROL_CHARACTERS.findall(escaped.decode()) == []


class Screen(io.BytesIO):
    """An output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@for_each_row(("output", "wanted"), [(Screen(), b'"\\u009b"\n'), (io.BytesIO(), b'"\xc2\x9b"\n')])
def test_json_is_changed_for_a_terminal_only(output: io.BytesIO, wanted: bytes) -> None:
    write_json(output, '"\x9b"'.encode())
    assert output.getvalue() == wanted


def test_bytes_that_are_no_text_are_shown_all_the_same() -> None:
    assert describe_payload(UnknownPayload(msgspec.Raw(b'{"text":"\xff"}'))).startswith('{"text":"')
    assert escape_json(b'"\xff"') == '"\ufffd"'.encode()


def test_a_long_text_is_cut(place: Place) -> None:
    place.session("sess_1", said("x" * 100_000))
    line = place.run("tail").stdout
    assert line.endswith("x…\n")
    assert len(line) < 1000


def test_a_depth_from_a_foreign_log_does_not_fill_the_line() -> None:
    assert len(format_row(row("agent.end", b"{}", agent_id="agt_1", depth=10**9)).plain) < 200


def test_an_agent_without_a_name_is_shown_by_its_id() -> None:
    assert " agt_1 " in format_row(row("agent.end", b"{}", agent_id="agt_1")).plain


def test_an_output_that_knows_only_ascii_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr("sys.stdout", narrow)
    make_console().print("21 °C")
    narrow.seek(0)
    assert narrow.buffer.read() == b"21 \\xb0C\n"


def test_an_output_that_is_no_file_is_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    monkeypatch.setattr("sys.stdout", text)
    make_console().print("21 °C")
    assert text.getvalue() == "21 °C\n"


# colours


def test_there_is_no_colour_outside_a_terminal(toured: Place) -> None:
    assert "\x1b" not in toured.run("tail").output


def test_a_terminal_gets_colours_unless_they_are_unwanted(toured: Place) -> None:
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    assert len(COLOUR.findall(toured.run("tail", env=terminal).stdout)) >= len(TURN)
    assert COLOUR.findall(toured.run("tail", env={**terminal, "NO_COLOR": "1"}).stdout) == []


@for_each_row(
    ("type", "data"),
    [
        ("session.error", {"code": "c", "message": "m"}),
        ("tool.result", {"call_id": "c", "tool": "t", "ok": False}),
        ("agent.end", {"stop_reason": "error"}),
    ],
)
def test_what_failed_is_red(type: str, data: dict[str, object]) -> None:
    assert format_row(row(type, json.dumps(data).encode())).spans[-1].style == "red"


# following


def test_following_a_closed_session_ends(toured: Place) -> None:
    toured.close_session("sess_1")
    result = toured.run("tail", "-f")
    assert (result.exit_code, len(seqs(result.stdout))) == (0, 13)


def test_following_a_closed_session_that_lost_its_end_ends(place: Place) -> None:
    place.session("sess_1", said("one"))
    place.lose("sess_1", 1, 3)
    place.close_session("sess_1")
    result = place.run("tail", "-f")
    assert (result.exit_code, seqs(result.stdout)) == (0, [0])


def following(place: Place, *steps: Callable[[Log], Awaitable[object]]) -> list[int]:
    """Follow a session; each time something was shown, the writer takes its next step. The seqs shown."""

    async def follow() -> list[int]:
        writer, shown, taken = Log(SqliteStore(place.path), clock=lambda: NOW_MS), list[int](), list[Any]()

        def show(rows: Sequence[Row]) -> None:
            shown.extend(row.seq for row in rows)
            taken.append(asyncio.ensure_future(steps[len(taken)](writer)))

        try:
            async with asyncio.timeout(HANG_S):
                assert await print_tail(place.url, None, "-1", follow_pages, EventFilter(), show)
                await asyncio.gather(*taken)
        finally:
            await writer.close()
        return shown

    return asyncio.run(follow())


def test_following_shows_what_comes_until_the_session_is_closed(place: Place) -> None:
    place.session("sess_1", said("one"))
    shown = following(
        place,
        lambda log: log.append("sess_1", said("two", "three", first=1)),
        lambda log: log.close_session("sess_1"),
    )
    assert shown == [0, 1, 2]


def test_following_goes_on_when_the_epoch_changes(place: Place) -> None:
    place.session("sess_1", said("one"))

    async def lose_and_go_on(log: Log) -> None:
        await transact(log, lambda store: store.quarantine(Damage("sess_1", 1, 3, "test")))
        await log.append("sess_1", said("five", first=9))

    assert following(place, lose_and_go_on, lambda log: log.close_session("sess_1")) == [0, 4]


def test_ctrl_c_ends_without_a_word() -> None:
    async def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        run_command(interrupted())
    assert ended.value.code == INTERRUPT_EXIT_CODE


# damage


def test_damage_is_named_and_the_rest_is_shown(place: Place) -> None:
    place.session("sess_1", said("one", "two", "three", "four"))
    place.spoil_event(1)
    result = place.run("tail")
    assert result.exit_code == 1
    assert seqs(result.stdout) == [0, 2, 3]
    assert result.stderr == "sess_1 seq 1: the event is not what was written\n"


def test_a_known_loss_is_named(place: Place) -> None:
    place.session("sess_1", said("one", "two"))
    place.session("sess_2", said("three"))
    place.lose("sess_1", 2, 4, "the end \x1b[31mis missing")
    place.lose("sess_2", 2, 4, "this is another session")
    result = place.run("tail", "sess_1")
    assert (result.exit_code, seqs(result.stdout)) == (0, [0, 1])
    assert result.stderr == "sess_1 seq 2 to 4: the end \\x1b[31mis missing\n"
    assert "missing" not in place.run("tail", "sess_1", "--after", "4").stderr


@pytest.mark.parametrize("follow", [(), ("-f",)])
def test_a_session_whose_own_record_is_damaged_is_one_line(place: Place, follow: tuple[str, ...]) -> None:
    place.session("sess_1", said("one"))
    place.spoil("update session set app = 'other'")
    assert "the session's own record is not what was written" in error(place.run("tail", *follow))


def test_what_is_stored_is_read_page_by_page(place: Place) -> None:
    place.session("sess_1", said(*["x" * 50_000] * 12))

    async def pages() -> list[int]:
        log = Log(SqliteStore(place.path))
        try:
            return [len(rows) async for rows in read_pages(log, "sess_1", -1)]
        finally:
            await log.close()

    sizes = asyncio.run(pages())
    assert len(seqs(place.run("tail").stdout)) == sum(sizes) == 12


def test_tail_of_a_type_that_is_not_there_names_those_that_are(toured: Place) -> None:
    result = toured.run("tail", "--type", "nosuch", "--after", "9")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == (
        "no event of sess_1 after seq 9 matches; it has events of type agent.end, tool.result\n"
    )


def test_tail_after_the_last_event_says_where_the_session_ends(toured: Place) -> None:
    result = toured.run("tail", "--after", "99999")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "sess_1 has no event after seq 99999; its last event has seq 12\n"


def test_tail_of_a_session_without_events_says_so(place: Place) -> None:
    place.session("sess_1", [])
    assert place.run("tail").output == "sess_1 has no events yet\n"
